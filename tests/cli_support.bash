# What the command-line tests share. Sourced with the path of the command as $1: afterwards $minrnn is the command, the
# current folder is an empty one that goes away at the end, and `finish` ends the test.
#
# MINRNN_TEST_SLOW=1 reduces repetitions, for builds that run many times slower; sanitizers are noticed by themselves.
set -u
[ $# -ge 1 ] || { echo "usage: $0 path/to/minrnn"; exit 2; }
minrnn=$(realpath "$1")
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
varied=$tests/later_wins.sh # the command, but later flags replace earlier ones
export minrnn_command=$minrnn
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work" || exit 1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }

sanitized=0
grep -qaE '__(asan|tsan)_init' "$minrnn" && sanitized=1
slow=${MINRNN_TEST_SLOW:-$sanitized}
checks=0 failures=0

fail() {
    failures=$((failures + 1))
    printf 'FAIL (line %s): %s\n' "${BASH_LINENO[${#BASH_LINENO[@]} - 2]}" "$*"
}

# check WHAT COMMAND…: the command must succeed.
check() {
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" || fail "$what"
}

# left_out WHAT: WHY. Says that the test passes without a part of it; scripts/test.sh repeats it at the end.
left_out() { echo "left out: $*"; }

finish() {
    echo "$checks checks, $failures failures"
    [ "$checks" -gt 0 ] && [ "$failures" -eq 0 ]
    exit
}

# run COMMAND…: stdout to ./out, stderr to ./err, status to $status.
run() {
    "$@" >out 2>err
    status=$?
}

# done_by COMMAND…: must end with status 0. Its output is in ./out and ./err.
done_by() {
    run "$@"
    checks=$((checks + 1))
    [ $status -eq 0 ] || fail "status $status: $* $(printf '\n'; tail -n 5 err)"
}

# refused STATUS PATTERN COMMAND…: must end with the status and one line on stderr that matches.
refused() {
    local expected=$1 pattern=$2
    shift 2
    run "$@"
    checks=$((checks + 1))
    if [ $status -ne "$expected" ]; then fail "status $status, not $expected: $* $(printf '\n'; tail -n 5 err)"
    elif [ "$(wc -l <err)" -ne 1 ] || [ -n "$(tail -c 1 err)" ]; then
        fail "not one line on stderr: $* $(printf '\n'; cat err)"
    elif ! grep -qaE -- "$pattern" err; then fail "stderr does not match /$pattern/: $* $(printf '\n'; cat err)"
    fi
}

same_files() { cmp -s "$1" "$2"; }
sum_of() { sha256sum "$1" | cut -d ' ' -f 1; }

# Every file below a folder with its checksum.
snapshot() { (cd "$1" && find . -type f ! -name .lock | sort | xargs -r -d '\n' sha256sum); }

# A log without what depends on the clock.
timeless() { sed 's/,"tokens_per_s":[^,}]*//; s/,"seconds":[^,}]*//' "$1"; }

# json EXPRESSION FILE: the expression over d, the parsed file, must be true. NaN and Infinity are no JSON.
json() {
    python3 - "$1" "$2" <<'PYTHON'
import json, math, sys
def refuse(word): raise ValueError(word + " is not JSON")
d = json.loads(open(sys.argv[2], "rb").read().decode("utf-8"), parse_constant=refuse)
ok = eval("(" + sys.argv[1] + ")", {"d": d, "math": math})
if not ok: print("false:", sys.argv[1], "in", str(d)[:300])
sys.exit(not ok)
PYTHON
}

# make_text FILE WORDS SEED: lines of words, some with characters of 2, 3 and 4 bytes.
make_text() {
    python3 - "$@" <<'PYTHON'
import random, sys
path, words, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
stock = "the quick brown fox jumps over a lazy dog while naïve café über 東京 → 😀 waits and then goes home".split()
with open(path, "w", encoding="utf-8", newline="\n") as out:
    for i in range(words):
        out.write(random.choice(stock) + ("\n" if i % 9 == 8 else " "))
PYTHON
}

# The smallest model of a text that has all parts.
tiny=(--dim 16 --layers 2 --expansion 2 --mlp 2 --context 32 --batch 8)
