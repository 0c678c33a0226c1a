#!/usr/bin/env bash
# What scripts/paper.py says about the numbers, on made-up rows: as good or not, learned or not, scaled accuracies, test
# sets, settings tried, and what waits for a run.
source "$(dirname "$0")/cli_support.bash"

# page NAME PYTHON…: runs scripts/paper.py on the rows that the Python lines put into `files`, into the folder NAME.
cat >made.py <<'PYTHON'
import json, os, sys
def row(experiment, label, column, seed, score, cell=None, **more):
    made = dict(experiment=experiment, profile="ours", row=label, column=column, settings="recipe=x", kind="cuda",
                dtype="f32", device="a GPU", date="2026-01-01T00:00:00Z", seed=seed, score=score, steps=1000,
                best_step=900, seconds=100.0, measure="accuracy", scale=1, test_set="a" * 16, strings=2000)
    made.update(more)
    if cell: made["paper_cell"] = cell
    return {key: value for key, value in made.items() if value is not None}
def seeds(scores, experiment, label, column, cell=None, **more):
    return [row(experiment, label, column, s, score, cell, **more) for s, score in enumerate(scores, 1)]
def chomsky(label, column, *scores, **more):
    paper = {"Transformer": "Llama", "minGRU": None}.get(label, label)
    cell = f"chomsky | {paper} | {column}" if paper and column != "parity" else None
    return seeds(scores, "chomsky", label, column, cell, **more)
def copying(label, *scores, **more):
    made = dict(scale=100, strings=12800)
    made.update(more)
    return seeds(scores, "selective-copy", label, "3 layers", f"selective_copy_layers | 3 | {label}", **made)
def shakespeare(label, *scores, **more):
    made = dict(measure="loss", strings=None, profile="as-paper")  # ours has no verdict
    made.update(more)
    return seeds(scores, "shakespeare", label, "test loss", f"shakespeare | {label} | test_loss", **made)
def listops(*scores, **more):
    return seeds(scores, "listops", "minLSTM + conv + MLP", "accuracy",
                 "listops_ablation | minLSTM + conv + MLP | accuracy", **more)
def tried(label, column, **settings):
    """Settings by name, each with its scores on validation."""
    return [dict(experiment="chomsky", row=label, column=column, setting=name, seed=s, score=score, settings=name,
                 profile="search", kind="cuda", dtype="f32")
            for name, scores in settings.items() for s, score in enumerate(scores, 1)]
SETS = [f"{env}-M{end}" for end in ("", "-R", "-E") for env in ("HalfCheetah", "Hopper", "Walker")]
def control(label, column, *scores, **more):
    made = dict(measure="return", strings=100, test_set=f"{SETS.index(column):016x}", data_made=0, data_score=40.5)
    made.update(more)
    return seeds(scores, "control", label, column, f"d4rl | {column} | {label}", **made)
files = {}
exec(sys.argv[2])
os.makedirs(sys.argv[1] + "_rows")
for name, rows in files.items():
    with open(f"{sys.argv[1]}_rows/{name}.json", "w") as file: json.dump({"experiment": name, "rows": rows}, file)
PYTHON
page() {
    python3 -S made.py "$1" "$2" || fail "rows of $1"
    done_by python3 "$tests/../scripts/paper.py" "$1_rows" "$1"
}
cat >cell.py <<'PYTHON'
import json, sys
read = json.load(open(sys.argv[1] + "/paper.json"))
cells = {(c["table"], c["row"], c["column"]): c for c in read["cells"] + read["added"]}
def v(*key): return (cells[key]["ours"] or {}).get("verdict")
names = {"c": lambda *key: cells[key], "o": lambda *key: cells[key]["ours"] or {}, "v": v, "cells": cells, "d": read}
names["near"] = lambda a, b: a is not None and abs(a - b) < 1e-9
ok = eval("(" + sys.argv[2] + ")", names)
if not ok: print("false:", sys.argv[2])
sys.exit(not ok)
PYTHON
cell() { python3 -S cell.py "$@"; }
line() { grep -qE -- "$2" "$1/paper.md"; }
no_line() { ! line "$@"; }

# ---- as good: better or worse by more than twice the combined error
# ListOps, paper .59 with p(1-p)/2000 on both sides: e = .0156, so .603 and .575 say nothing, .64 and .55 do.
page near 'files["listops"] = listops(.603, .604, .602)'
check "ListOps .603 against .59 says nothing" cell near \
    'v("listops_ablation", "minLSTM + conv + MLP", "accuracy") == "not distinguishable"'
