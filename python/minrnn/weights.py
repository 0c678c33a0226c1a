"""Weights of other programs: models made of them and given back, by `minrnn import` and `minrnn export`."""
import json
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Mapping

import numpy as np

from .arrays import path_of, refuse_mask, settings_as_text, shown, utf8
from .command import command
from .errors import FileError, InvalidArgument
from .models import SCALER_TENSORS, load

_NAMES = {"f2": "F16", "f4": "F32", "f8": "F64", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64", "u1": "U8",
          "b1": "BOOL"}

_ARGUMENTS = {"from": "layout"}  # flags of the command that are called otherwise here
_ELSEWHERE = {"help", "json", "quiet", "out", "from", "dtype", "tf32", "seed"}  # its flags that are no keys of a model


class Tensors(dict):
    """Name → tensor. metadata: what the tensors do not tell, such as the model's keys and its vocabulary."""

    metadata = {}


def _array(x, name):
    """A tensor of any library as an array. bfloat16 becomes float32, which holds the same numbers."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()
    refuse_mask(x, name)
    x = np.asarray(x)
    x = x.astype(x.dtype.newbyteorder("<")) if x.dtype.kind in "fiub" else x
    if x.dtype.str[1:] not in _NAMES:
        raise InvalidArgument(f"{name}: is of {x.dtype}, which no file of weights holds")
    return x


def _write(path, tensors):
    """A safetensors file."""
    arrays = {name: _array(x, name) for name, x in tensors.items()}
    header, at = {"__metadata__": getattr(tensors, "metadata", {})}, 0
    for name, x in arrays.items():
        header[name] = {"dtype": _NAMES[x.dtype.str[1:]], "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in arrays.values():
            file.write(x.tobytes())


def _read(path):
    """The Tensors of a file that `minrnn export` has written, as arrays: float32, and a scaler's numbers float64."""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:start])
    found = Tensors()
    found.metadata = header.pop("__metadata__")
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind = np.dtype({"F32": "<f4", "F64": "<f8"}[entry["dtype"]])
        found[name] = np.frombuffer(data, kind, (end - begin) // kind.itemsize, start + begin).reshape(
            entry["shape"]).copy()
    return found


def _run(what, folder, *arguments):
    """Runs the command. What it refuses is an exception with its sentence, which names no temporary file."""
    program = command()
    if not program:
        raise FileError("the command `minrnn` is not in this installation; build it with `make` and put it on the PATH")
    done = subprocess.run([program, what, *arguments, "--quiet"], capture_output=True, text=True, encoding="utf-8",
                          errors="replace")
    if done.returncode:
        line = (done.stderr.strip() or f"minrnn {what} ended with status {done.returncode}").splitlines()[-1]
        line = line.removeprefix(f"minrnn {what}: ").removeprefix(f"{folder}{os.sep}weights: ")
        line = re.sub("--(?!help)([a-z-]+)", lambda flag: _ARGUMENTS.get(flag[1], flag[1].replace("-", "_")), line)
        raise InvalidArgument(line.replace(f"{folder}{os.sep}", ""))


def _characters(vocab):
    """A vocabulary as a text that has it."""
    good = vocab and all(isinstance(x, str) and len(x) == 1 for x in vocab)
    if not good or list(vocab) != sorted(set(vocab)):
        raise InvalidArgument("vocab: must be \"bytes\", or characters in ascending order, each once")
    return "".join(vocab)


def _word(x, name):
    """A text that the command can be given as an argument."""
    if not isinstance(x, str):
        raise InvalidArgument(f"{name}: must be a text, not {type(x).__name__}")
    utf8(x, name)
    if "\0" in x:
        raise InvalidArgument(f"{name}: has a zero byte")
    return x


def _file(path):
    """The name of a file or folder, which the command does not take for a flag."""
    name = os.fsdecode(path_of(path))
    try:
        os.stat(name)
    except OSError as error:
        raise FileError(f"{shown(name)}: cannot be opened: {error.strerror}") from None
    return os.path.join(os.curdir, name) if name.startswith("-") else name


