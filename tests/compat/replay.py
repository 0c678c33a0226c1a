#!/usr/bin/env python3
"""What a command computes from the run folders in runs/, as facts; recorded once, and compared from then on.

usage: replay.py check MINRNN ISA exact|near    compare with expected/; exit 1 where a bit differs
       replay.py names                          the cases
       replay.py half MINRNN ISA CASE DATA OUT  train the first half of a case into OUT/runs (make.sh)
       replay.py record MINRNN DATA OUT         write OUT/expected (make.sh)

A fact is a line: case, name, value as JSON. expected/all.txt holds those that are the same on every instruction set,
expected/ISA.txt the others. Of a safetensors file the tensors are one fact and the metadata is another; metadata and
recipes are given as changes against those in runs/, so that a key that is new, gone or changed shows by its name.
`near` is for builds that round differently: it passes over sums of bits, and numbers may be 1e-5 apart.
"""
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
ISAS = ["scalar", "avx2", "avx512"]
HALF, WHOLE = "12", "24"
SUM = re.compile("[0-9a-f]{24}")
COMMON = "--batch 4 --lr 0.03 --schedule cosine --warmup 4 --eval-every 5 --seed 3".split()
TEXT = "--data text.txt --context 20".split()

# Keys that a later version may write though the recorded one did not; each has a reason beside it.
NEW_KEYS = {
    # evaluations on a part of the test set, other logs; the time of a run; sums over micro-batches; what is computed
    # again
    "metadata": {"train.eval-tokens", "train.log", "train.gradient-sum", "train.recompute", "state.seconds",
                 "state.setup-seconds"},
    # forms of the models of other projects
    "recipe": {"model.width", "model.mlp-width", "model.mlp-gate", "model.gelu", "model.norm-eps", "model.mixer-bias",
               "model.mlp-bias", "model.tie-embeddings", "model.mixer-conv", "model.dt-rank",
               "model.head-bias", "model.output", "model.transition", "task.split", "task.unknown", "train.eval-tokens",
               "train.log", "train.gradient-sum", "train.recompute", "train.recompute-chunk"},
    "info": {"head-bias", "output", "scaler", "transition", "width", "mlp-width", "mlp-gate", "gelu", "norm-eps",
             "mixer-bias", "mlp-bias", "tie-embeddings", "mixer-conv", "dt-rank"},
    "eval": {"split"},
    "eval test": {"split"},
}


# ---- reading

def sum_of(content):
    return hashlib.sha256(content).hexdigest()[:24]


def safetensors(path):
    """The facts of a file: a sum over names, dtypes, shapes and bytes of its tensors, in the order
    of names; the metadata."""
    with open(path, "rb") as file:
        content = file.read()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end].decode("utf-8"))
    metadata = header.pop("__metadata__", {})
    total, covered = b"", 0
    for name, entry in sorted(header.items()):
        begin, stop = entry["data_offsets"]
        covered += stop - begin
        total += f"{name} {entry['dtype']} {entry['shape']}\n".encode() + content[end + begin:end + stop]
    if not header or covered != len(content) - end:
        raise ValueError(f"{path}: its tensors do not cover it")
    return sum_of(total), metadata


def recipe(path):
    """section.key → value."""
    values, section = {}, ""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("["):
                section = line.strip("[]\n")
            elif line.strip():
                key, value = line.rstrip("\n").split(" = ", 1)
                # paths were as the user gave them once, and are absolute now
                values[f"{section}.{key}"] = os.path.basename(value) if key == "data" else value
    return values


def timeless(path):
    with open(path, "rb") as file:
        return re.sub(rb',"(tokens_per_s|seconds)":[^,}]*', b"", file.read())


def cases():
    """Name → flags for train."""
    found = {}
    with open(os.path.join(HERE, "cases"), encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                name, *flags = shlex.split(line)
                common = [*COMMON, *(TEXT if flags[0] == "text" else [])]
                kept = [word for i in range(0, len(common), 2) if common[i] not in flags for word in common[i:i + 2]]
                found[name] = [flags[0], *kept, *flags[1:]]
    return found


def has_pictures(data):
    return bool(data) and os.path.exists(os.path.join(data, "cifar10", "gray.bin"))


# ---- running

class Failed(Exception):
    """A command ended with another status than 0."""


class Command:
    """A minrnn of one instruction set in one folder; what it prints is its answer."""

    def __init__(self, minrnn, isa, folder, data):
        self.minrnn, self.folder = minrnn, folder
        self.env = dict(os.environ, MINRNN_ISA=isa, MINRNN_DATA=data, XDG_CACHE_HOME=os.path.join(folder, "none"))

    def __call__(self, *arguments):
        command = [self.minrnn, *arguments, "--device", "cpu", "--threads", "1"]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True)
        if done.returncode:
            said = done.stderr.decode(errors="replace")[-500:]
            raise Failed(f"status {done.returncode}: minrnn {' '.join(arguments)}: {said}")
        return done.stdout

    def path(self, name):
        return os.path.join(self.folder, name)

    def json(self, *arguments):
        return json.loads(self(*arguments, "--json").decode("utf-8"))


