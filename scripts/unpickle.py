#!/usr/bin/env python3
"""Turns a state dict that torch.save has written (.pt, .pth, .bin, .ckpt) into a safetensors file, without PyTorch.

    scripts/unpickle.py model.pt --out model.safetensors
    scripts/unpickle.py pytorch_model-0*.bin --out model.safetensors     # several files, one model
    scripts/unpickle.py checkpoint.pt --list                             # what is in it
    scripts/unpickle.py checkpoint.pt --key model --strip module. --out model.safetensors

Such a file is a program in the language of pickle, and loading it in the usual way runs whatever it says. This script
runs nothing: it follows the few instructions that a state dict needs and refuses all others by name. The output is
little-endian and sorted by name. A file that exists is replaced only if this script wrote it, and only when the new one
is complete.

Only Python's standard library is needed. Exit status: 0 done, 1 a file that is refused, 2 wrong usage."""
import argparse
import io
import itertools
import json
import math
import os
import struct
import sys
import tempfile
import zipfile

from pickle_machine import Machine, Refused, Tensor, require

MARK = "minrnn.unpickle"  # metadata of files that may be replaced
LONGEST_HEADER = 100_000_000  # of a safetensors file
LEGACY_MAGIC, LEGACY_PROTOCOL = 0x1950a86a20f9469cfc6c, 1001
# a file can say that one number is a matrix of any size, or name one storage many times
GROWTH, SLACK = 8, 1 << 20


# ---- the two containers

class ZipFile:
    """PyTorch 1.6 and later: an uncompressed zip with NAME/data.pkl and a file for each storage."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path)
        self.entries = {}
        for entry in self.zip.infolist():
            name = entry.filename
            require(".." not in name.split("/") and not name.startswith("/") and "\\" not in name,
                    f"a part with the name {name[:200]!r}")
            require(name not in self.entries, f"two parts with the name {name[:200]!r}")
            require(entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
                    and entry.file_size <= os.path.getsize(path), f"{name[:200]!r} is compressed or damaged")
            self.entries[name] = entry
        found = [name for name in self.entries if name.count("/") == 1 and name.endswith("/data.pkl")]
        require(len(found) == 1, "a zip file, but not of torch.save: it has no data.pkl" if not found
                else "a zip file with more than one data.pkl")
        self.folder = found[0][:-len("data.pkl")]
        order = self.folder + "byteorder"
        require(order not in self.entries or self.read(order).strip() == b"little", "big-endian numbers")
        self.root = Machine().run(io.BytesIO(self.read(found[0])))

    def read(self, name):
        require(name in self.entries, f"{name[:200]!r} is missing")
        return self.zip.read(self.entries[name])

    def storage(self, storage):
        name = f"{self.folder}data/{storage.key}"
        content = self.read(name)
        require(len(content) == storage.count * storage.bytes, f"{name[:200]!r} has {len(content)} bytes, not "
                f"{storage.count * storage.bytes}")
        return content


class LegacyFile:
    """Earlier ones: pickles of a magic number, a version, the machine, the object, the storages' keys; then these."""

    def __init__(self, path):
        with open(path, "rb") as file:
            content = file.read()
        file = io.BytesIO(content)
        require(content[257:262] != b"ustar", "a tar file of PyTorch 0.1; save it with a newer PyTorch")
        try:
            magic = Machine().run(file)
        except (ValueError, Refused):
            magic = None
        require(magic == LEGACY_MAGIC, "not a file of torch.save")
        require(Machine().run(file) == LEGACY_PROTOCOL, "an unknown version of torch.save")
        machine = Machine().run(file)
        require(type(machine) is dict and machine.get("little_endian") is True, "big-endian numbers")
        self.root, keys, self.places = Machine().run(file), Machine().run(file), {}
        require(type(keys) is list and all(type(key) is str for key in keys), "storages without keys")
        self.content, self.keys, self.at = content, keys, file.tell()

    def place(self, sizes):
        """Storages have no lengths in bytes: their classes, which are in the object, are needed."""
        at = self.at
        for key in self.keys:
            require(key in sizes and at + 8 <= len(self.content), f"the storage {key[:200]!r} is missing or not used")
            count = struct.unpack_from("<q", self.content, at)[0]
            require(0 <= count and at + 8 + count * sizes[key] <= len(self.content), "cut short")
            self.places[key] = (at + 8, count * sizes[key])
            at += 8 + count * sizes[key]

    def storage(self, storage):
        if not self.places:
            self.place({found.key: found.bytes for found in storages(self.root)})
        require(storage.key in self.places, f"the storage {storage.key[:200]!r} is missing")
        begin, size = self.places[storage.key]
        require(size == storage.count * storage.bytes, f"the storage {storage.key[:200]!r} has another size")
        return self.content[begin:begin + size]


