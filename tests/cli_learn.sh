#!/usr/bin/env bash
# Small versions of the paper's experiments, by `minrnn reproduce`: each must be better than chance by the margin that
# stands beside it. (ListOps, Retrieval and G-Image: cli_lra.sh. Other languages: cli_chomsky.sh, slow_chomsky.sh.)
source "$(dirname "$0")/cli_support.bash"
[ "$slow" = 1 ] && { echo "skipped: too slow in this build"; exit 77; }

# learns NAME CONDITION: NAME.ini is carried out; the condition is one on s, the scores by "ROW/COLUMN", and
# t, the steps to the target.
learns() {
    done_by "$minrnn" reproduce "$1.ini" --device cpu --threads 1 --quiet --out results
    checks=$((checks + 1))
    python3 - "$1" "$2" <<'PYTHON' || fail "$1: not learnt"
import json, sys
rows = json.load(open(f"results/{sys.argv[1]}.json"))["rows"]
s, t = ({f"{r['row']}/{r['column']}": r.get(key) for r in rows} for key in ("score", "target_step"))
good = eval(f"({sys.argv[2]})")
if not good: print(s, t)
sys.exit(not good)
PYTHON
}

# ---- selective copying: one of 14 symbols, 3 times; chance is 0.07
cat >copying.ini <<'INI'
[experiment]
summary = selective copying, small
recipe = selective-copy
score = accuracy
[ours]
start-length = 0
length = 16
tokens = 3
layers = 2
dim = 32
expansion = 2
batch = 32
accumulate = 1
lr = 1e-2
warmup-share = 0.05
steps = 600
eval-every = 600
eval-batches = 8
[row minGRU]
mixer = mingru
[row minLSTM]
mixer = minlstm
INI
learns copying 's["minGRU/accuracy"] > 0.6 and s["minLSTM/accuracy"] > 0.6'

# ---- the start of the forget gate: a blind guess has a loss of ln 14 = 2.64; half of it is reached from any start, and
# the target of 1.6 not later from a larger bias
cat >bias.ini <<'INI'
[experiment]
summary = the start of the forget gate, small
recipe = selective-copy-paper
score = loss
target-loss = 1.6
[ours]
mixer = minlstm
h0 = zero
length = 48
tokens = 3
layers = 1
dim = 32
batch = 32
accumulate = 1
lr = 5e-3
steps = 300
eval-every = 50
eval-batches = 4
[row bias 0]
gate-init = forget-bias=0
[row bias 4]
gate-init = forget-bias=4
[row time scales]
gate-init = timescales
INI
learns bias 'max(s.values()) < 1.32 and all(t.values()) and t["bias 4/test loss"] <= t["bias 0/test loss"]'

# ---- languages, on strings up to half as long again as those of training; chance is the
# likeliest answer for the length
cat >languages.ini <<'INI'
[experiment]
summary = the Chomsky hierarchy, small
score = accuracy
[ours]
train-length = 8
eval-from = 8
eval-to = 12
eval-lengths = 8
eval-samples = 64
dim = 32
batch = 32
lr = 5e-3
steps = 400
eval-every = 200
[ours minLSTM/missing_duplicate]
expansion = 4
batch = 64
lr = 1e-2
steps = 800
[column bucket_sort]
recipe = chomsky-bucket_sort
[column missing_duplicate]
recipe = chomsky-missing_duplicate
[column cycle_nav]
recipe = chomsky-cycle_nav
[column even_pairs]
recipe = chomsky-even_pairs
[column majority]
recipe = chomsky-majority
[column parity]
recipe = chomsky-parity
[row minLSTM]
columns = bucket_sort, missing_duplicate, cycle_nav, even_pairs, majority
[row GRU]
columns = parity
mixer = gru
INI
learns languages 's["minLSTM/bucket_sort"] > 0.46        # chance: 0.36
    and s["minLSTM/missing_duplicate"] > 0.18   # 0.11
    and s["minLSTM/cycle_nav"] > 0.40           # 0.20
    and s["minLSTM/even_pairs"] > 0.90          # 0.50
    and s["minLSTM/majority"] > 0.28            # 0.08
    and s["GRU/parity"] > 0.90                  # 0.50
'

# ---- parity: a sign that flips with every one, at any length; positive transitions can only guess
cat >signs.ini <<'INI'
[experiment]
summary = parity, small
recipe = chomsky-parity
score = accuracy
[ours]
dim = 32
expansion = 1
conv = 0
mlp = 2
h0 = learned
train-length = 12
eval-lengths = 20
eval-samples = 32
batch = 64
lr = 5e-3
warmup = 10
steps = 200
eval-every = 200
[row minGRU]
mixer = mingru
transition = signed
[row minLSTM]
mixer = minlstm
transition = signed
[row positive]
mixer = mingru
INI
learns signs 's["minGRU/accuracy"] == s["minLSTM/accuracy"] == 1 and s["positive/accuracy"] < 0.6'

# ---- Shakespeare: a blind guess has ln 65 = 4.17, one that knows how often each letter comes 3.3, one that
# knows the letter before 2.5
if [ -n "${MINRNN_DATA:-}" ] && [ -e "$MINRNN_DATA/tinyshakespeare.txt" ]; then
    cat >letters.ini <<'INI'
[experiment]
summary = Shakespeare, small
recipe = shakespeare
score = loss
[ours]
layers = 1
dim = 64
context = 32
batch = 16
dropout = 0
lr = 1e-2
steps = 200
eval-every = 200
[row minGRU]
mixer = mingru
[row minLSTM]
mixer = minlstm
INI
    learns letters 'max(s.values()) < 2.4'
else
    left_out "Shakespeare: set MINRNN_DATA to the folder that has tinyshakespeare.txt"
fi

finish
