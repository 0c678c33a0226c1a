#!/usr/bin/env bash
# The measurements of the paper on this machine, with PyTorch's forms of the models beside ours; on a CPU length by length in turn, because
# its speed varies.
# usage: scripts/efficiency.sh DIR [cpu|cuda] [T…]        docs/results/efficiency/cpu, say; T: those that PyTorch is measured at
# MINRNN names the command, PYTHON one that has PyTorch, CELL_SECONDS what one cell may take (20). The machine should do nothing else.
set -eu
[ $# -ge 1 ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
minrnn=${MINRNN:-$here/../build/minrnn} python=${PYTHON:-python3} out=$1 device=${2:-cuda} limit=${CELL_SECONDS:-20}
shift $(($# > 1 ? 2 : 1))
[ $# -gt 0 ] || set -- 64 128 256 512 1024 2048 4096
"$python" -c "import torch" 2>/dev/null || { echo "efficiency.sh: $python has no PyTorch; name one that has by PYTHON, or run \`minrnn reproduce efficiency inference parameters\`" >&2; exit 1; }
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
"$minrnn" reproduce efficiency inference parameters --device "$device" --out "$out" --cell-seconds "$limit" >/dev/null
rm -rf "$out/runs"