def storages(root):
    """All storages that an object refers to."""
    found, seen, todo = set(), set(), [root]
    while todo:
        value = todo.pop()
        if isinstance(value, Tensor):
            found.add(value.storage)
        elif type(value) in (dict, list, tuple) and id(value) not in seen:
            seen.add(id(value))
            todo.extend(value.values() if type(value) is dict else value)
    return found


def open_file(path):
    require(not os.path.isdir(path), "a folder, not a file")
    with open(path, "rb") as file:
        zipped = file.read(4) == b"PK\3\4"
    return ZipFile(path) if zipped else LegacyFile(path)


# ---- choosing the state dict

def state_dicts(value, path=(), depth=4):
    """Every dict that holds tensors itself, as (path, dict). Optimizers number theirs, which ends the path."""
    if any(isinstance(item, Tensor) for item in value.values()):
        yield path, value
    elif depth:
        for key, item in value.items():
            if type(key) is str and type(item) is dict:
                yield from state_dicts(item, (*path, key), depth - 1)


def choose(root, key):
    require(type(root) is dict, "not a state dict, but a single value" if isinstance(root, Tensor) else
            "not a state dict")
    found = {".".join(path): value for path, value in state_dicts(root)}
    require(found, "no state dict in it")
    if key is not None:
        require(key in found, f"no state dict {key!r} in it; there is: {', '.join(map(repr, found))}")
        return found[key]
    require(len(found) == 1, f"several state dicts; choose one with --key: {', '.join(found)}")
    return next(iter(found.values()))


def select(root, options):
    """Name → tensor."""
    state, result = choose(root, options.key), {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            print(f"left out: {str(name)[:200]!r}, which is no tensor", file=sys.stderr)
            continue
        name = name.removeprefix(options.strip) if type(name) is str else name
        require(type(name) is str and name != "__metadata__" and name not in result, f"two tensors, or none, could be "
                f"called {name!r}")
        result[name] = value
    return result


# ---- writing

def numbers(tensor, content):
    """A tensor's bytes, row by row, from its storage's."""
    shape, strides, size = tensor.shape, tensor.strides, tensor.storage.bytes
    if tensor.count == 0:
        return b""
    dense = [math.prod(shape[i + 1:]) for i in range(len(shape))]
    if all(n == 1 or stride == want for n, stride, want in zip(shape, strides, dense)):
        return content[tensor.offset * size:tensor.offset * size + tensor.size]
    values = memoryview(content).cast(tensor.storage.view)
    n, step, rows = shape[-1], strides[-1], []
    for index in itertools.product(*map(range, shape[:-1])):
        first = tensor.offset + sum(i * stride for i, stride in zip(index, strides))
        row = values[first:first + (n - 1) * step + 1:step or 1]
        rows.append(row.tobytes() * (n if step == 0 else 1))
    return b"".join(rows)


def write(path, tensors):
    """tensors: name → (tensor, file). The file appears under its name when it is complete."""
    header, at = {"__metadata__": {"format": "pt", MARK: "1"}}, 0
    for name, (tensor, _) in sorted(tensors.items()):
        header[name] = {"dtype": tensor.storage.dtype, "shape": list(tensor.shape),
                        "data_offsets": [at, at + tensor.size]}
        at += tensor.size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-(8 + len(text)) % 64)
    handle, partial = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".unpickle-")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for _, (tensor, file) in sorted(tensors.items()):
                out.write(numbers(tensor, file.storage(tensor.storage)))
            out.flush()
            os.fsync(out.fileno())
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(out.fileno(), 0o666 & ~umask)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
    return 8 + len(text) + at


