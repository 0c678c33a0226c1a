#!/usr/bin/env bash
# States and models that somebody changed: every key of the metadata and every tensor in turn, missing or wrong. What
# decides the numbers is refused with one line; what may change on resume is not looked at.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 600 1
done_by "$minrnn" train text --data text.txt --dim 4 --layers 1 --context 8 --batch 2 --steps 4 --eval-every 2 --quiet \
    --device cpu --out run

cat >change.py <<'PYTHON'
"""change.py MINRNN PAGE STRIDE: prints a line for every change that does not end as it should. PAGE: docs/runs.md,
which lists the keys that may change on resume (test_keys.c compares the list with the program's). STRIDE: of the
state's tensors, try every STRIDE-th; the state has several sets of the same tensors."""
import json, math, re, shutil, struct, subprocess, sys
minrnn, page, stride = sys.argv[1], open(sys.argv[2], encoding="utf-8").read(), int(sys.argv[3])
listed = re.findall("`([^`]+)`", re.search(r"These keys may change:([^.]*)\.", page).group(1))
# keys of a state: those that may change on resume or are only reported; and those that older versions did not write
FREE = {"state.best-accuracy", "state.best-loss", "state.seconds", "state.setup-seconds",
        *(f"train.{key}" for key in listed)}
MAY_LACK = {"state.best-step", "state.data-sha256", "state.tokens", "train.recompute"}

def read(path):
    content = open(path, "rb").read()
    size, = struct.unpack("<Q", content[:8])
    return json.loads(content[8:8 + size]), content[8 + size:]

def write(path, header, data):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)

def expect(refused, what, *command):
    done = subprocess.run([minrnn, *command], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    if done.returncode != refused or (refused and (len(lines) != 1 or "changed" not in lines[0])):
        print(f"{what}: exit {done.returncode}: {done.stderr.strip()}")

def resume(header, data, refused, what):
    shutil.rmtree("changed", ignore_errors=True)
    shutil.copytree("run", "changed")
    write("changed/state.safetensors", header, data)
    expect(refused, f"state: {what}", "train", "--out", "changed", "--resume", "--quiet", "--device", "cpu")

def with_key(header, key, value):
    metadata = {**header["__metadata__"], key: value}
    if value is None:
        del metadata[key]
    return {**header, "__metadata__": metadata}

def keys():
    header, data = read("run/state.safetensors")
    for key in header["__metadata__"]:
        for value in (None, "", "-1", "1e999"):
            refused = key not in FREE and not (value is None and key in MAY_LACK)
            resume(with_key(header, key, value), data, refused, f"{key} = {value}")
    header, data = read("run/model.safetensors")
    for key in header["__metadata__"]:
        if key.startswith("model.") or key in ("format", "version", "vocab", "step"):
            for value in (None, "", "-1", "1e999"):
                write("changed.safetensors", with_key(header, key, value), data)
                refused = value is not None or key not in ("vocab", "step")
                # without its format it is another program's file, which info describes
                command = ("generate", "--tokens", "1") if key == "format" else ("info",)
                expect(refused, f"model: {key} = {value}", *command[:1], "changed.safetensors", *command[1:])

def tensors(path, check, every):
    header, data = read(path)
    nan = struct.pack("<f", math.nan)
    for name in [name for name in header if name != "__metadata__"][::every]:
        entry = header[name]
        begin, end = entry["data_offsets"]
        others = {key: value for key, value in header.items() if key != name}
        check({**others, name + "x": entry}, data, f"{name} has another name")
        check({**header, name: {**entry, "shape": [1, *entry["shape"]]}}, data, f"{name} has another rank")
        check({**header, name: {**entry, "dtype": "I32"}}, data, f"{name} has another type")
        check(header, data[:end - 4] + nan + data[end:], f"{name} has a NaN")
        check({**header, name: {**entry, "data_offsets": [begin, end - 4]}}, data, f"{name} is shorter")

def model(header, data, what):
    write("changed.safetensors", header, data)
    expect(1, f"model: {what}", "generate", "changed.safetensors", "--tokens", "1", "--device", "cpu")

keys()
tensors("run/model.safetensors", model, 1)
tensors("run/state.safetensors", lambda header, data, what: resume(header, data, 1, what), stride)
PYTHON
python3 change.py "$minrnn" "$tests/../docs/runs.md" $((4 + 16 * slow)) >wrong.txt
check "it ran" [ $? -eq 0 ]
while read -r line; do fail "$line"; done <wrong.txt
grep -q '^state: train\.' wrong.txt && echo "a new key that may change on resume? name it in docs/runs.md"
finish
