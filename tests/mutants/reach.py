"""Which tests run which lines: runs every test once as it is, and once against a build that counts lines (gcov)."""
import json
import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants import harness

SLOW = 900  # seconds after which a test of the unchanged program is given up


def lines_run(counts, root):
    """{file: [lines]} of the .gcda files under `counts`, which lie at their objects' own paths."""
    found = {}
    files = sorted(Path(counts).rglob("*.gcda"))
    for file in files:
        notes = Path("/") / file.relative_to(counts).with_suffix(".gcno")
        if notes.exists():
            os.symlink(notes, file.with_suffix(".gcno"))
    for i in range(0, len(files), 50):
        command = ["gcov", "--json-format", "--stdout", *map(str, files[i:i + 50])]
        for text in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
            for entry in json.loads(text)["files"]:
                name = os.path.relpath(os.path.join(root, entry["file"]), root)
                if name.endswith(".c") and name.startswith(("app/", "src/")):
                    ran = [line["line_number"] for line in entry["lines"] if line["count"]]
                    if ran:
                        found[name] = sorted({*found.get(name, []), *ran})
    return found


def measure_one(plain, counting, library, counting_library, root, cpus):
    """What is known of a test: whether it passes on the unchanged program, how long it takes, what it runs."""
    verdict, seconds = harness.run(plain, library, SLOW, cpus)
    if verdict != "passed":
        return {"verdict": verdict, "seconds": seconds, "lines": {}}
    counts = tempfile.mkdtemp()
    try:
        where = {"GCOV_PREFIX": counts, "GCOV_PREFIX_STRIP": "0"}
        counted, _ = harness.run(counting, counting_library, SLOW, cpus, where)
        lines = lines_run(counts, root)
    finally:
        shutil.rmtree(counts, ignore_errors=True)
    # A test that counting disturbs may have stopped early: it is taken to reach whatever the others do.
    return {"verdict": verdict, "seconds": seconds, "lines": lines, "anything": counted != "passed"}


def measure(build, counting, root, jobs, path, wanted, say):
    """{test: what is known}, kept in the file at `path` as it grows."""
    known = json.loads(path.read_text()) if path.exists() else {}
    counting_tests = {test.name: test for test in harness.tests_of(counting)}
    tests = [test for test in harness.tests_of(build) if test.name not in known and re.search(wanted, test.name)]
    tests.sort(key=lambda test: not test.name.startswith("cli_"))  # the long ones first
    processors = sorted(os.sched_getaffinity(0))

    def one(numbered):
        number, test = numbered
        cpus = {processors[(number + k) % len(processors)] for k in range(2)}
        return test.name, measure_one(test, counting_tests[test.name], build, counting, root, cpus)

    with ThreadPoolExecutor(jobs) as pool:
        for name, what in pool.map(one, enumerate(tests)):
            known[name] = what
            say(f"{name}: {what['verdict']}, {what['seconds']:.1f} s, {len(what['lines'])} files"
                + (" (disturbed by counting)" if what.get("anything") else ""))
            temporary = path.with_suffix(".new")
            temporary.write_text(json.dumps(known))
            temporary.replace(path)
    return known


def executable_line(lines, line):
    """The line that gcov counts a continued line under: the nearest before it that some test runs."""
    before = [known for known in lines if known <= line]
    return before[-1] if before else None


def tests_for(mutant, known, first_line_of_function):
    """The names of the tests that run a mutant's line, the most promising first."""
    everything = sorted({line for what in known.values() for line in what["lines"].get(mutant.file, [])})
    target = executable_line([n for n in everything if n >= first_line_of_function], mutant.line)
    stem = Path(mutant.file).stem
    chosen = []
    for name, what in known.items():
        if what["verdict"] != "passed":
            continue
        if what.get("anything") and everything or target is not None and target in what["lines"].get(mutant.file, []):
            about_it = stem in name or name.split("_", 1)[-1] in mutant.file
            chosen.append((what["seconds"] * (0.3 if about_it else 1), name))
    return [name for _, name in sorted(chosen)]
