#!/usr/bin/env bash
# Trains a minGRU on selective copying (recipes/demo.ini) and shows that it solves the task, on sequences that it has
# not seen. Fails if the accuracy is below 99 %.
# The run is in out/demo, or in the first free one of out/demo-2, out/demo-3, …
# usage: scripts/demo.sh [path of the minrnn command]
set -eu
cd "$(dirname "$0")/.."
minrnn=${1:-build/minrnn}
out=out/demo
for ((i = 2; ; i++)); do # what is there may be somebody's: a run that was continued, or stopped
    [ -e "$out" ] || break
    out=out/demo-$i
done
started=$SECONDS
"$minrnn" train demo --out "$out"
seconds=$((SECONDS - started))

echo
score=$("$minrnn" eval "$out/model.safetensors" --examples 2)
echo "$score"
accuracy=$(sed -n 's/.*accuracy \([0-9.]*\) %.*/\1/p' <<<"$score")
if ! awk -v a="${accuracy:-0}" 'BEGIN { exit !(a >= 99) }'; then
    echo "demo: not solved: accuracy ${accuracy:-unknown} %, 99 % expected" >&2
    exit 1
fi

cat <<TXT

Solved: accuracy $accuracy % on new sequences, trained in $seconds s.
  learning curve   $out/curve.svg
  the model        $minrnn info $out/model.safetensors
  longer input     $minrnn eval $out/model.safetensors --length 1000
  your own text    $minrnn train text --data FILE --out out/text
TXT
