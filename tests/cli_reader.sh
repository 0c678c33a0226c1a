#!/usr/bin/env bash
# The command against tests/reader.py, which was written from docs/format.md alone: both score the same text with the
# same model files. usage: cli_reader.sh MINRNN
set -euo pipefail

minrnn=$(realpath "${1:?usage: cli_reader.sh MINRNN}")
reader=$(dirname "$(realpath "$0")")/reader.py

python=
for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import numpy' 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
    echo "skipped: no python3 with numpy here: docs/format.md was not tested" >&2
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

for n in {1..30}; do
    printf 'Über die Brücke %d: naïve café — ∑x² ≤ ½, 日本語 😀.\n\tthe quick brown fox, Straße %d!\n' "$n" $((7 * n % 31))
done > train.txt
tac train.txt | head -n 12 > score.txt

# A copy of a model whose residual stream is so small that the eps of every norm shows.
cat > quieten.py <<'PYTHON'
import json, re, sys
import numpy as np
content = bytearray(open(sys.argv[1], "rb").read())
data_start = 8 + int.from_bytes(content[:8], "little")
for name, entry in json.loads(content[8:data_start]).items():
    if re.fullmatch(r"embed\.weight|.*\.(down|point)\.(weight|bias)", name):
        begin, end = (data_start + offset for offset in entry["data_offsets"])
        content[begin:end] = (np.frombuffer(content[begin:end], "<f4") * np.float32(1e-3)).tobytes()
open(sys.argv[2], "wb").write(content)
PYTHON

# Exits 0 only when every number of the two agrees; a NaN agrees with nothing.
cat > compare.py <<'PYTHON'
import json, sys
name, tolerance = sys.argv[3], float(sys.argv[4])
expected, actual = (json.load(open(path)) for path in sys.argv[1:3])
same_length = (expected["tokens"] == actual["tokens"]
               and len(expected["logprobs"]) == len(actual["logprobs"]) == actual["tokens"] - 1)
pairs = [*zip(expected["logprobs"], actual["logprobs"]), (expected["nats_per_token"], actual["nats_per_token"])]
# NaN is the worst
worst = max((abs(a - b) for a, b in pairs), key=lambda difference: (difference != difference, difference))
agree = same_length and worst <= tolerance
print(f"{'ok  ' if agree else 'FAIL'} {name}: largest difference {worst:.1e}, allowed {tolerance:.0e}")
sys.exit(not agree)
PYTHON

failures=0
check() { # NAME TOLERANCE-OF-PARALLEL FLAG…
    local name=$1 parallel_tolerance=$2 model mode tolerance
    shift 2
    "$minrnn" train text --data train.txt --out "$name" --device cpu --threads 1 --quiet --dim 24 --layers 2 \
        --steps 30 --batch 4 --context 32 --lr 0.01 --warmup 0 --dropout 0 "$@" > /dev/null
    "$python" quieten.py "$name/model.safetensors" "$name/quiet.safetensors"
    for model in model quiet; do
        "$python" "$reader" "$name/$model.safetensors" score.txt > expected.json
        for mode in parallel step chunk=7; do
            tolerance=1e-5
            if [ $mode = parallel ]; then tolerance=$parallel_tolerance; fi
            "$minrnn" score "$name/$model.safetensors" score.txt --device cpu --threads 1 --per-token --json \
                --mode $mode > actual.json
            "$python" compare.py expected.json actual.json "$name, $model, $mode" $tolerance ||
                failures=$((failures + 1))
        done
    done
}

# the forms of other projects' models
check forms      1e-5 --mixer minlstm --h0 zero --conv 7 --mlp 0 --mlp-width 29 --mlp-gate geglu --gelu erf \
    --mixer-bias no --norm-eps 1e-4 --width 31 --tie-embeddings yes --vocab bytes
check erf        1e-5 --mixer mingru --conv 3 --conv-place residual --mlp 2 --gelu erf --norm layer --norm-eps 0.01 \
    --vocab chars
check swiglu     1e-5 --mixer mamba --mixer-conv 6 --dt-rank 5 --conv 1 --mlp 2 --mlp-gate swiglu --mlp-bias no \
    --mixer-bias no --width 37 --vocab chars
check unbiased   1e-5 --mixer attention --mixer-bias no --mlp 1 --mlp-gate geglu --conv 16 --vocab chars
# scan = log rounds worse, the more the longer the span that it is computed over at once
check plain      1e-5 --mixer mingru --candidate positive --scan linear --h0 zero --conv 0 --mlp 0 --norm rms \
    --vocab chars
check inside     1e-5 --mixer mingru --candidate tanh --scan linear --h0 learned --conv 4 --conv-place inside --mlp 2 \
    --norm layer \
    --vocab bytes --expansion 3 --head-bias yes
check log        2e-4 --mixer mingru --candidate positive --scan log --h0 zero --conv 4 --conv-place residual --mlp 0 \
    --norm layer \
    --vocab bytes --expansion 1
check log-lstm   2e-4 --mixer minlstm --normalize-gates yes --candidate positive --scan log --h0 learned --conv 4 \
    --conv-place residual \
    --mlp 3 --norm rms --vocab chars
check unnormal   1e-5 --mixer minlstm --normalize-gates no --candidate linear --scan linear --h0 learned --conv 4 \
    --conv-place inside \
    --mlp 0 --norm rms --vocab chars
check normalised 1e-5 --mixer minlstm --normalize-gates yes --candidate positive --scan linear --h0 learned --conv 0 \
    --mlp 2 \
    --norm layer --vocab bytes
check none       1e-5 --mixer minlstm --normalize-gates no --candidate linear --scan linear --h0 zero --conv 4 --mlp 2 \
    --norm none --vocab bytes
check signed     1e-5 --mixer mingru --transition signed --candidate tanh --h0 learned --conv 4 --mlp 2 --norm rms \
    --vocab chars
check signed-n   1e-5 --mixer minlstm --transition signed --normalize-gates yes --candidate positive --h0 learned \
    --conv 0 --mlp 0 --norm layer --vocab bytes
check signed-raw 1e-5 --mixer minlstm --transition signed --normalize-gates no --candidate linear --h0 zero --conv 0 \
    --mlp 2 --norm rms --vocab chars
check gru        1e-5 --mixer gru --h0 learned --conv 4 --conv-place inside --mlp 2 --norm rms --vocab chars
check gru-after  1e-5 --mixer gru --gru-reset after --h0 zero --conv 0 --mlp 0 --norm layer --vocab bytes
check lstm       1e-5 --mixer lstm --h0 learned --conv 0 --mlp 2 --norm rms --vocab chars --gate-init forget-bias=1 \
    --head-bias yes
check rotary     1e-5 --mixer attention --conv 0 --mlp 2 --norm rms --vocab chars --heads 3
check learned    1e-5 --mixer attention --positions learned --window 9 --conv 4 --conv-place inside --mlp 0 \
    --norm layer --vocab bytes --heads 2
check nowhere    1e-5 --mixer attention --positions none --window 1000 --conv 4 --conv-place residual --mlp 2 \
    --norm rms --vocab chars
check mamba      1e-5 --mixer mamba --conv 0 --mlp 0 --norm rms --vocab chars
check mamba-few  1e-5 --mixer mamba --states 5 --expansion 3 --conv 4 --conv-place inside --mlp 2 --norm layer \
    --vocab bytes

if [ $failures -gt 0 ]; then
    echo "$failures comparisons failed"
    exit 1
fi