def changes(old, new):
    """What is other in new, None for what is gone."""
    return {key: new.get(key) for key in {*old, *new} if key not in old or new.get(key) != old[key]}


def without(values, *keys):
    return {key: value for key, value in values.items() if key not in keys}


def of_model(minrnn, path, name):
    tensors, metadata = safetensors(minrnn.path(path))
    _, old = safetensors(minrnn.path("run/model.safetensors"))
    return {f"{name}.tensors": tensors, f"{name}.metadata": changes(old, metadata)}


def of_folder(minrnn, name):
    """The facts of a run folder, less what depends on the clock."""
    facts = {}
    for file in ("last", "model"):
        facts.update(of_model(minrnn, f"{name}/{file}.safetensors", f"{name}/{file}"))
    tensors, metadata = safetensors(minrnn.path(f"{name}/state.safetensors"))
    _, old = safetensors(minrnn.path("run/state.safetensors"))
    log = minrnn.path(f"{name}/log.jsonl")
    facts[f"{name}/state.tensors"] = tensors
    facts[f"{name}/state.metadata"] = without(changes(old, metadata), "state.log-offset")
    facts[f"{name}/state.log-offset is the log's end"] = metadata["state.log-offset"] == str(os.path.getsize(log))
    facts[f"{name}/log"] = sum_of(timeless(log))
    facts[f"{name}/recipe"] = changes(recipe(minrnn.path("run/recipe.ini")), recipe(minrnn.path(f"{name}/recipe.ini")))
    return facts


def informed(minrnn, model):
    """What info says, the parameters' shapes as a sum, less what depends on the length of the metadata."""
    told = minrnn.json("info", model)
    told["parameters"] = sum_of(json.dumps(told["parameters"]).encode())
    return {**told["config"], **without(told, "config", "file_bytes")}


def scored(minrnn, model, mode):
    """The mean to be read by people, and the sum of all that is printed."""
    out = minrnn("score", model, "text.txt", "--mode", mode, "--per-token", "--json")
    return [json.loads(out)["nats_per_token"], sum_of(out)]


def of_text(minrnn, model, name):
    facts = {f"{name}/score {mode}": scored(minrnn, model, mode) for mode in ("parallel", "step", "chunk=7")}
    choose = "--prompt the --tokens 40 --seed 5 --quiet".split()
    for how, flags in ("drawn", "--temperature 0.9 --top-k 12 --top-p 0.95"), ("likeliest", "--temperature 0"):
        facts[f"{name}/generate {how}"] = minrnn("generate", model, *choose, *flags.split()).decode("utf-8")
    return facts


def facts_of(minrnn, flags):
    """Every fact of a case: from its seed, from its folder resumed, from its model."""
    model, small = "run/model.safetensors", "eight.safetensors"
    data = ["--data", "text.txt"] if flags[0] == "text" else []
    if "--accumulate" in flags:  # what runs did before gradients were added in a tree
        flags = [*flags, "--gradient-sum", "order"]
    minrnn("train", *flags, "--steps", HALF, "--out", "half", "--quiet")
    facts = of_folder(minrnn, "half")
    shutil.copytree(minrnn.path("run"), minrnn.path("resumed"))
    minrnn("train", "--out", "resumed", "--resume", "--steps", WHOLE, "--quiet")
    facts.update(of_folder(minrnn, "resumed"))
    facts["model/info"] = informed(minrnn, model)
    facts["quantize"] = without(minrnn.json("quantize", model, "--out", small, *data), "bytes_before", "bytes_after")
    facts.update(of_model(minrnn, small, "quantized"))
    facts["quantized/info"] = changes(facts["model/info"], informed(minrnn, small))
    if flags[0] in ("listops", "retrieval"):
        facts["model/eval test"] = minrnn.json("eval", model, "--split", "test")
    if flags[0] != "image":  # a set of thousands: that quantize scores the model is enough
        facts["model/eval"] = minrnn.json("eval", model, *data)
        facts["resumed/eval"] = minrnn.json("eval", "resumed/last.safetensors", *data)
        facts["quantized/eval"] = minrnn.json("eval", small, *data)
    if flags[0] == "text":
        facts.update(of_text(minrnn, model, "model"))
        facts.update(of_text(minrnn, small, "quantized"))
    return facts


def replay(minrnn, isa, source, data, wanted):
    """(case, fact) → value, for the wanted cases, from the folders below source."""
    facts = {}
    for name, flags in wanted.items():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(source, "text.txt"), folder)
            shutil.copytree(os.path.join(source, "retrieval"), os.path.join(folder, "retrieval"))
            shutil.copytree(os.path.join(source, "runs", name), os.path.join(folder, "run"))
            command = Command(minrnn, isa, folder, data if name == "image" else folder)
            try:
                facts.update({(name, fact): value for fact, value in facts_of(command, flags).items()})
            except (Failed, ValueError, OSError) as error:
                facts[name, "failed"] = str(error)
    return facts


