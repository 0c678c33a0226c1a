#!/usr/bin/env bash
# minrnn bench lm: a tiny model's training step measured, its fields, sizes that flags change, and what is refused.
source "$(dirname "$0")/cli_support.bash"

lm() { "$minrnn" bench lm --size tiny --device cpu "$@"; }

# ---- fields
done_by lm --json --steps 3
check "one row" json "len(d) == 1 and d[0]['bench'] == 'lm' and d[0]['size'] == 'tiny'" out
check "its shape" json "[d[0][k] for k in ('layers', 'dim', 'vocab', 'batch', 'context', 'steps', 'mixer', 'dtype')] \
    == [2, 64, 512, 2, 64, 3, 'mingru', 'f32']" out
check "times and rates" json "all(d[0][k] > 0 and math.isfinite(d[0][k]) for k in ('ms', 'best_ms', 'tokens_per_s', \
    'gflops', 'matrix_gflops', 'share', 'loss', 'threads'))" out
check "the best is no later than the median" json "d[0]['best_ms'] <= d[0]['ms']" out
check "tokens a second" json "abs(d[0]['tokens_per_s'] * d[0]['ms'] / 1e3 / 128 - 1) < 1e-3" out
check "six operations for each parameter and token" json \
    "abs(d[0]['gflops'] * 1e9 / (6 * d[0]['parameters'] * d[0]['tokens_per_s']) - 1) < 1e-3" out
check "the share is of the product's rate" json \
    "abs(d[0]['share'] * d[0]['matrix_gflops'] / d[0]['gflops'] - 1) < 1e-2" out
check "parameters, gradients, moments and more are in memory" json "d[0]['memory_bytes'] > 16 * d[0]['parameters']" out
check "random tokens are not learned" json "5.5 < d[0]['loss'] < 7.5" out
parameters=$(python3 -c "import json; print(json.load(open('out'))[0]['parameters'])")

# ---- flags
done_by lm --json --steps 1 --tie-embeddings no
check "an embedding of its own does not count" json "d[0]['parameters'] == $parameters + 512 * 64 \
    and d[0]['multiplied_parameters'] == $parameters" out
done_by lm --json --steps 1 --layers 3 --dim 32 --batch 3 --context 16 --vocab 100
check "other sizes" json "[d[0][k] for k in ('layers', 'dim', 'batch', 'context', 'vocab')] == [3, 32, 3, 16, 100]" out
for mixer in minlstm attention mamba gru; do
    done_by lm --json --steps 1 --mixer $mixer
    check "$mixer" json "d[0]['mixer'] == '$mixer' and d[0]['loss'] > 0" out
done
for how in none blocks chunks; do
    done_by lm --json --steps 1 --recompute $how
    check "recompute = $how" json "d[0]['recompute'] == '$how'" out
done
done_by lm --json --steps 1 --context 65536 --batch 1 --recompute chunks
check "a long context in little memory" json "d[0]['memory_bytes'] < 150e6" out
done_by lm --json --steps 1 --dtype bf16
check "bf16" json "d[0]['dtype'] == 'bf16'" out
done_by lm --json --steps 1 --vocab 50257 --batch 1 --context 1024 --dim 16
check "no buffer for the scores of all tokens" json "d[0]['memory_bytes'] < 4 * 50257 * 1024" out
done_by "$minrnn" bench lm --layers 1 --dim 16 --vocab 99 --context 32 --steps 1 --device cpu --json
check "on a CPU a large size has a batch of 1" json "d[0]['size'] == '124m' and d[0]['batch'] == 1" out

# ---- text and help
done_by lm --steps 1
for word in model batch device parameters memory step tokens/s share; do
    check "a line for $word" grep -q "^$word " out
done
check "nothing else is printed" [ ! -s err ]
done_by "$minrnn" bench lm --help
check "examples" grep -q '^  minrnn bench lm --size 350m --device cuda --json$' out
done_by "$minrnn" help bench lm
check "the same by help" grep -q '^usage: minrnn bench lm' out
done_by "$minrnn" bench --help
check "bench names it" grep -q 'minrnn bench lm --help' out

# ---- refusals
refused 1 'size = huge: must be one of tiny, 124m, 350m, 1b' "$minrnn" bench lm --size huge
refused 1 'mixer = rnn: must be one of mingru' lm --mixer rnn
refused 1 'steps = 0' lm --steps 0
refused 1 'steps = many' lm --steps many
refused 1 'batch = -1' lm --batch -1
refused 1 'dim = 1000000' lm --dim 1000000
refused 1 'outputs = 1: a classifier needs two classes' lm --vocab 1
refused 1 'batch = 1048576, context = 16777216: too large' lm --batch 1048576 --context 16777216
refused 1 'device' "$minrnn" bench lm --device nothing
refused 2 'frob' lm --frob
refused 2 'gemm' "$minrnn" bench lm gemm

finish
