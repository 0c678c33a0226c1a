#!/usr/bin/env bash
# What the command prints, against tests/transcript.txt: a session with its output, read like a terminal's.
# After a change that is meant: MINRNN_GOLDEN=write bash tests/cli_transcript.sh build/minrnn, and look at the diff.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
make_text other.txt 300 2
cat >sweep.ini <<'INI'
[experiment]
summary = copying by learning rate and size
recipe = selective-copy
score = accuracy
paper = -
[ours]
start-length = 0
length = 8
tokens = 2
symbols = 3
eval-batches = 1
batch = 8
dim = 8
layers = 1
expansion = 2
steps = 6
eval-every = 3
[row slow]
lr = 1e-4
[row fast]
lr = 1e-2
[column small]
[column wide]
dim = 12
INI
cat >play.py <<'PYTHON'
"""play.py MINRNN TRANSCRIPT: runs every line that begins with `$ ` and compares what it prints, stdout and stderr,
with the lines below, which are indented. Times, rates and late digits depend on the machine and are masked."""
import difflib, os, re, subprocess, sys
minrnn, path = sys.argv[1:3]
MASKS = [
    (re.escape(os.path.realpath(os.getcwd())), "WORK"), (re.escape(os.path.dirname(minrnn)) + "/", ""),
    (r"(?m)^(evaluating.*|.*tokens/s.*)\n", ""),  # lines that only a slow machine prints
    (r"\b\d+:\d\d\b", "M:SS"), (r"\bcpu: .*scalar", "cpu: …"), (r'"(tokens_per_s|seconds)": ?[\d.e+-]+', r'"\1":N'),
    (r"\b\d+(\.\d+)? ?(s|ms|seconds?|minutes?)\b", "N s"), (r"\b[0-9a-f]{64}\b", "SHA256"),
    (r"\b(cuda|curl|cblas|hdf5|mujoco): .*", r"\1: …"), (r"\d+:\d\d left", "N left"),
    (r"(\d\.\d\d)\d+(e-\d+)?", r"\1…"),
    (r"\d\.\d+e-\d+", "N"), (r"20\d\d-\d\d-\d\d", "DATE"),
    (r"[^|,]*, \d+ threads?, scalar", " MACHINE"),
]
def mask(text):
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    return text
def output(command):
    shell = f"minrnn() {{ '{minrnn}' \"$@\"; }}; {command}"
    done = subprocess.run(["bash", "-c", shell], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    text = mask(done.stdout.decode("utf-8", "replace"))
    if text and not text.endswith("\n"):
        text += "\n"
    return text + (f"[exit {done.returncode}]\n" if done.returncode else "")
wanted = open(path, encoding="utf-8").read()
got = ""
for line in wanted.splitlines(keepends=True):
    if line.startswith("$ "):
        shown = output(line[2:].strip()).splitlines(keepends=True)
        got += line + "".join("  " + one if one != "\n" else one for one in shown)
    elif line.startswith("#"):
        got += "\n" * bool(got) + line
if os.environ.get("MINRNN_GOLDEN") == "write":
    open(path, "w", encoding="utf-8").write(got)
elif got != wanted:
    sys.stdout.writelines(difflib.unified_diff(wanted.splitlines(True), got.splitlines(True), "transcript.txt", "now"))
    sys.exit(1)
PYTHON
export MINRNN_DATA=/nonexistent XDG_CACHE_HOME=$work/cache LC_ALL=C.UTF-8 COLUMNS=80 MINRNN_ISA=scalar
check "it prints something else (MINRNN_GOLDEN=write writes tests/transcript.txt again)" \
    python3 play.py "$minrnn" "$tests/transcript.txt"
finish