check "its error" cell near 'near(o("listops_ablation", "minLSTM + conv + MLP", "accuracy")["error"],
    (.001 ** 2 / 3 + .603 * .397 / 2000 + .59 * .41 / 2000) ** .5)'
check "on the page" line near '^\| minLSTM \+ conv \+ MLP \| accuracy \| ours \| 0.59 \| 0.603 ± 0.001 .*\| not dist'
page below 'files["listops"] = listops(.575, .576, .574)'
check "nor does .575" cell below \
    'v("listops_ablation", "minLSTM + conv + MLP", "accuracy") == "not distinguishable"'
page good 'files["listops"] = listops(.64, .641, .639); files["shakespeare"] = (
    shakespeare("minGRU", 1.49, 1.50, 1.51) + shakespeare("minLSTM", 1.60, 1.61, 1.62)
    + shakespeare("Mamba", 1.57, 1.50, 1.60)); files["selective-copy"] = copying("minGRU", 99.2, 99.3, 99.1) + copying(
    "minLSTM", 99.9, 99.8, 99.9)'
check ".64 is better" cell good 'v("listops_ablation", "minLSTM + conv + MLP", "accuracy") == "yes"'
check "and so in the other table" cell good 'v("lra", "minLSTM", "listops") == "yes"'
page bad 'files["listops"] = listops(.55, .551, .549)'
check ".55 is worse" cell bad 'v("listops_ablation", "minLSTM + conv + MLP", "accuracy") == "no"'
check "a smaller loss is better" cell good 'v("shakespeare", "minGRU", "test_loss") == "yes"'
check "a larger one is worse" cell good 'v("shakespeare", "minLSTM", "test_loss") == "no"'
check "a loss has only its seeds" cell good 'near(o("shakespeare", "minGRU", "test_loss")["error"], .01 / 3 ** .5)'
check "and within them says nothing" cell good 'v("shakespeare", "Mamba", "test_loss") == "not distinguishable"'
check "steps have no verdict" cell good 'v("shakespeare", "minGRU", "steps") == ""'
check "the paper's own ± counts, in percent" cell good '
    v("selective_copy_layers", "3", "minGRU") == "not distinguishable"
    and near(o("selective_copy_layers", "3", "minGRU")["error"],
             (.1 ** 2 / 3 + .992 * .008 / 12800 * 100 ** 2 + .2 ** 2) ** .5)
    and v("selective_copy_layers", "3", "minLSTM") == "not distinguishable"'
page wild 'files["listops"] = listops(.50, .64, .80)'
check "seeds that differ widely say nothing" cell wild \
    'v("listops_ablation", "minLSTM + conv + MLP", "accuracy") == "not distinguishable"'

# ---- no verdict
page one 'files["listops"] = listops(.9); files["shakespeare"] = shakespeare("minGRU", 1.4)'
check "one seed" cell one 'v("listops_ablation", "minLSTM + conv + MLP", "accuracy") == "one seed"
    and v("shakespeare", "minGRU", "test_loss") == "one seed"'
page lost 'files["listops"] = listops(.9, .9, .9)
for r in files["listops"][2:]: del r["score"]; r["failed"] = "step 7"'
check "a seed that diverged is not forgotten" cell lost \
    'v("listops_ablation", "minLSTM + conv + MLP", "accuracy") == "1 of 3 diverged"'
page unknown 'files["listops"] = listops(.9, .9, .9, test_set=None); files["image"] = seeds(
    (.9, .9), "retrieval", "minLSTM", "accuracy", "lra | minLSTM | retrieval", strings=None)'
check "rows that do not name their test set" cell unknown \
    'v("listops_ablation", "minLSTM + conv + MLP", "accuracy") == "test set unknown"'
check "or not how many strings it has" cell unknown 'v("lra", "minLSTM", "retrieval") == "test set unknown"'
page quoted 'files["selective-copy"] = seeds((99.9, 99.9, 99.9), "selective-copy", "Mamba", "3 layers",
    "selective_copy_comparison | Mamba S6 | accuracy", scale=100)
files["image"] = [r for m, p in (("Mamba", "Mamba"), ("Transformer", "Llama"), ("minLSTM", "minLSTM")) for r in seeds(
    (.9, .9, .9), "image", m, "accuracy", f"lra | {p} | g_image")]
files["chomsky"] = chomsky("GRU", "cycle_nav", .999, .999) + chomsky("Transformer", "cycle_nav", .23, .24)'
check "numbers that the paper quotes" cell quoted '
    v("selective_copy_comparison", "Mamba S6", "accuracy") == "quoted"
    and v("lra", "Mamba", "g_image") == v("lra", "Llama", "g_image") == "quoted"
    and v("lra", "minLSTM", "g_image") == "settings compared on the test set"'
