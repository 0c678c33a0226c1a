#!/usr/bin/env bash
# scripts/paper.py on made-up results: the right number beside each of the paper's, seeds together, reasons where there
# is none. cli_paper_verdict.sh has what is said about the numbers, cli_claims.sh the pages of this project.
source "$(dirname "$0")/cli_support.bash"
paper() { python3 "$tests/../scripts/paper.py" "$@"; }

mkdir results
python3 - <<'PYTHON'
import json
tasks = ["bucket_sort", "missing_duplicate", "cycle_nav", "even_pairs", "majority", "majority_count"]
def row(experiment, label, column, seed, score, cell=None, **more):
    made = dict(experiment=experiment, profile="ours", row=label, column=column, settings="recipe=x", kind="cuda",
                dtype="f32", device="a GPU",
                date="2026-01-01T00:00:00Z", seed=seed, score=score, steps=1000, best_step=900 + seed, seconds=100.0)
    made.update(more)
    if cell: made["paper_cell"] = cell
    if score is None: del made["score"]
    return made
def write(experiment, rows):
    json.dump({"experiment": experiment, "rows": rows}, open(f"results/{experiment}.json", "w"))
gru = "selective_copy_layers | 3 | minGRU"
write("selective-copy", [row("selective-copy", "minGRU", "3 layers", s, 99 + s / 10, gru) for s in (1, 2, 3)] + [
    row("selective-copy", "minGRU", "3 layers", 1, 12, gru, profile="quick"),
    row("selective-copy", "minGRU", "3 layers", 1, 34, gru, profile="as-paper", settings="recipe=y"),
    row("selective-copy", "Mamba", "3 layers", 1, 97, "selective_copy_comparison | Mamba S6 | accuracy"),
    row("selective-copy", "minLSTM", "1 layer", 1, None, "selective_copy_layers | 1 | minLSTM", failed="step 7"),
    row("selective-copy", "GRU", "3 layers", 1, 88.5)])
write("shakespeare", [row("shakespeare", "minGRU", "test loss", 1, 1.5, "shakespeare | minGRU | test_loss")])
write("chomsky", [row("chomsky", "minLSTM", t, 1, 0.9, f"chomsky | minLSTM | {t}") for t in tasks])
write("listops",
      [row("listops", "minLSTM" + more, "accuracy", 1, score, f"listops_ablation | minLSTM{more} | accuracy", date=date)
       for more, score, date in ((" + conv + MLP", 0.45, "2026-01-01T00:00:00Z"),
                                 (" + conv", 0.4, "2026-01-02T00:00:00Z"), ("", 0.3, "2026-01-03T00:00:00Z"))])
write("image", [row("image", "minLSTM", "accuracy", 1, 0.45, "lra | minLSTM | g_image")])
def time(experiment, label, column, **more):
    return {k: v for k, v in dict(row(experiment, label, column, 0, None), **more).items() if k != "seed"}
write("efficiency",
      [time("efficiency", m, f"B=64 T={t}", ms=ms * t, bytes=b)
       for m, ms, b in (("minGRU", 1, 30), ("GRU", 200, 10), ("minLSTM", 2, 20), ("LSTM", 100, 10), ("Mamba", 1, 60))
       for t in (512, 4096)]
      + [time("efficiency", "minGRU", "B=64 T=512", ms=1e9, kind="cpu", device="a CPU")])
write("inference",
      [time("inference", m, f"{way} B={b} T={t}", ms=ms * t)
       for m, ms in (("minGRU", 1), ("GRU", 1.5), ("minLSTM", 2), ("Mamba", 1.25)) for way in ("tokens", "context")
       for b in (8, 64) for t in (16, 32)])
write("parameters",
      [time("parameters", "minGRU / GRU", f"cell, expansion {e}", percent=p) for e, p in ((1, 33.3), (2, 22.2))])
open("results/shakespeare.svg", "w").write("<svg/>")
open("results/other.json", "w").write("[1]")
PYTHON
done_by paper results out_1
cat >cell.py <<'PYTHON'
import json, sys
cells = {(c["table"], c["row"], c["column"]): c for c in json.load(open(sys.argv[1] + "/paper.json"))["cells"]}
ok = eval("(" + sys.argv[2] + ")",
          {"c": lambda *key: cells[key], "o": lambda *key: cells[key]["ours"] or {}, "cells": cells})
if not ok: print("false:", sys.argv[2])
sys.exit(not ok)
PYTHON
cell() { python3 cell.py "$@"; }
check "every number of the paper" cell out_1 'len(cells) == 204'
check "mean and ±" cell out_1 \
    'abs(o("selective_copy_layers", "3", "minGRU")["mean"] - 99.2) < 1e-9
        and abs(o("selective_copy_layers", "3", "minGRU")["std"] - 0.1) < 1e-9'
check "a cell that is printed twice" cell out_1 \
    'o("selective_copy_comparison", "minGRU minGRU", "accuracy")["seeds"] == 3'
