#!/usr/bin/env bash
# One machine with several GPUs: a rank for each, and NCCL between them. usage: cards.sh TEXT OUT [CARDS]
set -eu
text=$1 out=$2 cards=${3:-$(nvidia-smi -L | wc -l)}
flags=(train text --data "$text" --out "$out" --resume --device cuda --ranks nccl --dtype bf16
    --dim 768 --layers 12 --context 1024 --batch 32 --accumulate "$((2 * cards))" --shard)
if command -v mpirun >/dev/null; then exec mpirun -n "$cards" --bind-to none minrnn "${flags[@]}"; fi
exec torchrun --no-python --nproc-per-node "$cards" minrnn "${flags[@]}" # without MPI: ranks meet at MASTER_ADDR