page text 'files["shakespeare"] = shakespeare("minGRU", 1.49, 1.50, 1.51, profile="ours")'
check "nor for those of a text" cell text \
    'v("shakespeare", "minGRU", "test_loss") == "settings compared on the test set"'
check "other generators" cell quoted 'v("chomsky", "GRU", "cycle_nav") == v("chomsky", "Llama", "cycle_nav")
    == "other generators"'

# ---- Chomsky: raw and scaled, minGRU beside the paper's minLSTM, parity beside nothing
page tasks 'files["chomsky"] = (chomsky("minLSTM", "bucket_sort", .95, .96, .97) + chomsky(
    "Transformer", "cycle_nav", .2289) + chomsky("minGRU", "cycle_nav", .85, .86, .87) + chomsky(
    "minGRU", "parity", .75, chance=.5, constant=.51) + chomsky("GRU", "majority", .77))'
check "scaled" cell tasks 'near(o("chomsky", "minLSTM", "bucket_sort")["scaled"], (.96 - .1) / .9)
    and near(o("chomsky", "Llama", "cycle_nav")["scaled"], (.2289 - .2) / .8)
    and near(o("chomsky", "GRU", "majority")["scaled"], (.77 - 1 / 63) / (1 - 1 / 63))
    and near(o("chomsky", "minGRU", "parity")["scaled"], .5)'
check "the paper's, raw and scaled" cell tasks 'near(c("chomsky", "minLSTM", "bucket_sort")["paper_scaled"], .84 / .9)
    and c("chomsky", "Llama", "cycle_nav")["paper_scaled"] == .04'
check "a scaled number never stands in the raw column" line tasks \
    '^\| Llama \(ours: Transformer\) \| cycle_nav \| ours \|  \| 0.2289 \|  \| 0.04 \| 0.0361 \|'
check "a raw one in both" line tasks \
    '^\| minLSTM \| bucket_sort \| ours \| 0.94 \| 0.96 ± 0.01 \|  \| 0.933 \| 0.956 \|'
check "minGRU has the paper's minLSTM beside it" cell tasks 'v("chomsky", "minGRU", "cycle_nav") == "yes"
    and c("chomsky", "minGRU", "cycle_nav")["paper"] == .79
    and c("chomsky", "minGRU", "cycle_nav")["against"] == "minLSTM"'
check "and says so" line tasks "^\| minGRU \| cycle_nav \| ours \| 0.79 \(paper's minLSTM\) \| 0.86 ± 0.01 \|"
check "parity has no number of the paper" line tasks \
    '^\| minGRU \| parity \| ours \|  \| 0.75 \|  \|  \| 0.5 \| 0.5 \| 0.51 \|  \| 1 \|$'
check "and stands in the table, not beside it" no_line tasks '^\| chomsky \|'
check "204 numbers of the paper, no more" cell tasks 'len(d["cells"]) == 204 and len(d["added"]) == 6 + 6'

# ---- did not learn: no better than the best constant
page constant 'files["chomsky"] = (chomsky("minLSTM", "majority_count", .165, .170, .175, constant=.165, chance=1 / 63)
    + chomsky("LSTM", "majority_count", .15, constant=.165) + chomsky("minGRU", "parity", .502, .51, constant=.505)
    + chomsky("minGRU", "majority_count", .48, .52, .5, constant=.165) + chomsky("minLSTM", "cycle_nav", .97, .97,
    constant=.965))
files["listops"] = listops(.62, .62, constant=.17) + seeds((.18, .17), "listops", "GRU", "accuracy", constant=.17)'
check "a constant has not learned" cell constant 'v("chomsky", "minLSTM", "majority_count") == "did not learn"'
check "nor with one seed, nor beside a quoted number" cell constant 'v("chomsky", "LSTM", "majority_count")
    == v("chomsky", "minGRU", "parity") == "did not learn"'
check "never yes, even if it is better than the paper" cell constant \
    'v("chomsky", "minLSTM", "cycle_nav") == "did not learn"'
check "one that has learned" cell constant 'v("chomsky", "minGRU", "majority_count") == "not distinguishable"
    and v("listops_ablation", "minLSTM + conv + MLP", "accuracy") == "not distinguishable"'
check "beside the paper, too" line constant \
    '^\| listops \| GRU \| accuracy \| ours \| 0.175 ± 0.0071 .*\| did not learn \| 2 \|$'
