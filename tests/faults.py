"""Every allocation, thread and call on files of small commands fails in turn, and every
checkpoint is cut short in turn.

usage: faults.py MINRNN PRELOAD [--stride K] [--only WORD]

PRELOAD: the library of fault_preload.c; K: every K-th allocation, and every K/4-th of the rest.

After each fault the command must end with 0 and the same result, or with 1 and one line on stderr; it must hold no more
memory and no more open files than an undisturbed run does at its end; every model that is there is whole; and a run
that was disturbed or cut short, resumed, ends with the same bits as one that was not. All on the CPU: what a CUDA
runtime holds is not ours.
"""
import argparse, hashlib, os, re, shutil, subprocess, sys, tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

FAULTS = ("memory", "thread", "file", "short")
CUTS = ("kill", "cut", "undo")
CUT_STATUS = 9
MODELS = ("model.safetensors", "last.safetensors")
TINY = "--dim 4 --layers 1 --expansion 1 --context 8 --batch 2 --threads 2 --quiet".split()
FIRST = ["train", "text", "--data", "../text.txt", *TINY, "--steps", "4", "--eval-every", "2", "--save-every", "2",
         "--out", "run"]
TUNE = ["train", "text", "--init", "run", "--context", "8", "--batch", "2", "--threads", "2", "--quiet", "--steps", "2",
        "--out", "tuned"]
NEXT = ["train", "--out", "run", "--resume", "--steps", "8", "--quiet"]


class Place:
    """A folder with copies of what a command works on."""

    def __init__(self, lab, name):
        self.path = os.path.join(lab.root, name)
        shutil.rmtree(self.path, ignore_errors=True)
        os.makedirs(self.path)
        self.lab = lab

    def copy_run(self):
        shutil.copytree(os.path.join(self.lab.root, "begun", "run"), os.path.join(self.path, "run"))
        return self

    def run(self, command, fault=None):
        report = os.path.join(self.path, "report")
        env = dict(os.environ, MINRNN_DATA="/nonexistent")
        if fault:
            env.update(LD_PRELOAD=self.lab.preload, MINRNN_FAULT=fault, MINRNN_FAULT_REPORT=report)
        try:
            with open(os.path.join(self.lab.root, "text.txt")) as text:
                done = subprocess.run([self.lab.minrnn, *command, "--device", "cpu"], cwd=self.path, env=env,
                                      stdin=text,
                                      capture_output=True, timeout=300)
        except subprocess.TimeoutExpired:
            return {"code": "hangs", "out": b"", "err": b"", "fired": "?", "left": None}
        told = open(report).read() if fault and os.path.exists(report) else ""
        fired, left = re.search(r"fired (\w+)", told), re.search(r"left (\d+) (\d+)", told)
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr, "fired": fired and fired[1],
                "left": left and tuple(map(int, left.groups()))}

    def files(self):
        """Every file below, by its content, without what depends on the clock (state.safetensors
        knows the size of the log)."""
        found = {}
        for folder, _, names in os.walk(self.path):
            for name in names:
                if name in (".lock", "report", "state.safetensors") or name.endswith((".tmp", ".svg", ".before")):
                    continue
                path = os.path.join(folder, name)
                data = open(path, "rb").read()
                if name == "log.jsonl":
                    data = re.sub(rb',"(tokens_per_s|seconds)":[^,}]*', b"", data)
                if name == "recipe.ini":  # its paths start at the root, and every place has its own
                    data = re.sub(rb"(?m)^data = .*/", b"data = ", data)
                found[os.path.relpath(path, self.path)] = hashlib.sha256(data).hexdigest()
        return found


