#!/usr/bin/env bash
# Checks a machine with an NVIDIA GPU: every op against the reference, the laws in fp32 and bf16, memory and race
# checkers, a training run against the CPU's, timings.
# usage: scripts/gpu-check.sh [check] [sanitize] [train] [bench]      without arguments: all of them
# MINRNN names the command; without it, the tree is built first.
set -u
cd "$(dirname "$0")/.."
if [ -z "${MINRNN:-}" ]; then
    make && cmake --build build --target tests --parallel "$(nproc)" || exit 1
    MINRNN=build/minrnn
fi
want=" ${*:-check sanitize train bench} "
failures=0
step() {
    echo "== $*"
    "$@" || { failures=$((failures + 1)); echo "FAILED: $*"; }
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
"$MINRNN" --version
if [[ $want == *" check "* ]]; then
    step "$MINRNN" check --device cuda --quick
    step "$MINRNN" check --device cuda --mutate --quiet
    step "$MINRNN" check --device cuda --dtype bf16 --quick
    step "$MINRNN" check --device cuda --dtype bf16 --mutate --quiet
    for test in laws model_laws gradients gradients_bf16 draw; do
        [ -x build/tests/test_$test ] && step env MINRNN_TEST_GPU_ONLY=1 build/tests/test_$test
    done
fi
if [[ $want == *" sanitize "* ]]; then
    for tool in memcheck racecheck initcheck synccheck; do
        for dtype in f32 bf16; do
            step compute-sanitizer --tool $tool --error-exitcode 1 --quiet \
                "$MINRNN" check --device cuda --dtype $dtype --cases 4 --quiet
        done
    done
fi
if [[ $want == *" train "* ]]; then
    out=$(mktemp -d)
    # a constant schedule, so that a run of 150 steps is the first half of one of 300
    common=(demo --tf32 no --schedule constant --eval-every 50 --quiet)
    for device in cpu cuda; do
        step "$MINRNN" train "${common[@]}" --device $device --steps 300 --out "$out/$device"
    done
    step "$MINRNN" train "${common[@]}" --device cuda --steps 150 --out "$out/half"
    step "$MINRNN" train --device cuda --steps 300 --resume --out "$out/half" --quiet
    step cmp "$out/cuda/last.safetensors" "$out/half/last.safetensors"
    rm -rf "$out"
fi
if [[ $want == *" bench "* ]]; then
    for dtype in f32 bf16; do
        step "$MINRNN" bench scan layer step decode memory --device cuda --dtype $dtype
    done
fi
echo "$failures failures"
[ $failures -eq 0 ]