check "chance and constant on the page" line constant \
    '^\| minLSTM \| majority_count .* \| 0.0159 \| 0.165 \| did not learn \| 3 \|$'

# ---- test sets
page sets 'files["chomsky"] = (chomsky("minLSTM", "bucket_sort", .99, .99, .99)
    + chomsky("minGRU", "bucket_sort", .99, .99, test_set="b" * 16) + chomsky("minLSTM", "cycle_nav", .9, .9, .9)
    + chomsky("minGRU", "cycle_nav", .9, .9, test_set=None) + chomsky("minLSTM", "majority", .99, .99, .99))
files["listops"] = listops(.7, .7, .7)
files["listops"][2]["test_set"] = "c" * 16'
check "two test sets in a column: no verdict" cell sets \
    'v("chomsky", "minLSTM", "bucket_sort") == v("chomsky", "minGRU", "bucket_sort") == "several test sets"'
check "one that is not named is another" cell sets 'v("chomsky", "minLSTM", "cycle_nav") == "several test sets"'
check "the other columns have theirs" cell sets 'v("chomsky", "minLSTM", "majority") == "yes"'
check "the page says which" line sets \
    '^\*\*bucket_sort: rows of two test sets: a{16} \(minLSTM\), b{16} \(minGRU\)\. No verdict in this column\.\*\*$'
check "and that one is not named" line sets \
    '^\*\*cycle_nav: rows of two test sets: a{16} \(minLSTM\), not named \(minGRU\)'
check "nothing of the sort elsewhere" no_line sets '^\*\*(majority|accuracy|listops):'
check "seeds of two test sets have no common mean" cell sets \
    'o("listops_ablation", "minLSTM + conv + MLP", "accuracy")["seed_list"] == [1, 2]'
page unnamed 'files["listops"] = listops(.7, .7, .7)
del files["listops"][0]["test_set"]'
check "nor those of one and of none" cell unnamed \
    'o("listops_ablation", "minLSTM + conv + MLP", "accuracy")["seed_list"] == [2, 3]'

# ---- waiting
page wait 'files["chomsky"] = chomsky("minLSTM", "bucket_sort", .95, .95, outdated=1) + chomsky(
    "minLSTM", "cycle_nav", .81) + chomsky("minLSTM", "cycle_nav", .99, outdated=1, settings="recipe=y")
files["listops"] = seeds((.6, .6), "listops", "minGRU", "accuracy", outdated=1)'
check "outdated rows do not count" cell wait 'c("chomsky", "minLSTM", "bucket_sort")["why"] == "waiting"
    and c("chomsky", "minLSTM", "bucket_sort")["ours"] is None and o("chomsky", "minLSTM", "cycle_nav")["mean"] == .81'
check "a line that waits" line wait '^\| minLSTM \| bucket_sort \|  \| 0.94 \| waiting \|'
check "so does what was never run" line wait '^\| minGRU \| test_loss \|  \| 1.548 \| waiting \|'
check "also what is beside the paper" line wait '^\| minGRU \| parity \|  \|  \| waiting \|'
check "and measurements" line wait '^\| minGRU 512 \| ms \| 2.72 \| waiting \|'
check "not what cannot be run" cell wait '"quotes" in c("d4rl", "Hopper-M", "DS4")["why"]
    and "data get lra" in c("lra", "minLSTM", "retrieval")["why"]'
check "outdated runs that the paper does not have" line wait '^Waiting to be run again: listops \(minGRU\)\.$'
check "how many" line wait '^The paper.s tables have 204 numbers\. 1 of them .*, and [0-9]+ are waiting'

# ---- settings tried, what differs, what was seen
page how 'files["chomsky"] = (chomsky("minLSTM", "bucket_sort", .95, .95, differs="lr=0.001 (0.0003)", tried=1,
    parameters=1060864, sequences=3840000, tokens=7, last_score=.91)
    + chomsky("minLSTM", "cycle_nav", .8, .8, differs="", own_budget="needs more strings")
    + chomsky("minLSTM", "majority", .9, setting="a", tried=3)
    + chomsky("minLSTM", "even_pairs", .9, setting="a", tried=5)
    + chomsky("minLSTM", "majority_count", .4, setting="z") + chomsky("minLSTM", "missing_duplicate", .3, setting="a")
    + chomsky(
    "minLSTM", "missing_duplicate", .3, profile="as-paper", settings="recipe=y", tokens=65e6))
