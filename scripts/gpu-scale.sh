#!/usr/bin/env bash
# Large models, long sequences and ranks on a machine with an NVIDIA GPU: the new ops against the reference, tokens a
# second at the sizes of docs/results/scale.md, contexts up to a million tokens, and 1, 2 and 4 ranks on one card by MPI
# and, with NCCL 2.30 or newer (MINRNN_NCCL: the folder of its libnccl.so.2), by NCCL. Eight minutes, by estimate.
# usage: scripts/gpu-scale.sh [FOLDER]      results in FOLDER (gpu-scale)
# MINRNN names the command; without it, the tree is built first. MINRNN_PYTHON: a Python with PyTorch, whose step is
# measured beside (python3; left out where there is none).
set -u
cd "$(dirname "$0")/.." || exit 1
mkdir -p "${1:-gpu-scale}" && out=$(cd "${1:-gpu-scale}" && pwd) || exit 1
[ -n "${MINRNN:-}" ] || { make && MINRNN=build/minrnn; } || exit 1
failures=0
step() { # NAME SECONDS COMMAND…    its output goes to NAME.txt, too
    local name=$1 limit=$2
    shift 2
    echo "== $name: $*"
    timeout "$limit" "$@" 2>&1 | tee "$out/$name.txt" | tail -n 12
    [ "${PIPESTATUS[0]}" -eq 0 ] || { failures=$((failures + 1)); echo "FAILED: $name"; }
}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/machine.txt"
"$MINRNN" --version | tee -a "$out/machine.txt"

for dtype in f32 bf16; do
    step "check-$dtype" 120 "$MINRNN" check --device cuda --dtype $dtype --quick
done
for test in test_slices test_sequence test_recompute; do
    [ -x build/tests/$test ] && step "$test" 60 env MINRNN_TEST_GPU_ONLY=1 build/tests/$test
done

lm() { # NAME [flags…]
    local name=$1
    shift
    step "lm-$name" 90 "$MINRNN" bench lm --device cuda --json "$@"
}
for vocab in 256 50257; do
    lm "124m-$vocab" --size 124m --vocab $vocab
    lm "124m-attention-$vocab" --size 124m --mixer attention --vocab $vocab
done
lm 124m-minlstm --size 124m --mixer minlstm --vocab 256
lm 350m --size 350m --vocab 256
lm 1b --size 1b --vocab 256
for context in 65536 262144 1048576; do
    lm "context-$context" --layers 6 --dim 512 --vocab 256 --batch 1 --context $context --recompute chunks --steps 3
done

python=${MINRNN_PYTHON:-python3}
if "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    step torch-lm 180 "$python" scripts/torch_lm.py
fi

command -v mpirun >/dev/null || { echo "no mpirun: ranks are left out"; echo "$failures failures in $out"; exit; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat docs/*.md >"$work/text.txt"
ranks() { # ENGINE N [variables…]
    local engine=$1 n=$2
    shift 2
    step "$engine-$n" 60 env "$@" mpirun -n "$n" --bind-to none "$MINRNN" train text --data "$work/text.txt" \
        --out "$work/$engine$n" --device cuda --ranks "$engine" --dtype bf16 --dim 256 --layers 4 --mlp 4 --batch 8 \
        --context 256 --accumulate 4 --steps 50
}
step one 60 "$MINRNN" train text --data "$work/text.txt" --out "$work/one" --device cuda --dtype bf16 --dim 256 \
    --layers 4 --mlp 4 --batch 8 --context 256 --accumulate 4 --steps 50
for n in 1 2 4; do
    ranks mpi $n MINRNN=
    [ -z "${MINRNN_NCCL:-}" ] || ranks nccl $n LD_LIBRARY_PATH="$MINRNN_NCCL:${LD_LIBRARY_PATH:-}" \
        NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=1
done
sha256sum "$work"/*/last.safetensors | tee "$out/ranks.txt"
[ "$(cut -d ' ' -f 1 "$out/ranks.txt" | sort -u | wc -l)" -eq 1 ] ||
    { failures=$((failures + 1)); echo "FAILED: bits"; }
for n in 1 2; do
    step "mpi-sequence-$n" 60 mpirun -n $n --bind-to none "$MINRNN" train text --data "$work/text.txt" \
        --out "$work/cut$n" --device cuda --ranks mpi --tf32 no --dim 256 --layers 4 --batch 8 --context 1024 \
        --steps 20 --sequence-ranks $n
    grep -o '"loss":[^,]*' "$work/cut$n/log.jsonl" | tail -n 1 | tee -a "$out/sequence.txt"
done
echo "$failures failures; results in $out"
[ "$failures" -eq 0 ]
