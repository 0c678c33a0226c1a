#!/usr/bin/env bash
# The pages of this project say what its rows say: docs/results/paper.md, paper.json and the claims of README.md are,
# byte for byte, what scripts/paper.py makes of the rows in docs/results. Then the claims themselves, on made-up rows.
source "$(dirname "$0")/cli_support.bash"
source=$(dirname "$tests")
paper() { python3 "$source/scripts/paper.py" "$@"; }
block() { sed -n '/^<!-- claims: made by scripts\/paper.py -->$/,/^<!-- \/claims -->$/p' "$1"; }

# A copy of the pages at the same places: the links to pictures are relative.
mkdir docs
cp -r "$source/docs/results" docs/results
cp "$source/README.md" README.md
chmod -R u+w docs README.md
pages() { paper docs/results/experiments:docs/results/efficiency/h200 docs/results --readme README.md; }
done_by pages
for file in README.md docs/results/paper.md docs/results/paper.json; do
    check "$file is what its rows say; if they have changed, run: scripts/paper.py \
docs/results/experiments:docs/results/efficiency/h200 --readme README.md" same_files "$file" "$source/$file"
done
check "README has claims" [ "$(block README.md | grep -c '^|')" -ge 2 ]

# Any number of a claim that was edited by hand is found, and nothing else is touched.
python3 - README.md edited <<'PYTHON'
import re, sys
page = open(sys.argv[1], encoding="utf-8").read()
number = re.compile(r"\d").search(page, page.index("| --- |", page.index("<!-- claims")))
edited = page[:number.start()] + str((int(number.group()) + 1) % 10) + page[number.end():]
open(sys.argv[2], "w", encoding="utf-8").write(edited)
PYTHON
check "a number was edited" [ "$(cmp -l README.md edited | wc -l)" -eq 1 ]
cp edited README.md
done_by pages
check "a claim that was edited is no longer what its row says" [ -n "$(cmp README.md edited)" ]
check "and comes back" same_files README.md "$source/README.md"
(echo "before" && cat README.md && echo "after") >around && cp around README.md
done_by pages
check "the rest of the page stays" same_files README.md around

# ---- claims of made-up rows
mkdir rows
python3 - <<'PYTHON'
import json
def seeds(scores, experiment, label, column, cell, **more):
    made = dict(experiment=experiment, profile="ours", row=label, column=column, settings="recipe=x", kind="cuda",
                dtype="f32", device="a GPU", date="2026-01-01T00:00:00Z", measure="accuracy", scale=1,
                test_set="a" * 16, strings=12800, differs="steps=9 (10)", paper_cell=cell)
    made.update(more)
    rows = [dict(made, seed=seed, score=score) for seed, score in enumerate(scores, 1)]
    return [{k: v for k, v in row.items() if v is not None} for row in rows]
def write(name, rows): json.dump({"experiment": name, "rows": rows}, open(f"rows/{name}.json", "w"))
def copy(label, scores, **more):
    return seeds(scores, "selective-copy", label, "3 layers", f"selective_copy_layers | 3 | {label}", scale=100, **more)
write("selective-copy", copy("minGRU", (99.98, 99.99, 99.97), differs="start-length=16 (4096), lr=1 (2)") + copy(
    "minLSTM", (12.3, 12.3), outdated=1))
write("image", seeds((.75, .76, .77), "image", "minLSTM", "accuracy", "lra | minLSTM | g_image",
                     differs="steps=9 (10), flip=yes (no), shift=2 (0)"))
write("shakespeare", seeds((1.7, 1.71), "shakespeare", "minGRU", "test loss", "shakespeare | minGRU | test_loss",
                           measure="loss", differs="", profile="as-paper") + seeds(
    (1.23, 1.23), "shakespeare", "minLSTM", "test loss", "shakespeare | minLSTM | test_loss", measure="loss",
    differs=None))
write("chomsky", seeds((.81,), "chomsky", "minLSTM", "cycle_nav", "chomsky | minLSTM | cycle_nav") + seeds(
    (.456, .456), "chomsky", "minLSTM", "majority_count", "chomsky | minLSTM | majority_count", test_set=None))
step = dict(experiment="efficiency", column="B=64 T=4096", kind="cuda", dtype="f32", device="a GPU", ms=2.5, bytes=31e8,
            repetitions=7)
peer = dict(step, row="PyTorch GRU module", ms=543.2, torch="2.1+cu", repetitions=4)
write("efficiency", [dict(step, row="minGRU"), peer])
PYTHON
printf 'a\n<!-- claims: made by scripts/paper.py -->\nold\n<!-- /claims -->\nb\n' >page.md
done_by paper rows pages --readme page.md
claims() { grep -qF -- "$1" page.md; }
check "a curriculum is said" claims \
    '| 99.98 ± 0.01 (3 seeds; own settings, short sequences first) | paper: 99.5 ± 0.2 (as good) |'
check "so are changed pictures" claims \
    '(3 seeds; own settings, mirrored pictures, shifted pictures) | paper: 0.67 (settings compared on the test set) |'
check "the paper's settings, and a worse number" claims \
    "| 1.705 ± 0.0071 (2 seeds; the paper's settings) | paper: 1.548 (not as good) |"
check "one seed is no verdict" claims '| 0.81 (1 seed; own settings) | paper: 0.79 (one seed) |'
check "times, with how often" claims \
    '| training step, minGRU, B=64 T=4096, a GPU | 2.5 ms, 3.1 GB (median of 7) | PyTorch 2.1:'
check "of peers, too" claims 'GRU, cuDNN: 543 ms, 3.1 GB (median of 4) |'
check "nothing of outdated rows, of rows that do not say what differs, or name no test set" \
    [ -z "$(grep -E '12\.3|1\.23|0\.456' page.md)" ]
check "six lines and a head" [ "$(grep -c '^|' page.md)" -eq 7 ]
check "the rest stays" [ "$(sed -n '1p;$p' page.md | tr '\n' ' ')" = "a b " ]
check "what was there is gone" [ -z "$(grep old page.md)" ]
done_by paper rows pages --readme page.md
check "written twice, the same" [ "$(grep -c 'claims' page.md)" -eq 2 ]

echo "no marks" >page.md
before=$(snapshot pages)
refused 1 'page.md: has no block for claims' paper rows pages --readme page.md
check "it stays" grep -qx "no marks" page.md
refused 1 'nowhere.md: cannot be read' paper rows pages --readme nowhere.md
check "and so do the pages" [ "$before" = "$(snapshot pages)" ]
mkdir none
printf '<!-- claims: made by scripts/paper.py -->\n<!-- /claims -->\n' >page.md
done_by paper none pages --readme page.md
check "nothing to claim" grep -qx 'No current row yet.' page.md
finish