files["chomsky"][1]["last_score"] = .93
files["chomsky"] += (tried("minLSTM", "majority", a=[.90, .92], b=[.95, .80], c=[.1])
    + tried("minLSTM", "even_pairs", a=[.90, .92], b=[.95, .90]) + tried("minLSTM", "majority_count", a=[.4], b=[.3])
    + tried("minLSTM", "missing_duplicate", a=[.3], b=[.9]))
for r in files["chomsky"]:
    if r["profile"] == "search" and r["column"] == "missing_duplicate" and r["setting"] == "b": r["outdated"] = 1
files["shakespeare"] = shakespeare("minGRU", 1.5, tokens=32768000, sequences=9, setting="a", profile="ours")
files["shakespeare"] += [dict(t, experiment="shakespeare")
                         for t in tried("minGRU", "test loss", a=[1.6], b=[1.7], c=[1.8])]'
check "one setting" line how \
    '^\| minLSTM \| bucket_sort \| ours \| 1,060,864 \| 3.84 million sequences \| 1 \| lr=0.001'
check "not said" line how \
    '^\| minLSTM \| cycle_nav \| ours \|  \|  \| waiting \| nothing; own budget: needs more strings \|'
check "three, and the best is used" line how '^\| minLSTM \| majority \| ours \|  \|  \| 3 \| not recorded \|'
check "two, and another was better" line how \
    '^\| minLSTM \| even_pairs \| ours \|  \|  \| 2 of 5, not the best on validation \|'
check "none of them is used" line how '^\| minLSTM \| majority_count \| ours .* \| 2, the one used is not among them \|'
check "outdated ones do not count" line how '^\| minLSTM \| missing_duplicate \| ours \|  \|  \| 1 \|'
check "the paper's settings" line how \
    "^\| minLSTM \| missing_duplicate \| the paper's \|  \| 65 million tokens \| the paper's \|"
check "the smallest loss is the best; a text is tokens" line how \
    '^\| minGRU \| test_loss \| ours \|  \| 32.8 million tokens \| 3 \|'
check "the mean of the last" line how '^\| minLSTM \| bucket_sort \| ours \| 0.94 \| 0.95 ± 0 \| 0.92 \|'
check "what was tried is no result" cell how 'not any(g["profile"] == "search" for g in d["groups"])'
mkdir broken
printf '{"experiment": "x", "rows": [{"experiment": "x", "row": "a", "column": "b", "kind": "cpu", %s}]}' \
    '"dtype": "f32", "profile": "search", "score": 1, "seed": 1' >broken/x.json
refused 1 'x.json: has rows that are no results' python3 "$tests/../scripts/paper.py" broken out
check "the rule stands at the top" line how '^\*\*As good\?\*\* .*more than 2e, otherwise "not distinguishable"'

# ---- control: a row is a data set, each with a test set of its own; other data than the paper's gets no verdict
page acts 'files["control"] = (control("minGRU", "Hopper-M", 90, 91, 92) + control("minLSTM", "Hopper-M", 85, 86, 84)
    + control("minGRU", "Walker-M", 99, 98, 97, data_made=1) + control("DT", "Hopper-M", 99, 98, 97)
    + control("minGRU", "HalfCheetah-M", 43))'
check "better than 79.4 ± 8.2 by less than twice that" cell acts \
    'v("d4rl", "Hopper-M", "minGRU") == v("d4rl", "Hopper-M", "minLSTM") == "not distinguishable"'
check "its error has no binomial part" cell acts \
    'near(o("d4rl", "Hopper-M", "minGRU")["error"], (1 / 3 + 8.2 ** 2) ** .5)'
check "data like D4RL's" cell acts 'v("d4rl", "Walker-M", "minGRU") == "data like D4RL\x27s"'
check "a quoted model" cell acts 'v("d4rl", "Hopper-M", "DT") == "quoted"'
check "one seed" cell acts 'v("d4rl", "HalfCheetah-M", "minGRU") == "one seed"'
check "with the data's score" line acts '^\| Hopper-M \| minGRU \| ours \| 79.4 ± 8.2 \| 91 ± 1 \| 40.5 \|'
check "no average of a part" cell acts 'c("d4rl", "Average", "minGRU")["ours"] is None'
page nine 'files["control"] = [r for i, name in enumerate(SETS) for r in control("minGRU", name, i, i + 1)]'
check "the average of nine" cell nine 'near(o("d4rl", "Average", "minGRU")["mean"], 4.5)'
page mixed 'files["control"] = (control("minGRU", "Hopper-M", 90, 91)
    + control("minLSTM", "Hopper-M", 85, 86, test_set="f" * 16))'
check "two test sets of one data set" cell mixed 'v("d4rl", "Hopper-M", "minGRU") == "several test sets"'
finish
