#!/usr/bin/env python3
"""Imports the models of other programs that make_peers.py wrote, and compares: outputs with the program's own, and
what is exported again with the file that came in, bit for bit.

usage: weights_check.py MINRNN OUTPUTS [--device D] [--exports FOLDER] [--verbose] MODEL-FOLDER…

OUTPUTS is the program model_outputs. Only Python's standard library is needed. The last lines are the largest error of
each family, relative to max(1, |y|); a layer may be off by 2e-6, a whole model by 1e-5."""
import argparse
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

FORMS = {"F32": "f", "F64": "d", "F16": "e", "I64": "q"}
# the families that can be exported, and what `minrnn export` calls them
EXPORTS = {"mingru-pytorch": "lucidrains", "ours": "torch", "torch": "torch"}


def read(path):
    """Name → (dtype, shape, bytes)."""
    content = path.read_bytes()
    length = struct.unpack_from("<Q", content)[0]
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def read_all(folder):
    tensors = {}
    for path in sorted(folder.glob("model*.safetensors")):
        tensors.update(read(path))
    return tensors


def numbers(tensor):
    dtype, _, content = tensor
    if dtype == "BF16":
        halves = struct.unpack(f"<{len(content) // 2}H", content)
        return list(struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(h << 16 for h in halves))))
    form = FORMS[dtype]
    return list(struct.unpack(f"<{len(content) // struct.calcsize(form)}{form}", content))


def as_floats(values):
    """The same numbers, rounded to fp32."""
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


class Failed(Exception):
    """What went wrong with one model."""


def command(*words, text=""):
    done = subprocess.run([str(word) for word in words], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"status {done.returncode}: {' '.join(map(str, words[1:3]))}: {done.stderr.strip()[-300:]}")
    return done.stdout


def error_of(rows, expected, what):
    """The largest error relative to max(1, |y|)."""
    if len(rows) != len(expected):
        raise Failed(f"{what}: {len(rows)} numbers, not {len(expected)}")
    worst = 0.0
    for ours, theirs in zip(rows, expected):
        error = abs(ours - theirs) / max(1.0, abs(theirs))
        if not math.isfinite(error):
            raise Failed(f"{what}: {ours} where the other program has {theirs}")
        worst = max(worst, error)
    return worst


def compare_outputs(options, model, folder, facts):
    expected = read(folder / "expected.safetensors")
    wanted = numbers(expected["y64" if "y64" in expected else "y"])
    given = numbers(expected["x"]) if "x" in expected else facts["tokens"]
    printed = command(options.outputs, model, options.device, text=" ".join(map(repr, given)))
    found = [float(word) for word in printed.split()]
    half = len(found) // 2
    worst = max(error_of(found[:half], wanted, "at once"), error_of(found[half:], wanted, "step by step"))
    limit = 2e-6 if facts["layer"] else 1e-5
    if not worst <= limit:
        raise Failed(f"outputs differ by {worst:.2g}; {limit:g} at most")
    return worst


def compare_scores(options, model, folder, facts):
    """A model of bytes: the log-probabilities of `minrnn score`, token by token."""
    expected, text = read(folder / "expected.safetensors"), model.parent / "text"
    wanted, width, tokens = numbers(expected["y64" if "y64" in expected else "y"]), facts["inputs"], facts["tokens"]
    text.write_bytes(bytes(tokens))
    found = json.loads(command(options.minrnn, "score", model, text, "--per-token", "--json"))["logprobs"]
    rows = [wanted[i:i + width] for i in range(0, len(wanted), width)]
    log_sums = [max(row) + math.log(sum(math.exp(value - max(row)) for value in row)) for row in rows]
    worst = error_of(found, [row[token] - total for row, total, token in zip(rows, log_sums, tokens[1:])], "score")
    if not worst <= 1e-5:
        raise Failed(f"log-probabilities differ by {worst:.2g}; 1e-5 at most")
    return worst


def expected_weights(tensors):
    """Name → floats of what an export must have: older norms have gamma, which stands for a weight of gamma + 1."""
    result = {}
    for name, tensor in tensors.items():
        values = as_floats(numbers(tensor))
        if name.endswith(".gamma"):
            name, values = name.removesuffix("gamma") + "weight", as_floats([value + 1 for value in values])
        result[name] = tensor[1], values
    return result


def compare_weights(folder, exported):
    wanted, found = expected_weights(read_all(folder)), expected_weights(read_all(exported))
    for name, (shape, values) in wanted.items():
        if name not in found:
            raise Failed(f"exported: {name} is missing")
        if found[name][0] != shape:
            raise Failed(f"exported: {name} has the shape {found[name][0]}, not {shape}")
        if struct.pack(f"<{len(values)}f", *values) != struct.pack(f"<{len(values)}f", *found[name][1]):
            raise Failed(f"exported: {name} differs")
    for name in found.keys() - wanted.keys():
        if any(found[name][1]):  # a bias that was not there may come out as zeros
            raise Failed(f"exported: {name}, which was not imported")


def unpickled(folder, work):
    """The folder itself, or what scripts/unpickle.py makes of a model.pt in it."""
    if not (folder / "model.pt").exists():
        return folder
    script = pathlib.Path(__file__).resolve().parent.parent / "scripts" / "unpickle.py"
    result = work / "unpickled"
    result.mkdir()
    command(sys.executable, script, folder / "model.pt", "--out", result / "model.safetensors")
    if (folder / "config.json").exists():
        shutil.copy(folder / "config.json", result)
    return result


def check_model(options, folder, work):
    facts = json.loads((folder / "case.json").read_text())
    model, exported, weights = work / "model.safetensors", work / "exported", unpickled(folder, work)
    source = weights if list(weights.glob("*.index.json")) else weights / "model.safetensors"
    flags = facts["flags"] + (["--vocab", "bytes"] if facts["inputs"] == 256 else [])
    command(options.minrnn, "import", source, "--out", model, *flags)
    worst = compare_outputs(options, model, folder, facts)
    if facts["inputs"] == 256:
        worst = max(worst, compare_scores(options, model, folder, facts))
    if facts["family"] in EXPORTS and facts.get("exports", True):
        exported.mkdir()
        command(options.minrnn, "export", model, "--to", EXPORTS[facts["family"]],
                "--out", exported / "model.safetensors")
        compare_weights(weights, exported)
        if options.exports:
            shutil.copytree(exported, options.exports / folder.name)
    return facts["family"] + (" layers" if facts["layer"] else ""), worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minrnn", type=os.path.abspath)
    parser.add_argument("outputs", type=os.path.abspath)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--exports", type=pathlib.Path, help="keep what was exported here")
    parser.add_argument("--verbose", action="store_true", help="a line for each model")
    options = parser.parse_args()
    worst, failures = {}, 0
    for folder in options.folders:
        with tempfile.TemporaryDirectory() as work:
            try:
                family, error = check_model(options, folder, pathlib.Path(work))
            except Failed as why:
                print(f"FAIL: {folder.name}: {why}")
                failures += 1
                continue
        worst[family] = max(worst.get(family, (0, "")), (error, folder.name))
        if options.verbose:
            print(f"{folder.name}: {error:.2g}")
    for family, (error, name) in sorted(worst.items()):
        print(f"{family}: {error:.2g} at most ({name})")
    print(f"{len(options.folders)} models, {failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