def is_ours(path):
    """Whether this script wrote a file."""
    with open(path, "rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else LONGEST_HEADER
        if size >= LONGEST_HEADER:
            return False
        try:
            header = json.loads(file.read(size))
        except (ValueError, RecursionError):
            return False
    about = header.get("__metadata__") if type(header) is dict else None
    return type(about) is dict and MARK in about


def check_place(path):
    """Nothing is replaced that someone else wrote. A rename would put a file where a device was."""
    if not os.path.lexists(path):
        return
    if not os.path.isfile(path):
        sys.exit(f"{path}: not a regular file; give another name")
    if not is_ours(path):
        sys.exit(f"--out {path} exists and is not by unpickle.py; remove it first or give another name")


def place(path, tensors):
    """As write. What is wrong with the place is said of the place, not of the file that is read."""
    try:
        check_place(path)
        return write(path, tensors)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror or error}")


def gather(path, options, tensors):
    file = open_file(path)
    if options.list:
        require(type(file.root) is dict, "not a state dict")
        for where, state in state_dicts(file.root):
            for name, value in state.items():
                if isinstance(value, Tensor):
                    texts = (".".join(where) or "-", str(name))
                    texts = [text if text.isprintable() else ascii(text) for text in texts]
                    print(*texts, value.storage.dtype, list(value.shape), sep="\t")
        return
    found = select(file.root, options)
    limit = GROWTH * os.path.getsize(path) + SLACK
    require(sum(tensor.size for tensor in found.values()) <= limit, "tensors that are far larger than the file")
    for name, tensor in found.items():
        require(name not in tensors, f"{name!r} is also in another file")
        tensors[name] = (tensor, file)


def guarded(path, work, *arguments):
    """Whatever is wrong with a file is one line that names it."""
    try:
        return work(*arguments)
    except Refused as error:
        sys.exit(f"{path}: {error}")
    except OSError as error:
        sys.exit(f"{path}: {error.strerror or error}")
    except (zipfile.BadZipFile, ValueError, EOFError, RuntimeError, NotImplementedError, struct.error) as error:
        why = str(error).split("\n", maxsplit=1)[0][:200]
        sys.exit(f"{path}: damaged, or not a file of torch.save ({why})")
    except (MemoryError, RecursionError, OverflowError):
        sys.exit(f"{path}: too large or too deep")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"unpickle.py: {message}; see unpickle.py --help\n")


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="what torch.save has written")
    parser.add_argument("--out", metavar="FILE", help="the safetensors file")
    parser.add_argument("--key", help="which state dict, where there are several: model, or checkpoint.model")
    parser.add_argument("--strip", default="", metavar="PREFIX", help="leave this away where a name begins with it")
    parser.add_argument("--list", action="store_true", help="print state dict, name, dtype and shape, write nothing")
    options = parser.parse_args()
    if (options.out is None) != options.list:
        parser.error("give either --out FILE or --list")
    tensors = {}
    for path in options.files:
        guarded(path, gather, path, options, tensors)
    if options.out is not None:
        if any(os.path.exists(options.out) and os.path.samefile(path, options.out) for path in options.files):
            sys.exit(f"{options.out}: would replace the file that is read")
        size = guarded(options.out if len(options.files) > 1 else options.files[0], place, options.out, tensors)
        print(f"{options.out}: {len(tensors)} tensors, {size} bytes")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