check "the right Mamba" cell out_1 \
    'o("selective_copy_comparison", "Mamba S6", "accuracy")["mean"] == 97
        and not o("selective_copy_comparison", "Mamba S4", "accuracy")'
check "steps are the best step" cell out_1 \
    'o("shakespeare", "minGRU", "steps")["mean"] == 901 and o("shakespeare", "minGRU", "test_loss")["mean"] == 1.5'
check "rows whose names begin alike" cell out_1 \
    'o("listops_ablation", "minLSTM + conv + MLP", "accuracy")["mean"] == 0.45
        and o("listops_ablation", "minLSTM + conv", "accuracy")["mean"] == 0.4'
check "ListOps in the other table" cell out_1 'o("lra", "minLSTM", "listops")["mean"] == 0.45'
check "times and speed-ups" cell out_1 \
    'o("efficiency", "minGRU 512", "ms")["mean"] == 512
     and o("efficiency", "minGRU 4096", "speedup_over_traditional")["mean"] == 200
     and o("efficiency", "minLSTM 512", "speedup_over_traditional")["mean"] == 50'
check "memory" cell out_1 \
    'o("memory", "minGRU, minLSTM over GRU, LSTM", "1")["mean"] == 150
        and o("memory", "Mamba over minGRU", "1")["mean"] == 100'
check "faster and slower" cell out_1 \
    'o("inference", "minGRU faster than GRU 64", "percent")["mean"] == 50
        and abs(o("inference", "minLSTM slower than Mamba, with context 8", "percent")["mean"] - 37.5) < 1e-9
        and not o("inference", "minLSTM faster than LSTM 64", "percent")'
check "parameters" cell out_1 \
    'o("parameters", "minGRU / GRU", "2")["mean"] == 22.2 and not o("parameters", "minGRU / GRU", "3")'
check "no average of a part" cell out_1 'not o("lra", "minLSTM", "average_with_chomsky")'
check "reasons" \
    cell out_1 'all(c["why"]
        for c in cells.values() if not c["ours"]) and c("d4rl", "Hopper-M", "minGRU")["why"] == "waiting"
        and "quotes" in c("d4rl", "Hopper-M", "DS4")["why"] and "average" in c("d4rl", "Average", "minGRU")["why"]'
check "more reasons" cell out_1 '("quotes" in c("chomsky", "xLSTM", "majority")["why"]
    and c("chomsky", "GRU", "majority")["why"] == "waiting"
    and "data get lra" in c("lra", "Mamba", "retrieval")["why"])'
python3 - <<'PYTHON'
import json
d = json.load(open("results/image.json"))
d["rows"].append(dict(d["rows"][0], experiment="retrieval", row="minLSTM", paper_cell="lra | minLSTM | retrieval"))
json.dump(d, open("results/image.json", "w"))
PYTHON
done_by paper results out_2
check "the average of nine" cell out_2 \
    'abs(o("lra", "minLSTM", "average_with_chomsky")["mean"] - (6 * 0.9 + 3 * 0.45) / 9) < 1e-9'
only='`minrnn reproduce shakespeare --only "=minGRU/test loss"'
check "a number beside the paper's" grep -q "^| minGRU | test_loss | ours | 1.548 | 1.5 |" out_2/paper.md
check "and how it was made" grep -q "^| minGRU | test_loss | ours | .* | 1:40 | a GPU, f32 | $only\` |$" out_2/paper.md
check "mean and ± on the page" grep -q '^| 3 | minGRU | ours | 99.5 ± 0.2 | 99.2 ± 0.1 |' out_2/paper.md
check "diverged" grep -q '^| 1 | minLSTM | ours | 37.6 ± 2 | diverged |' out_2/paper.md
check "beside the paper" grep -q '^| selective-copy | GRU | 3 layers | ours | 88.5 |' out_2/paper.md
check "the paper's settings have a line of their own" \
    grep -q "^| 3 | minGRU | the paper's | 99.5 ± 0.2 | 34 |" out_2/paper.md
check "and their command" \
    grep -q "^| 3 | minGRU | the paper's | .* --only \"=minGRU/3 layers\" --as-paper\` |$" out_2/paper.md
check "quick runs are left out" [ -z "$(grep -F '| 12 |' out_2/paper.md)" ]
check "what was not run takes one line per table" \
    [ "$(grep -c '^Not run, 24 of 60 numbers: .*HalfCheetah-M' out_2/paper.md)" -eq 1 ]
check "and no row" [ -z "$(grep -E '^\| (xLSTM|H3)' out_2/paper.md)" ]
check "which names it" \
    grep -q '^Not run, 7 of 10 numbers: models .* from others (7: H3 Hyena, .*).$' out_1/paper.md
check "charts stand there once" [ "$(grep -c '!\[shakespeare\]' out_2/paper.md)" -eq 1 ]
check "figures" grep -qF '![shakespeare](../results/shakespeare.svg)' out_2/paper.md