def _vocabulary(vocab, text, folder):
    """Arguments of the command that tell the vocabulary."""
    if text is not None and isinstance(vocab, str) and vocab == "chars":  # as the command has it
        vocab = None
    if vocab is not None and text is not None:
        raise InvalidArgument("vocab, text: one of them; the characters of text are a vocabulary")
    if isinstance(vocab, np.ndarray):
        vocab = vocab.tolist()
    if isinstance(vocab, (list, tuple)):
        vocab, text = None, _characters(vocab)
    if text is None:
        return [] if vocab is None else ["--vocab", _word(vocab, "vocab")]
    if not isinstance(text, str):
        raise InvalidArgument(f"text: must be a text, not {type(text).__name__}")
    name = os.path.join(folder, "text")
    with open(name, "wb") as file:
        file.write(utf8(text, "text"))
    return ["--vocab", "chars", "--text", name]


def _keys(keys):
    """Arguments of the command that are keys of a model."""
    arguments = []
    for key, value in settings_as_text(keys).items():
        if key in _ELSEWHERE:
            raise InvalidArgument(f"{key}: is no key of a model")
        arguments += [f"--{_word(key, 'key')}", _word(value, key)]
    return arguments


def from_state_dict(tensors, *, layout="auto", vocab=None, text=None, device="cpu", threads=0, bf16=False, **keys):
    """A Model of the weights of another program: a state dict, or a module that has one, or the path of a safetensors
    file or folder.

    layout: lucidrains (minGRU-pytorch), borealis, mamba, torch, or auto, which looks at the names; docs/weights.md has
    them. vocab="bytes" makes a text model of one with 256 tokens, vocab=sorted(characters) one of characters; text: a
    text whose characters, in ascending order, are the vocabulary. What weights do not tell are keys of the model:
    norm_eps=1e-6, heads=4.
    """
    scaler = {}
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "weights"), os.path.join(folder, "model.safetensors")
        if isinstance(tensors, (str, bytes, os.PathLike)):
            source = _file(tensors)
        else:
            tensors = tensors.state_dict() if hasattr(tensors, "state_dict") else tensors
            if not isinstance(tensors, Mapping):
                raise InvalidArgument("tensors: must be a dict of arrays, a module or a path, not "
                                      f"{type(tensors).__name__}")
            if not getattr(tensors, "metadata", None):  # of a Model's own: names alone do not tell what they belong to
                scaler = {name: tensors[key] for key, name in SCALER_TENSORS.items() if key in tensors}
                tensors = {key: x for key, x in tensors.items() if key not in SCALER_TENSORS}
            _write(source, tensors)
        more = ["--from", _word(layout, "layout"), *_vocabulary(vocab, text, folder), *_keys(keys)]
        _run("import", folder, source, "--out", out, *more)
        model = load(out, device=device, threads=threads, bf16=bf16)
        if scaler:
            model.set_scaler(**{name: _array(x, name) for name, x in scaler.items()})
        return model


def from_lucidrains(source, **options):
    """A Model of a minLM, minGRU or minLSTM of minGRU-pytorch: the module, its state dict, or a file. The options are
    those of from_state_dict. A layer as a PyTorch module: minrnn.torch.from_lucidrains."""
    return from_state_dict(source, layout="lucidrains", **options)


def to_torch(model):
    """All tensors of a Model as PyTorch tensors by the names of nn.Linear, nn.GRU and so on (docs/weights.md, layout
    torch). from_state_dict takes them back: the same model, but for its training."""
    try:
        import torch
    except ImportError:
        raise InvalidArgument("PyTorch is not installed: to_torch needs it (pip install torch)") from None
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "weights"), os.path.join(folder, "torch")
        model.save(source)
        _run("export", folder, source, "--to", "torch", "--out", out)
        found = _read(out)
        for name, x in found.items():
            found[name] = torch.from_numpy(x)
        return found
