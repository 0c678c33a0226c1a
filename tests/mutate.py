#!/usr/bin/env python3
"""Changes one thing of the program at a time and says which changes no test notices (`make mutants`).

    tests/mutate.py [--count 300] [--jobs N] [--work build-mutants] [FILE.c …]

It takes a sample of the mutants (tests/mutants/operators.py says what they are) of app/ without bench, src/api,
src/model and src/core, or all mutants of the files that are named. For each it compiles one file, links one shared
library and runs the tests that reach the changed line, the quickest first, until one fails or hangs. Where they pass
and the line, or the name of its function, is about what is freed, they run again under LeakSanitizer, as in `make
asan`. Mutants that do not compile, or compile to the same code, do not count. tests/mutants-equivalent.txt argues
which others change nothing that could be seen.

Everything happens in copies under --work. Results go to results.jsonl there as they come; started again on the same
tree, it resumes. Exit status 1 when fewer than 95 of 100 were caught."""
import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mutants import harness, operators, reach, workshop  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("app", "src/api", "src/model", "src/core")
NOT_COUNTED = ("stillborn", "same")
FREES = re.compile(r"free|close|destroy|release|goto")


def say(text):
    print(text, flush=True)


def sources(tree):
    for room in ROOMS:
        for path in sorted((tree / room).rglob("*.c")):
            if "bench" not in path.parts:
                yield str(path.relative_to(tree))


def equivalents(path):
    """{id: reason} of the entries `id: reason`; lines that begin with a space show the change, # begins a comment."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        match = re.match(r"([0-9a-f]{12}): (\S.*)", line)
        if match:
            found[match.group(1)] = match.group(2)
        elif line.strip() and line[0] not in " #":
            raise SystemExit(f"{path}: not an entry (`id: reason`): {line}")
    return found


def difference(before, after):
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


class Results:
    """results.jsonl: one object a mutant, appended as it comes."""

    def __init__(self, path, tree, keep):
        self.path, self.tree, self.known = path, tree, {}
        self.lock = threading.Lock()
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the line that was being written when the last run was killed
            if entry["tree"] == tree or keep and entry["verdict"] != "survived":
                self.known[entry["id"]] = entry

    def add(self, mutant, **what):
        entry = {"id": mutant.id, "file": mutant.file, "line": mutant.line, "operator": mutant.operator, **what}
        entry["tree"] = self.tree
        with self.lock:
            self.known[mutant.id] = entry
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


class Queue:
    """Hands out mutants in order until `count` of them count."""

    def __init__(self, mutants, count, results):
        self.mutants, self.count, self.results = mutants, count, results
        self.next, self.counted, self.running = 0, 0, 0
        self.changed = threading.Condition()

    def take(self):
        with self.changed:
            while True:
                if self.counted >= self.count or self.next == len(self.mutants):
                    return None
                if self.counted + self.running >= self.count:
                    self.changed.wait()
                    continue
                mutant = self.mutants[self.next]
                self.next += 1
                known = self.results.known.get(mutant.id)
                if not known:
                    self.running += 1
                    return mutant
                self.counted += known["verdict"] not in NOT_COUNTED

    def done(self, counts):
        with self.changed:
            self.running -= 1
            self.counted += counts
            self.changed.notify_all()
            return self.counted


class Trial:
    """What every worker needs to try a mutant."""

    def __init__(self, builder, known, results, texts):
        self.builder, self.known, self.results, self.texts = builder, known, results, texts
        self.tests = {test.name: test for test in harness.tests_of(builder.folder)}
        self.starts = {name: self.function_starts(text) for name, text in texts.items()}
        self.leaks = Leaks(builder.folder)

    @staticmethod
    def function_starts(whole):
        return [whole.count("\n", 0, start) + 1 for start, _ in operators.bodies(operators.mask(whole))]

    def test_for(self, name, command):
        """A test with another command in place of the build's."""
        test, own = self.tests[name], {str(self.builder.folder / "minrnn"): str(command)}
        command = tuple(own.get(word, word) for word in test.command)
        return harness.Test(test.name, command, test.environment, test.skip)

    def try_mutant(self, mutant, worker, cpus):
        whole = self.texts[mutant.file]
        changed = mutant.apply(whole)
        before = worker.out / (mutant.file.replace("/", "+") + ".o")
        if not before.exists() and not worker.compile(mutant.file, whole, before):
            raise SystemExit(f"mutants: {mutant.file} does not compile unchanged")
        after = worker.compile(mutant.file, changed, worker.out / "mutant.o")
        (worker.tree / mutant.file).write_text(whole)
        if after and after.read_bytes() == before.read_bytes():
            return {"verdict": "same"}
        if not after or not worker.link(mutant.file, after):
            return {"verdict": "stillborn"}
        return {**self.run_tests(mutant, worker, cpus), "diff": difference(whole, changed)}

    def run_tests(self, mutant, worker, cpus):
        """The verdict of the tests that reach the mutant, on the library that the worker has linked."""
        began = time.monotonic()
        first = max((line for line in self.starts[mutant.file] if line <= mutant.line), default=1)
        names = reach.tests_for(mutant, self.known, first)
        what = {"verdict": "survived", "tests": len(names)}
        for number, name in enumerate(names):
            patience = 30 + 10 * self.known[name]["seconds"]
            how, _ = harness.run(self.test_for(name, worker.out / "minrnn"), worker.out, patience, cpus)
            if how != "passed":
                what = {"verdict": "caught", "by": name, "how": how, "tests": number + 1}
                break
        else:
            lines = self.texts[mutant.file].split("\n")
            about = lines[mutant.line - 1] + lines[max(0, first - 2)]  # the line, and the head of its function
            leak = self.leaks.find(self, names, worker, cpus) if FREES.search(about) else None
            if leak:
                what = {"verdict": "caught", "by": leak, "how": "leaked", "tests": len(names)}
        return {**what, "seconds": round(time.monotonic() - began, 1)}