# ---- runs that are there twice, cut short, outdated or of other seeds
python3 - <<'PYTHON'
import json, os
for folder in ("more", "seven", "scored"): os.makedirs(folder)
d = json.load(open("results/shakespeare.json"))
real = d["rows"][0]
trials = [dict(real, seed=s, score=4.4, steps=1, settings="recipe=x steps=1", asked_steps=1,
               date="2026-02-01T00:00:00Z") for s in (1, 2)]
old = [dict(real, seed=s, score=9.9, outdated=1) for s in (3, 4)]
json.dump(dict(d, rows=[real, *trials, *old]), open("more/shakespeare.json", "w"))
json.dump(dict(d, rows=[dict(real, seed=s, side_by_side=max(1, s // 2))
        for s in (7, 2, 3)]), open("seven/shakespeare.json", "w"))
says = [dict(real, seed=s, score=1.6, measure="loss", scale=1) for s in (2, 3)]
json.dump(dict(d, rows=[real, *says, dict(real, seed=4, score=9.9, measure="accuracy", scale=1)]),
          open("scored/shakespeare.json", "w"))
PYTHON
done_by paper results:more out_5
mkdir trial
python3 - <<'PYTHON'
import json
d = json.load(open("more/shakespeare.json"))
json.dump(dict(d, rows=[r for r in d["rows"] if "asked_steps" in r]), open("trial/shakespeare.json", "w"))
PYTHON
done_by paper trial out_8
check "a run in two folders is one" cell out_5 'o("shakespeare", "minGRU", "test_loss")["seeds"] == 1'
check "a trial does not take the place of a run" cell out_5 \
    'o("shakespeare", "minGRU", "test_loss")["mean"] == 1.5
     and c("shakespeare", "minGRU", "test_loss")["command"].startswith("minrnn reproduce shakespeare --only")'
check "it stands beside" grep -q '^| shakespeare | minGRU | test loss | ours | 4.4 ± 0 |' out_5/paper.md
check "with its steps" grep -q \
    '^| shakespeare | minGRU | test loss | ours | .* --seeds 2 --steps 1` |$' out_5/paper.md
check "nor of one that is not there" cell out_8 'c("shakespeare", "minGRU", "test_loss")["why"] == "waiting"'
check "outdated rows are left out" [ -z "$(grep -F '9.9' out_5/paper.md)" ]
done_by paper seven out_6
mkdir other_data
python3 - <<'PYTHON'
import json
d = json.load(open("seven/shakespeare.json"))
for row, data in zip(d["rows"], ("aaaa", "bbbb", "aaaa")): row["data"] = data
json.dump(d, open("other_data/shakespeare.json", "w"))
PYTHON
done_by paper other_data out_7
check "seeds of other data have no common mean" \
    cell out_7 '[o("shakespeare", "minGRU", "test_loss")[k] for k in ("seed_list", "data")] == [[3, 7], "aaaa"]'
check "how many ran at once is a whole number" \
    grep -q '^| minGRU | test_loss | ours | .* | 1:40, up to 3 at once |' out_6/paper.md
check "which seeds" cell out_6 'o("shakespeare", "minGRU", "test_loss")["seed_list"] == [2, 3, 7]'
check "and how to run them" grep -q "$only --seed 2 --seeds 2\`, $only --seed 7\`" out_6/paper.md
done_by paper scored out_7
check "a row that does not say how it was scored goes with those that do" cell out_7 \
    'o("shakespeare", "minGRU", "test_loss")["seed_list"] == [1, 2, 3]'
check "one scored in another way does not" grep -q '^| shakespeare | minGRU | test loss | ours | 9.9 |' out_7/paper.md

# ---- what is wrong
before=$(snapshot out_5)
mkdir broken
for rows in '[{}]' 5 '[null]' "$(sed 's/.*"rows": //; s/"score": [^,]*/"score": "abc"/; s/}$//' results/image.json)" \
    "$(sed 's/.*"rows": //; s/"score": [^,]*/"score": 1e999/; s/}$//' results/image.json)" \
    "$(sed 's/.*"rows": //; s/"seed": [^,]*/"seed": 1, "strings": "many"/; s/}$//' results/image.json)" \
    "$(sed 's/.*"rows": //; s/"paper_cell": "lra |/"paper_cell": "/; s/}$//' results/image.json)"; do
    printf '{"experiment": "image", "rows": %s}' "$rows" >broken/image.json
    refused 1 'broken/image.json: has rows that are no results' paper broken out_5
done
check "the pages stay" [ "$before" = "$(snapshot out_5)" ]
: >file
refused 1 'file: cannot be read or written' paper results file
refused 1 'nowhere: is no folder' paper nowhere out_5
run paper
check "wrong usage" [ $status -eq 2 ]
mkdir torn
head -c 100 results/image.json >torn/image.json
refused 1 'torn/image.json: cannot be read' paper torn out_3
refused 1 'has no PyTorch' env PYTHON=false MINRNN="$minrnn" "$tests/../scripts/efficiency.sh" out_4 cpu 64
finish
