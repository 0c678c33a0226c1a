#!/usr/bin/env bash
# Several ranks on one machine without a GPU. A step has four micro-batches: with 1, 2, 3 or 4 ranks the run is the same
# to the last bit. usage: laptop.sh TEXT OUT [RANKS]
set -eu
text=$1 out=$2 ranks=${3:-2}
cores=$(nproc)
exec mpirun -n "$ranks" --bind-to none \
    minrnn train text --data "$text" --out "$out" --resume \
    --batch 8 --accumulate 4 --threads $((cores > ranks ? cores / ranks : 1))