class Leaks:
    """Runs tests under LeakSanitizer, which gcc brings along; those that are clean on the unchanged program count."""

    def __init__(self, folder):
        found = subprocess.run(["gcc", "-print-file-name=liblsan.so"], capture_output=True, text=True).stdout.strip()
        self.library = found if os.path.isabs(found) else None
        self.folder, self.clean = folder, {}

    def passes(self, trial, name, folder, patience, cpus):
        """Whether a test passes with the library of a folder. A script gets a wrapper of the command to test, so that
        the shell itself is not watched."""
        wrapper = folder / "minrnn-watched"
        wrapper.write_text(f'#!/bin/sh\nLD_PRELOAD={self.library} exec {folder}/minrnn "$@"\n')
        wrapper.chmod(0o755)
        watched = {"LOCPATH": ""} if name.startswith("cli_") else {"LOCPATH": "", "LD_PRELOAD": self.library}
        return harness.run(trial.test_for(name, wrapper), folder, patience, cpus, watched, None)[0] == "passed"

    def find(self, trial, names, worker, cpus):
        """The first test that leaks with the worker's library and not without, or None."""
        for name in names if self.library else ():
            patience = 60 + 20 * trial.known[name]["seconds"]
            if self.passes(trial, name, worker.out, patience, cpus):
                continue
            if name not in self.clean:
                self.clean[name] = self.passes(trial, name, self.folder, patience, cpus)
            if self.clean[name]:
                return name
        return None


def work_off(queue, trial, worker, cpus):
    while (mutant := queue.take()) is not None:
        what = {"verdict": "stillborn"}
        try:
            what = trial.try_mutant(mutant, worker, cpus)
            trial.results.add(mutant, **what)
        finally:
            counted = queue.done(what["verdict"] not in NOT_COUNTED)
        if what["verdict"] not in NOT_COUNTED:
            how = f"by {what['by']} ({what['how']})" if what["verdict"] == "caught" else f"{what['tests']} tests"
            say(f"{counted}/{queue.count} {mutant.id} {mutant.file}:{mutant.line} {mutant.operator}: "
                f"{what['verdict']} {how}, {what['seconds']} s")


