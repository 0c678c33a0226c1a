#!/usr/bin/env bash
# Makes what cli_compat.sh compares with: run folders stopped half way, and all that is computed from them.
#
#   MINRNN_DATA=… tests/compat/make.sh path/to/minrnn OUT
#
# OUT gets text.txt, retrieval/, runs/ and expected/. What is committed was made by the command as of commit 4a3825d
# (gcc 12, x86-64), on a machine with AVX-512 and the pictures of CIFAR-10; made again, times in the logs and how long
# these are will differ, and nothing else. Do not regenerate it with a later command: that gives up the promise that
# older runs continue with the same bits. If it must be, say why in the commit. A key that a later version adds to files
# or recipes is allowed in replay.py (NEW_KEYS) instead.
set -eu
[ $# -eq 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
minrnn=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
[ -e "${MINRNN_DATA:-}/cifar10/gray.bin" ] || {
    echo "set MINRNN_DATA to the folder that has cifar10/gray.bin"
    exit 1
}
data=$(realpath "$MINRNN_DATA")
mkdir -p "$2" && cd "$2"
rm -rf runs expected retrieval
mkdir -p runs expected retrieval

# Numbers of our own: what `random` draws may change with the version of Python.
python3 - <<'PYTHON'
state = 1
def below(n):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % n

stock = "the then other one on a nest sea tea near naïve 東 → 😀 rain or iron".split()
with open("text.txt", "w", encoding="utf-8", newline="\n") as out:
    for i in range(620):
        out.write(stock[below(len(stock))] + ("\n" if i % 9 == 8 else " "))

letters = ["abcd", "cdef", "efab"] # do both documents use the same ones?
def document(k):
    return "".join(letters[k][below(4)] for _ in range(5 + below(20)))
for name, pairs in (("train", 40), ("eval", 12), ("test", 12)):
    with open(f"retrieval/new_aan_pairs.{name}.tsv", "w", encoding="utf-8", newline="\n") as out:
        for i in range(pairs):
            a = below(3)
            b = a if i % 2 else (a + 1 + below(2)) % 3
            out.write(f"{i % 2}.0\tid{a}\tid{b}\t{document(a)}\t{document(b)}\n")
PYTHON

# Plain C makes the folders: then any machine can make them again.
for name in $(python3 "$here/replay.py" names); do
    python3 "$here/replay.py" half "$minrnn" scalar "$name" "$data" .
    rm -f runs/"$name"/{.lock,last.safetensors,curve.svg}
done
python3 "$here/replay.py" record "$minrnn" "$data" .
