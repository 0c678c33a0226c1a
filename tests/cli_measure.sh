#!/usr/bin/env bash
# minrnn reproduce efficiency, inference, parameters: small versions of them, and bench with every mixer.
source "$(dirname "$0")/cli_support.bash"

models="{'minGRU', 'minLSTM', 'GRU', 'LSTM', 'Mamba', 'attention'}"
valid_svg() { python3 -c 'import sys, xml.dom.minidom; [xml.dom.minidom.parse(f) for f in sys.argv[1:]]' "$@"; }

# ---- parameters: the paper's percentages come out of real models' tables
done_by "$minrnn" reproduce parameters --out r --device cpu
check "no empty folder of runs" [ ! -e r/runs ]
percents() { json "[math.floor(r['percent'] + 0.5) for r in d['rows'] if r['row'] == '$1'
        and r['column'].startswith('cell')] == $2" r/parameters.json; }
check "minGRU's share of GRU" percents 'minGRU / GRU' '[33, 22, 17, 13]'
check "minLSTM's share of LSTM" percents 'minLSTM / LSTM' '[38, 25, 19, 15]'
check "a whole model has further parameters" json \
    "all(44 < r['percent'] < 46 for r in d['rows'] if r['column'] == 'model, expansion 1')" r/parameters.json
check "the paper's beside ours" grep -qF "| minLSTM / LSTM, the paper's | 38 | 25 | 19 | 15 |" r/parameters.md
check "the page is printed" grep -qF "| minGRU / GRU, the cell's projections | 33.3 | 22.2 | 16.7 | 13.3 |" out

# ---- efficiency: what takes too long is left out and says so, until there is time for it
positive="all(r[k] > 0 and math.isfinite(r[k]) for k in ('ms', 'best_ms', 'repetitions', 'bytes'))"
done_by "$minrnn" reproduce efficiency --quick --out r --device cpu --cell-seconds 0.000001
done_by "$minrnn" reproduce efficiency --quick --out r --device cpu --cell-seconds 0.000001
check "which is remembered" grep -q '^0 done' err
check "the first length is always there" json \
    "{r['row'] for r in d['rows'] if r.get('ms') and r['length'] == 16} == $models" r/efficiency.json
check "the second says why not" json "{r['row'] for r in d['rows'] if 's a step' in r.get('note', '')} == $models" \
    r/efficiency.json
check "so does the page" grep -qE '^- LSTM, B=4 T=32 and longer: not run, about .* s a step$' r/efficiency.md
done_by "$minrnn" reproduce efficiency --quick --out r --device cpu
check "with time it is measured" grep -q '^6 done, 6 were there' err
check "numbers for every model and length" json \
    "sorted((r['row'], r['length']) for r in d['rows'] if 'note' not in r and $positive) == sorted((m, T) \
        for m in $models for T in (16, 32))" r/efficiency.json
check "a longer sequence takes more memory" json \
    "all(a['bytes'] < b['bytes'] for a in d['rows'] for b in d['rows'] if 'ms' in a and 'ms' in b \
        and a['row'] == b['row'] and a['length'] < b['length'])" r/efficiency.json
check "no excuse where there is a number" test "$(grep -c 'not run' r/efficiency.md)" = 0
check "the paper's memory" grep -qE '^\| Mamba over minGRU \| 56 % more \| [0-9.]+ % (more|less) \| 32 \|$' \
    r/efficiency.md

# ---- PyTorch's rows, merged in
cat >peers.json <<'JSON'
{"experiment": "efficiency", "rows": [
  {"experiment": "efficiency", "row": "PyTorch GRU loop", "column": "B=4 T=32", "settings": "", "kind": "cpu",
   "dtype": "f32", "device": "x", "torch": "9.9", "length": 32, "ms": 1e9}
]}
JSON
done_by "$minrnn" reproduce --merge peers.json --out r
check "a peer's time" grep -qE '^\| PyTorch GRU loop \| – \| 1000M \|$|^\| PyTorch GRU loop \| – \| 1G \|$' \
    r/efficiency.md
check "minGRU's speed-up over it" grep -qE '^\| minGRU over PyTorch GRU loop \| – \| [0-9.]+[kMG]?× \|$' r/efficiency.md
check "and GRU's own" grep -qE '^\| GRU over PyTorch GRU loop \| – \| [0-9.]+[kMG]?× \|$' r/efficiency.md

# ---- inference
done_by "$minrnn" reproduce inference --quick --out r --device cpu --json
check "JSON on demand" json "len(d) == 24" out
check "both ways for every model" json \
    "sorted({(r['row'], r['column'].split()[0], r['length']) for r in d['rows'] if r['ms'] > 0 \
        and math.isfinite(r['ms'])}) == sorted((m, w, T) for m in $models for w in ('tokens', 'context') \
        for T in (8, 16))" r/inference.json
check "the paper's comparison" grep -qF '| minGRU against Mamba, with context | 8 | 6.6 % faster | – |' r/inference.md
done_by "$minrnn" reproduce inference --quick --out r --device cpu
check "nothing is measured twice" grep -q '^0 done' err
check "pictures are XML" valid_svg r/*.svg
check "a picture of each" test -s r/efficiency.svg -a -s r/efficiency-memory.svg -a -s r/inference-2.svg \
    -a -s r/parameters.svg

# ---- bench
done_by "$minrnn" bench memory --quick --mixer gru --device cpu --json
check "one model's memory, measured" json \
    "[r['name'] for r in d if r['bench'] == 'memory' and r['bytes'] > 1e8] == ['copy gru d=64->384 B=8 T=512']" out
refused 1 'mixer = rnn: must be one of all, mingru' "$minrnn" bench step --mixer rnn

finish