def summary(mutants, count, results, argued):
    """The verdict over the first `count` mutants that count; whether enough were caught."""
    entries = [results.known[m.id] for m in mutants if m.id in results.known]
    entries = [entry for entry in entries if entry["verdict"] not in NOT_COUNTED][:count]
    survivors = [entry for entry in entries if entry["verdict"] == "survived"]
    equivalent = [entry for entry in survivors if entry["id"] in argued]
    survivors = [entry for entry in survivors if entry["id"] not in argued]
    for entry in survivors:
        say(f"\nsurvived: {entry['id']} {entry['file']}:{entry['line']} ({entry['tests']} tests ran it)")
        say(entry["diff"])
    for entry in entries:
        if entry["id"] in argued and entry["verdict"] == "caught":
            say(f"caught by {entry['by']}, although tests/mutants-equivalent.txt calls it equivalent: {entry['id']}")
    total = len(entries) - len(equivalent)
    caught = total - len(survivors)
    say(f"\ncaught {caught} of {total} (equivalent: {len(equivalent)})")
    return total > 0 and caught >= 0.95 * total


def prepare(arguments):
    """Builds, measures what tests reach, and gives what a trial needs."""
    work = arguments.work.resolve()
    copy, folder, counting = work / "tree", work / "build", work / "counting"
    digest, stamp = workshop.digest_of(ROOT), work / "digest"
    reached = work / "reach.json"
    work.mkdir(parents=True, exist_ok=True)
    harness.tidy(work / "tmp")
    if not stamp.exists() or stamp.read_text() != digest:
        stamp.unlink(missing_ok=True)
        reached.unlink(missing_ok=True)
        workshop.snapshot(ROOT, copy)
    say("building twice: as it is, and counting lines …")
    workshop.build(copy, folder, arguments.jobs)
    workshop.build(copy, counting, arguments.jobs, "-DMINRNN_COVERAGE=ON")
    stamp.write_text(digest)
    say("which tests reach which lines …")
    known = reach.measure(folder, counting, copy, arguments.jobs, reached, arguments.tests, say)
    known = {name: what for name, what in known.items() if re.search(arguments.tests, name)}
    for name, what in known.items():
        if what["verdict"] != "passed":
            say(f"not used: {name} ({what['verdict']} on the unchanged program)")
    builder = workshop.Builder(copy, folder)
    texts = {name: (copy / name).read_text() for name in sources(copy) if name in builder.compile}
    return builder, known, texts, Results(work / "results.jsonl", digest, arguments.keep)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=ROOT / "build-mutants")
    parser.add_argument("--keep", action="store_true", help="keep what the tests of earlier trees caught")
    parser.add_argument("--only", metavar="ID", nargs="+", default=[], help="these mutants alone")
    parser.add_argument("--tests", metavar="REGEX", default="", help="run only the tests whose name has this in it")
    parser.add_argument("files", nargs="*", metavar="FILE.c")
    arguments = parser.parse_args()
    builder, known, texts, results = prepare(arguments)
    for name in arguments.files:
        if name not in texts:
            raise SystemExit(f"mutants: {name}: not one of the files that are mutated")
    every = [m for name, text in texts.items() for m in operators.mutants_of(name, text, arguments.seed)]
    mutants = operators.choose(every)
    if arguments.files or arguments.only:
        mutants = [m for m in every if m.file in arguments.files or m.id in arguments.only]
    count = len(mutants) if arguments.files or arguments.only else arguments.count
    queue, trial = Queue(mutants, count, results), Trial(builder, known, results, texts)
    processors, threads = sorted(os.sched_getaffinity(0)), []
    for number in range(arguments.jobs):
        cpus = {processors[(number + k) % len(processors)] for k in range(2)}
        worker = workshop.Worker(number, builder.folder.parent / f"worker-{number}", builder)
        threads.append(threading.Thread(target=work_off, args=(queue, trial, worker, cpus), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()
    sys.exit(0 if summary(mutants, count, results, equivalents(ROOT / "tests/mutants-equivalent.txt")) else 1)


if __name__ == "__main__":
    main()
