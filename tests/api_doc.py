#!/usr/bin/env python3
"""Takes every C program from docs/api.md, compiles it against the header and the library, and runs it.

usage: api_doc.py SOURCE LIBRARY-FOLDER COMPILER [FLAG…]

A program begins with a comment that names it and, where it takes one, its argument: MODEL is a file that the program
`train` of the page has written, so that it runs first.
"""
import os
import re
import subprocess
import sys
import tempfile

# What each program must print; a page without one of them, or with one more, is not this page.
PRINTS = {
    "train": r"after 100 steps: 0\.\d+ nats, 100 % right",
    "stream": r"bcdefghijklmnopqrstu",
    "generate": r"abcdefghijklmnopqrstuvwxyzabcdef",
    "blob": r"\d+ bytes; the same: 1",
    "regression": r"answers around \d+ are off by 0\.[0-3]\d",
    "classify": r"(9[5-9]|100) % of 32 sequences right",
    "forecast": r"a day ahead, never off by more than 0\.[0-9] degrees",
    "huber": r"step 300: loss 0\.[12]\d, and 0\.5 where the series is 0\.5",
    "policy": r"(9\d|100) % of the rewards",
    "tensors": r"mingru: (\d+) of \1 parameters seen\nwritten by me",
    "options": r"minrnn [\d.]+: cpu \w*, 1 thread per call\nnew model: \d+ parameters\n1 blocks held\n0 blocks left",
    "scan": r"h 1\.8750 4, db\[0\] 0\.1250 1",
    "cell": r"h -?\d+\.\d+, dW -?\d+\.\d+",
}


def main():
    source, folder, compiler = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(os.path.join(source, "docs/api.md"), encoding="utf-8") as page:
        programs = re.findall(r"^```c\n(.*?)^```", page.read(), re.M | re.S)
    named = {re.match(r"/\* (\w+)", text).group(1): text for text in programs}
    if set(named) != set(PRINTS) or len(programs) != len(PRINTS):
        print(f"docs/api.md has the programs {sorted(named)}, not {sorted(PRINTS)}")
        return 1
    failures = 0
    with tempfile.TemporaryDirectory() as work:
        for name in PRINTS:
            path = os.path.join(work, name)
            with open(path + ".c", "w", encoding="utf-8") as file:
                file.write(named[name])
            subprocess.run([*compiler, "-std=c11", "-Wall", "-Wextra", "-Werror",
                            "-I" + os.path.join(source, "include"), path + ".c",
                            "-L" + folder, "-lminrnn", "-lm", "-Wl,-rpath," + folder, "-o", path], check=True)
            arguments = ["model.safetensors"] if "MODEL" in named[name].split("\n")[0] else []
            done = subprocess.run([path, *arguments], cwd=work, stdout=subprocess.PIPE, encoding="utf-8", check=False)
            good = done.returncode == 0 and re.fullmatch(PRINTS[name], done.stdout.strip())
            failures += not good
            if not good:
                print(f"{name}: status {done.returncode}, printed {done.stdout!r}, wanted /{PRINTS[name]}/")
    print(f"{len(PRINTS) - failures} of {len(PRINTS)} programs of docs/api.md run as they say")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