class Lab:
    def __init__(self, minrnn, preload, stride, only):
        self.minrnn, self.preload = os.path.realpath(minrnn), os.path.realpath(preload)
        self.stride, self.only = stride, only
        self.root = tempfile.mkdtemp(prefix="minrnn-faults-", 
                                     dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.failures, self.counts, self.calls = [], Counter(), Counter()
        self.usual, self.sound = set(), set()  # what undisturbed commands hold at their end; models known to be whole
        with open(os.path.join(self.root, "text.txt"), "w") as out:
            out.write("abc abd abe\n" * 20)

    def fail(self, what, fault, result):
        self.failures.append(f"{what}, {fault} ({result['fired']}): status {result['code']}, left {result['left']}, "
                             f"stderr {result['err'][-300:]!r}")

    def references(self):
        begun = Place(self, "begun")
        assert begun.run(FIRST)["code"] == 0, begun.run(FIRST)["err"]
        whole = Place(self, "whole").copy_run()
        assert whole.run(NEXT)["code"] == 0
        self.whole = whole.files()
        self.first = begun.files()

    def in_turn(self, what, fault, one):
        """one(n, name) → did it fire? Until it no longer does."""
        if self.only and self.only not in f"{what} {fault}":
            return
        stride = self.stride if fault == "memory" else max(1, self.stride // 4)
        with ThreadPoolExecutor(2) as workers:
            n = 1
            while True:
                batch = [n + i * stride for i in range(8)]
                fired = list(workers.map(lambda at: one(at, f"{what.replace(' ', '-')}-{fault}-{at}"), batch))
                self.counts[what, fault] += sum(fired)
                if not all(fired):
                    break
                n = batch[-1] + stride

    # ---- a command that fails

    def check_end(self, what, fault, result, baseline):
        code, lines = result["code"], result["err"].count(b"\n")
        if code == 0:
            good = result["out"] == baseline["out"]
        else:
            good = code == 1 and lines == 1 and result["err"].endswith(b"\n")
        left, usual = result["left"], baseline["left"]
        good = good and left is not None and left[0] <= usual[0] and left[1] <= usual[1]
        if not good:
            self.fail(what, fault, result)
        self.calls[result["fired"]] += 1
        self.usual.add(usual)

    def reading(self, what, command):
        for fault in FAULTS:
            place = Place(self, "undisturbed").copy_run()
            baseline = place.run(command, f"{fault}:0")
            assert baseline["code"] == 0, baseline
            whole = place.files()

            def one(n, name):
                here = Place(self, name).copy_run()
                precious = os.path.join(here.path, "small.safetensors")
                shutil.copy(os.path.join(here.path, "run", "model.safetensors"), precious)
                old = here.files()
                result = here.run(command, f"{fault}:{n}")
                if result["fired"]:
                    self.check_end(what, f"{fault}:{n}", result, baseline)
                    after = here.files()
                    changed = [k for k in old if after.get(k) not in (old[k], whole.get(k))]
                    if changed:
                        self.fail(what + f": {changed} changed", f"{fault}:{n}", result)
                shutil.rmtree(here.path)
                return bool(result["fired"])

            self.in_turn(what, fault, one)

    def check_models(self, what, fault, place, result):
        found = place.files()
        for name in (f"run/{name}" for name in MODELS):
            if name in found and found[name] not in self.sound:
                if place.run(["info", name])["code"] == 0:
                    self.sound.add(found[name])
                else:
                    self.fail(f"{what}: {name} is not whole", fault, result)

    def check_lone_model(self, what, fault, place, command, result):
        """A model whose state could not be written: not overwritten. Once it is moved away, the run starts over."""
        left = place.files()
        models = [name for name in left if name in (f"run/{model}" for model in MODELS)]
        if os.path.exists(os.path.join(place.path, "run", "state.safetensors")) or not models:
            return
        again = place.run(command)
        if again["code"] != 1 or b"no state to resume from" not in again["err"] or place.files() != left:
            self.fail(f"{what}: a lone model was not kept: {again['code']} {again['err'][-200:]!r}", fault, result)
        for name in models:
            os.unlink(os.path.join(place.path, name))

    def check_resumed(self, what, fault, place, command, wanted, result):
        self.check_lone_model(what, fault, place, command, result)
        again = place.run(command)
        if again["code"] != 0 or place.files() != wanted:
            odd = [k for k in set(wanted) | set(place.files()) if wanted.get(k) != place.files().get(k)]
            self.fail(f"{what}: resumed with {again['code']} {again['err'][-200:]!r}, differs in {odd}", fault, result)

    def training(self, what, command, begun, faults):
        wanted = self.whole if begun else self.first
        resume = NEXT if begun else [*FIRST, "--resume"]
        for fault in faults:
            place = Place(self, "undisturbed")
            baseline = (place.copy_run() if begun else place).run(command, f"{fault}:0")
            assert baseline["code"] == 0, baseline

            def one(n, name):
                here = Place(self, name)
                if begun:
                    here.copy_run()
                result = here.run(command, f"{fault}:{n}")
                if result["fired"]:
                    if fault in CUTS:
                        self.calls[result["fired"]] += 1
                        if result["code"] != CUT_STATUS:
                            self.fail(what, f"{fault}:{n}", result)
                    else:
                        self.check_end(what, f"{fault}:{n}", result, baseline)
                    self.check_models(what, f"{fault}:{n}", here, result)
                    self.check_resumed(what, f"{fault}:{n}", here, resume, wanted, result)
                shutil.rmtree(here.path)
                return bool(result["fired"])

            self.in_turn(what, fault, one)

    def all(self):
        self.references()
        model = "run/model.safetensors"
        self.reading("info", ["info", model, "--json"])
        self.reading("eval", ["eval", model, "--data", "../text.txt", "--threads", "2"])
        self.reading("generate", ["generate", model, "--tokens", "5", "--prompt", "ab", "--json"])
        self.reading("score", ["score", model, "../text.txt", "--mode", "chunk=16", "--json", "--per-token"])
        self.reading("export onnx", ["export", model, "--to", "onnx", "--out", "model.onnx"])
        self.reading("quantize", ["quantize", model, "--data", "../text.txt", "--out", "small.safetensors"])
        self.reading("export", ["export", model, "--to", "torch", "--out", "torch.safetensors"])
        foreign = ["export", model, "--to", "torch", "--out", "../foreign.safetensors"]
        assert Place(self, "undisturbed").copy_run().run(foreign)["code"] == 0
        self.reading("info of foreign weights", ["info", "../foreign.safetensors", "--json"])
        self.reading("import", ["import", "../foreign.safetensors", "--out", "small.safetensors"])
        self.reading("train from a model", [*TUNE, "--data", "../text.txt", "--data", "../text.txt"])
        self.reading("train on standard input", [*TUNE, "--data", "-", "--unknown", "skip"])
        self.training("train", FIRST, False, FAULTS)
        self.training("resume", NEXT, True, FAULTS)
        self.training("train cut short", FIRST, False, CUTS)
        self.training("resume cut short", NEXT, True, CUTS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("minrnn")
    parser.add_argument("preload")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--only", default="")
    lab = Lab(**vars(parser.parse_args()))
    try:
        lab.all()
    finally:
        shutil.rmtree(lab.root, ignore_errors=True)
    for (what, fault), count in lab.counts.items():
        print(f"{what:20} {fault:8} {count:6} faults")
    print("held at the end of an undisturbed command:",
          ", ".join(f"{b} blocks, {f} files" for b, f in sorted(lab.usual)))
    print("calls:", ", ".join(f"{name} {count}" for name, count in lab.calls.most_common()))
    print("\n".join(lab.failures[:40]))
    print(f"{sum(lab.counts.values())} faults, {len(lab.failures)} failures")
    return 1 if lab.failures or not lab.counts else 0


sys.exit(main())
