#!/usr/bin/env python3
"""Disables one check of the sources at a time and says which ones no test misses.

    tests/mutate.py BUILD REGEX FILE.c …      e.g. tests/mutate.py build-mutants 'json|safetensors' src/core/json.c

A check is a line `if (…) return refuse(…)`, `… return mr_fail(…)` or of a function whose name begins with fail_. BUILD is a folder
that CMake has configured for a copy of the tree: the copy is changed and put back, so never give it the tree that you work in.
REGEX chooses the tests, as in `ctest -R`. Exit status 1 when a check survived."""
import re
import subprocess
import sys
from pathlib import Path

CHECK = re.compile(r"^(\s*)if \((.*)\)(\s+)(return (?:refuse|mr_fail|fail_\w+)\(.*)$")


def tree_of(build):
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("CMAKE_HOME_DIRECTORY:"):
            return Path(line.split("=", 1)[1])
    sys.exit(f"{build}: not a folder that CMake has configured")


def run(command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def targets_of(build, regex):
    listed = subprocess.run(["ctest", "--test-dir", str(build), "-N", "-R", regex], capture_output=True, text=True).stdout
    names = re.findall(r"Test +#\d+: (\S+)", listed)
    return sorted({name if name.startswith("test_") else "minrnn" for name in names}) or sys.exit(f"no test is called {regex}")


def caught(build, regex):
    """Whether the build or a test fails."""
    if run(["cmake", "--build", str(build), "--parallel", "2", "--target", *targets_of(build, regex)]):
        return True
    return run(["ctest", "--test-dir", str(build), "-R", regex, "--stop-on-failure", "--timeout", "120"]) != 0


def main():
    build, regex, names = Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    tree = tree_of(build)
    if caught(build, regex):
        sys.exit("the tests fail before anything is disabled")
    total = survived = 0
    for name in names:
        path = tree / name
        whole = path.read_text()
        lines = whole.splitlines(keepends=True)
        for i, line in enumerate(lines):
            match = CHECK.match(line)
            if not match:
                continue
            space, condition, gap, rest = match.groups()
            path.write_text("".join(lines[:i]) + f"{space}if (0 && ({condition})){gap}{rest}\n" + "".join(lines[i + 1:]))
            total += 1
            if not caught(build, regex):
                survived += 1
                print(f"survived: {name}:{i + 1}: {line.strip()}", flush=True)
            path.write_text(whole)
    print(f"{total - survived} of {total} disabled checks were caught")
    sys.exit(survived > 0)


if __name__ == "__main__":
    main()
