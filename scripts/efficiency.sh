#!/usr/bin/env bash
# Measures what the paper measures, on this machine, ours and PyTorch's versions of the same models. On a CPU, whose
# speed varies, they alternate length by length.
# usage: scripts/efficiency.sh DIR [cpu|cuda] [T…]    DIR: for example
# docs/results/efficiency/cpu; T: lengths for PyTorch
# MINRNN names the command, PYTHON a Python with PyTorch, CELL_SECONDS the limit for one cell (20). The machine should
# do nothing else.
set -eu
[ $# -ge 1 ] || { sed -n '2,6s/^# //p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
minrnn=${MINRNN:-$here/../build/minrnn} python=${PYTHON:-python3} out=$1 device=${2:-cuda} limit=${CELL_SECONDS:-20}
shift $(($# > 1 ? 2 : 1))
[ $# -gt 0 ] || set -- 64 128 256 512 1024 2048 4096
"$python" -c "import torch" 2>/dev/null || {
    echo "efficiency.sh: $python has no PyTorch; set PYTHON to one that has it," \
        "or run \`minrnn reproduce efficiency inference parameters\`" >&2
    exit 1
}
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
[ "$device" = cpu ] && turns=("$@") || turns=("$*")
for turn in "${turns[@]}"; do
    only="*T=$turn"
    [ "$device" = cpu ] || only="" # all lengths, one after another
    "$minrnn" reproduce efficiency --device "$device" --out "$out" --cell-seconds "$limit" --only "$only" >/dev/null
    "$python" "$here/torch_peers.py" --device "$device" --cell-seconds "$limit" $turn >"$rows"
    "$minrnn" reproduce --merge "$rows" --out "$out"
done
if [ "$device" = cuda ]; then # what else PyTorch has there: compiled forms, and cuDNN in bf16 beside ours in bf16
    "$python" "$here/torch_peers.py" --device cuda --cell-seconds "$limit" --compile 512 4096 >"$rows"
    "$minrnn" reproduce --merge "$rows" --out "$out"
    for T in 512 4096; do
        "$minrnn" reproduce efficiency --device cuda --dtype bf16 --out "$out" --cell-seconds "$limit" \
            --only "*T=$T" >/dev/null
    done
    "$python" "$here/torch_peers.py" --device cuda --cell-seconds "$limit" --dtype bf16 --only module 512 4096 >"$rows"
    "$minrnn" reproduce --merge "$rows" --out "$out"
fi
"$minrnn" reproduce efficiency inference parameters --device "$device" --out "$out" --cell-seconds "$limit" >/dev/null
rm -rf "$out/runs"
