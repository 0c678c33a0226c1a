#!/usr/bin/env bash
# Runs every fuzz target for some seconds, starting from the corpus of the repository, two at a time. Prints one line
# for each target at the end.
# usage: scripts/fuzz.sh BUILD SECONDS [TARGET…]       TARGET: model, recipe, text, import, command, d4rl
# Findings are in BUILD/findings; `BUILD/fuzz/fuzz_TARGET FILE` reproduces one. New inputs worth keeping go to
# BUILD/corpus.
set -u
build=$1 seconds=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
targets=("$@")
if [ $# -eq 0 ]; then
    targets=(model recipe text import command)
    [ ! -x "$build/fuzz/fuzz_d4rl" ] || targets+=(d4rl) # only where there is libhdf5
fi
mkdir -p "$build/findings" "$build/corpus"
before=$(find "$build/findings" -type f | wc -l)

fuzz() { # TARGET
    mkdir -p "$build/corpus/$1"
    "$build/fuzz/fuzz_$1" "$build/corpus/$1" "$root/fuzz/corpus/$1" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -malloc_limit_mb=512 -close_fd_mask=3 -print_final_stats=1 \
        -artifact_prefix="$build/findings/$1-" >"$build/fuzz_$1.log" 2>&1
    echo $? >"$build/fuzz_$1.status"
}

for target in "${targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "${MINRNN_FUZZ_JOBS:-2}" ]; do sleep 0.5; done
    fuzz "$target" &
done
wait

failed=0
for target in "${targets[@]}"; do
    log=$build/fuzz_$target.log status=$(cat "$build/fuzz_$target.status")
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    covered=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)
    verdict="no finding"
    [ "$status" -eq 0 ] || { failed=1 verdict="FOUND something, see $log"; }
    echo "fuzz $target: ${runs:-0} inputs in $seconds s, ${covered:-cov: 0} edges, $verdict"
done
found=$(($(find "$build/findings" -type f | wc -l) - before))
[ "$found" -eq 0 ] || { echo "$found new findings in $build/findings"; failed=1; }
exit $failed