# ---- recording and comparing

def line_of(case, fact, value):
    return f"{case}\t{fact}\t{json.dumps(value, ensure_ascii=False, sort_keys=True)}\n"


def read_expected(isa):
    facts = {}
    for name in ("all", isa):
        with open(os.path.join(HERE, "expected", name + ".txt"), encoding="utf-8") as file:
            for line in file:
                case, fact, value = line.rstrip("\n").split("\t")
                facts[case, fact] = json.loads(value)
    return facts


def record(minrnn, data, out):
    found = {isa: replay(minrnn, isa, out, data, cases()) for isa in ISAS}
    failed = [value for facts in found.values() for (_, fact), value in facts.items() if fact == "failed"]
    if failed:
        sys.exit("\n".join(failed))
    keys = list(found[ISAS[0]])
    common = {key for key in keys if all(found[isa][key] == found[ISAS[0]][key] for isa in ISAS)}
    for name in ["all", *ISAS]:
        with open(os.path.join(out, "expected", name + ".txt"), "w", encoding="utf-8", newline="\n") as file:
            for key in keys:
                if (key in common) == (name == "all"):
                    file.write(line_of(*key, found[ISAS[0] if name == "all" else name][key]))


def number(value):
    """A number that was rounded, or None."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]+\.[0-9]+(e-?[0-9]+)?", value):
        return float(value)
    return value if isinstance(value, float) else None


def same(expected, got, near):
    if near and isinstance(expected, str) and isinstance(got, str) and SUM.fullmatch(expected):
        return bool(SUM.fullmatch(got))
    if near and number(expected) is not None and number(got) is not None:
        return abs(number(expected) - number(got)) <= 1e-5 * max(1, abs(number(expected)))
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(same(e, g, near) for e, g in zip(expected, got))
    return type(expected) is type(got) and expected == got


def unchanged(case, fact):
    """What a fact that lists changes of metadata compares with."""
    if not fact.endswith(".metadata"):
        return {}
    file = "state" if fact.endswith("/state.metadata") else "model"
    return safetensors(os.path.join(HERE, "runs", case, file + ".safetensors"))[1]


def difference(fact, expected, got, near, old):
    """What to say of two values, or None where they are the same."""
    if not isinstance(expected, dict) or not isinstance(got, dict):
        return None if same(expected, got, near) else f"is {got!r}, was {expected!r}"
    if near:  # a number that differs in its last digits alone is listed as changed here, and not there
        expected, got = ({**{k: old[k] for k in other if k in old}, **own} for own, other in
                         ((expected, got), (got, expected)))
    allowed = NEW_KEYS.get(re.split(r"[./]", fact)[-1], set())
    known = [k for k in sorted(expected) if k not in got or not same(expected[k], got[k], near)]
    wrong = known + [k for k in sorted(got) if k not in expected and k not in allowed]
    return "; ".join(f"{k} is {got.get(k, 'missing')!r}, was {expected.get(k, 'missing')!r}" for k in wrong) or None


def check(minrnn, isa, how):
    data = os.environ.get("MINRNN_DATA", "")
    wanted = cases()
    if not has_pictures(data):
        print(f"left out: image on {isa}: set MINRNN_DATA to the folder that has cifar10/gray.bin")
        del wanted["image"]
    expected = {key: value for key, value in read_expected(isa).items() if key[0] in wanted}
    if {case for case, _ in expected} != {*wanted}:
        sys.exit("expected/ and cases do not name the same runs")
    found = replay(os.path.realpath(minrnn), isa, HERE, os.path.realpath(data), wanted)
    failures = 0
    for case, fact in {**expected, **found}:
        key = (case, fact)
        if key not in found:
            wrong = None if (case, "failed") in found else "is missing"
        elif key not in expected:
            wrong = str(found[key]) if fact == "failed" else f"is new: {found[key]!r}"
        else:
            near = how == "near"
            wrong = difference(fact, expected[key], found[key], near, unchanged(case, fact) if near else {})
        if wrong:
            failures += 1
            print(f"FAIL {isa} {case} {fact}: {wrong}"[:1500])
    if failures:
        print("a new key? add it to NEW_KEYS in tests/compat/replay.py")
    print(f"{isa}: {len(expected)} facts of {len(wanted)} runs, {failures} differ")
    return failures > 0


def main():
    what, arguments = (sys.argv[1:] or [""])[0], sys.argv[2:]
    if what == "names" and not arguments:
        print("\n".join(cases()))
    elif what == "half" and len(arguments) == 5:
        minrnn, isa, name, data, out = arguments
        folder = os.path.realpath(out)
        command = Command(minrnn, isa, folder, data if name == "image" else folder)
        command("train", *cases()[name], "--steps", HALF, "--out", f"runs/{name}", "--quiet")
    elif what == "record" and len(arguments) == 3:
        record(arguments[0], arguments[1], os.path.realpath(arguments[2]))
    elif what == "check" and len(arguments) == 3 and arguments[2] in ("exact", "near"):
        return check(*arguments)
    else:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
