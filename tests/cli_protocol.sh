#!/usr/bin/env bash
# The protocol of `minrnn reproduce`: what chooses is not what is scored, rows name their test set, those of another do
# not count, settings are tried on validation, budgets are the same for all.
source "$(dirname "$0")/cli_support.bash"
export MINRNN_DATA=$work/no_data XDG_CACHE_HOME=$work/no_cache
reproduce() { "$minrnn" reproduce "$@" --device cpu; }

# row FILE EXPRESSION: holds for every row r, which are rows.
row() {
    python3 - "$@" <<'PYTHON'
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
rule = "(" + sys.argv[2] + ")"
sys.exit(not (rows and all(eval(rule, {"r": r, "rows": rows, "len": len, "abs": abs}) for r in rows)))
PYTHON
}

cat >small.ini <<'INI'
[experiment]
summary = parity of short strings
recipe = chomsky-parity
score = accuracy
paper = -
test = split=test
budget = steps, batch, layers
[ours]
layers = 1
dim = 8
batch = 16
steps = 6
eval-every = 2
eval-lengths = 4
eval-samples = 16
eval-to = 64
[as-paper]
steps = 8
[quick]
steps = 2
[row A]
mixer = mingru
[row B]
mixer = minlstm
INI
sed 's/^\[row A\]/[try A: plain]\n[try A: fast]\nlr = 1e-2\n[try A: slow]\nlr = 1e-5\n[ours A]\nuse = fast\n&/' \
    small.ini >tried.ini

# ---- the score is that of the test set, of the model that validation chose, and of the last one
done_by reproduce ./small.ini --out one --keep
check "fields" row one/small.json 'len(r["test_set"]) == 16 and r["strings"] == 64 and r["answers"] == 64 and
    r["chance"] == .5 and r["constant"] >= .5 and r["sequences"] == 96 and r["test"] == "split=test" and
    r["tried"] == 1'
for cell in A B; do
    model=$(echo one/runs/small/"$cell"-accuracy-1-*/model.safetensors)
    for split in validation test; do
        "$minrnn" eval "$model" --split $split --json --device cpu >$split.$cell || fail "eval --split $split"
    done
    check "$cell: the test score and the validation score" python3 - "$cell" <<'PYTHON'
import json, sys
cell = sys.argv[1]
row = [r for r in json.load(open("one/small.json"))["rows"] if r["row"] == cell][0]
got = {split: json.load(open(f"{split}.{cell}"))["accuracy"] for split in ("validation", "test")}
assert row["score"] == got["test"] and row["valid_accuracy"] == got["validation"], (row, got)
evaluations = [p for p in row["curve"] if p[2] is not None]
assert [p[0] for p in evaluations] == [2, 4, 6]
assert max(p[3] for p in evaluations) == row["valid_accuracy"]
PYTHON
done
check "the two rows are of one test set" row one/small.json 'r["test_set"] == rows[0]["test_set"]'

# the model that was chosen and the last one, which is worse here, are scored on the same strings
sed '/^\[row B\]/,$d; s/^layers = 1/&\nlr = 0.03/' small.ini >worse.ini
done_by reproduce ./worse.ini --out worse
"$minrnn" train chomsky-parity --mixer mingru --layers 1 --dim 8 --batch 16 --steps 6 --eval-every 2 --eval-lengths 4 \
    --eval-samples 16 --eval-to 64 --eval-tokens 0 --lr 0.03 --out last --device cpu --quiet >log 2>&1 || fail "train"
for model in model last; do
    "$minrnn" eval last/$model.safetensors --split test --json --device cpu >test.$model
done
check "the last checkpoint's score" python3 -c 'import json
row = json.load(open("worse/worse.json"))["rows"][0]
chosen, last = (json.load(open("test." + model))["accuracy"] for model in ("model", "last"))
assert row["best_step"] < row["steps"] and chosen != last, (row, chosen, last)
assert row["score"] == chosen and row["last_score"] == last, (row, chosen, last)'

# ---- rows of another test set, or of none, do not count
spoil() { # FILE CODE
    python3 - "$1" "$2" <<'PYTHON'
import json, sys
data = json.load(open(sys.argv[1]))
for r in data["rows"]: exec(sys.argv[2])
json.dump(data, open(sys.argv[1], "w"))
PYTHON
}
done_by reproduce ./small.ini --out one
check "nothing is run again" grep -q '^0 done, 2 were there' err
for code in 'r["test_set"] = "0" * 16' 'del r["test_set"]' 'del r["test"]'; do
    cp -r one other
    spoil other/small.json "$code"
    done_by reproduce --merge other/small.json small.ini --out other
    check "$code: marked" row other/small.json 'r["outdated"] == 1'
    check "$code: the page says so" grep -q "^## outdated" other/small.md
    done_by reproduce ./small.ini --out other --again
    cp one/small.json other/small.json
    spoil other/small.json "$code"
    done_by reproduce ./small.ini --out other
    check "$code: run again" grep -q '^2 done, 0 were there, 2 outdated because' err
    check "$code: now they hold" row other/small.json '"outdated" not in r'
    rm -r other
done

# a row that does not hold any more makes room for one that does, also where nobody has marked it yet
cp -r one other
spoil other/small.json 'del r["test_set"]; r["score"] = 0.125'
done_by reproduce --merge one/small.json small.ini --out other
check "both are replaced" grep -q '^2 rows read, 2 new' out
check "and hold" row other/small.json '"outdated" not in r and r["score"] != 0.125'
rm -r other

# damaged rows are refused, and those without settings do not count
for code in 'r["tried"] = -1' 'r["tried"] = "x"' 'r["last_score"] = "x"' 'r["test_set"] = 7' 'r["setting"] = 1' \
    'r["profile"] = "search"' 'r["settings"] = 3'; do
    mkdir other
    cp one/small.json other/small.json
    spoil other/small.json "$code"
    refused 1 'row 1 is not a result' reproduce --merge other/small.json small.ini --out other2
    rm -r other
done
cp -r one other
spoil other/small.json 'del r["settings"]'
done_by reproduce --merge other/small.json small.ini --out other
check "no settings: outdated" row other/small.json 'r["outdated"] == 1'
check "and kept apart on the page" grep -q '^## outdated' other/small.md
rm -r other

# ---- duplicates in old rows are the same settings
cp -r one other
spoil other/small.json 'r["settings"] = r["settings"].replace("layers=1", "layers=3 layers=1")'
done_by reproduce ./small.ini --out other
check "the same run" grep -q '^0 done, 2 were there' err
rm -r other

# ---- charts of rows that do not hold any more are taken away
{ sed '/^\[row B\]/,$d' small.ini && printf '[column %s]\neval-to = %d\n' a 64 b 60 c 56; } >wide.ini
done_by reproduce ./wide.ini --out wide
charts() { # CODE FILES: the charts after rows were marked
    spoil wide/wide.json "$1"
    done_by reproduce --merge wide/wide.json wide.ini --out wide
    check "charts: $2" [ "$(cd wide && echo *.svg)" = "$2" ]
}
charts '' 'wide-a.svg wide-b.svg wide-c.svg wide.svg'
charts 'if r["column"] == "c": r["outdated"] = 1' 'wide-a.svg wide-b.svg wide.svg'
charts 'if r["column"] == "b": r["outdated"] = 1' 'wide.svg' # one column has one chart
charts 'r["outdated"] = 1' '*.svg'

# ---- how a row differs from the paper's settings
done_by reproduce --merge one/small.json small.ini --out one
check "differs" row one/small.json '"steps=6 (8)" in r["differs"] and
    "dim=8 (256)" in r["differs"] and "seed" not in r["differs"] and "mixer" not in r["differs"]'

mkdir now
differs() { # SED EXPRESSION: of the same rows, by a file that has changed since
    sed "$1" small.ini >now/small.ini
    done_by reproduce --merge one/small.json now/small.ini --out one
    check "$1: $2" row one/small.json "$2"
}
differs 's/^steps = 6/steps = 7/' '"steps=6 (8)" in r["differs"]'
differs 's/^\[as-paper\]/&\nsplit = test\npatience = 3\nlr = 1/' '"split" not in r["differs"] and
    "patience" not in r["differs"] and " (1)" in r["differs"]'
differs 's/^\[as-paper\]/&\nrecipe = selective-copy/' 'r["differs"] == ""' # another task has other keys
done_by reproduce ./small.ini --out quick --quick
done_by reproduce --merge quick/small.json small.ini --out quick
check "a quick row is not compared" row quick/small.json '"differs" not in r and "outdated" not in r'

# ---- rows of runs that failed have no score and no test set, and hold
cp -r one other
spoil other/small.json 'r["failed"] = "step 3: not finite"; del r["score"]; del r["test_set"]'
done_by reproduce ./small.ini --out other
check "not run again" grep -q '^0 done, 2 were there' err
done_by reproduce --merge other/small.json small.ini --out other
check "nor marked" row other/small.json '"outdated" not in r'
rm -r other

# ---- scores in percent, and losses, which no constant answer has
sed 's/^paper = -/&\nscale = 100/' small.ini >percent.ini
done_by reproduce ./percent.ini --out percent
check "in percent" row percent/percent.json 'r["score"] == 100 * r["accuracy"] and r["chance"] == 50 and
    50 <= r["constant"] <= 100'
check "the last one too" python3 -c 'import json
plain, percent = (json.load(open(f))["rows"] for f in ("one/small.json", "percent/percent.json"))
assert [100 * r["last_score"] for r in plain] == [r["last_score"] for r in percent] and len(plain) == 2'
sed 's/^score = .*/score = loss\ntarget-loss = 0.25/; s/^steps = 6/&\naccumulate = 2/' small.ini >loss.ini
done_by reproduce ./loss.ini --out loss
done_by reproduce --merge loss/loss.json loss.ini --out loss
check "losses" row loss/loss.json '"chance" not in r and "constant" not in r and r["score"] == r["loss"] and
    r["sequences"] == 192 and "outdated" not in r'
sed -i 's/target-loss = .*/target-loss = 0.5/' loss.ini
done_by reproduce --merge loss/loss.json loss.ini --out loss
check "another target" row loss/loss.json 'r["outdated"] == 1'

# ---- settings that are tried are scored on validation, and the one in use is among them
done_by reproduce ./tried.ini --out two --search
check "three runs of A, none of B" row two/tried.json 'len(rows) == 3 and r["row"] == "A" and r["profile"] == "search"'
check "never scored on the test set" row two/tried.json '"test" not in r and "paper" not in r and r["tried"] == 3 and
    r["comparable"] == "no"'
check "by name" row two/tried.json '{x["setting"] for x in rows} == {"plain", "fast", "slow"} and
    "search=" + r["setting"] in r["settings"]'
check "and on the page" grep -q '## search' two/tried.md
done_by reproduce ./tried.ini --out two
check "the run itself uses it" row two/tried.json \
    'r["profile"] == "search" or r["row"] == "B" or ("lr=1e-2" in r["settings"] and r["setting"] == "fast")'
check "the search has other strings than the test" row two/tried.json \
    'len({x["test_set"] for x in rows if x["row"] == "A"}) == 2'
spoil two/tried.json 'r["tried"] = 7'
done_by reproduce --merge two/tried.json tried.ini --out two
check "how many were tried is that of the file" row two/tried.json 'r["tried"] == (3 if r["row"] == "A" else 1)
    and "outdated" not in r'
refused 1 'has no section \[try' reproduce ./small.ini --search --out none

# ---- files that break the rules are refused before anything is run
bad() { # PATTERN: of tried.ini, changed by sed
    sed "$2" tried.ini >bad.ini
    refused 1 "$1" reproduce ./bad.ini --out none
    check "nothing was written" test ! -e none
}
bad 'the budget is the same for all rows' 's/^lr = 1e-2/steps = 12/'
bad 'the budget is the same for all rows' 's/^mixer = minlstm/&\nbatch = 64/'
bad 'the budget is the same for all rows' 's/^\[ours A\]/&\nsteps = 12/'
bad 'no such setting to try' 's/use = fast/use = other/'
bad 'no .use = NAME. says' 's/use = fast/lr = 1e-3/'
for test in split =test split= "split=$(printf 'x%.0s' {1..140})"; do
    bad 'must be keys and values, as in split=test' "s/^test = .*/test = $test/"
done
bad 'there is no such row' 's/try A: slow/try C: slow/'
bad 'at most 8 are allowed' "s/^\[try A: slow\]/$(printf '[try A: x%d]\\n' 1 2 3 4 5 6)&/"
for name in 'A slow' 'A: ' 'A: very slow'; do
    bad 'must be .try ROW: NAME.' 's,try A: slow,try /accuracy: slow,'
bad 'two settings to try that are called slow' 's,try A: fast,try A/accuracy: slow,'
bad '"steps batch" is not a key' 's/^budget = .*/budget = steps batch/'
bad '"step" is not a key' 's/^budget = .*/budget = step, batch/'
bad 'own-budget: say why' 's/^use = fast/&\nown-budget =/'
bad 'chosen on validation and scored on the test set' 's/^test = .*/&\nsearch = split=test/'
bad 'chosen on validation and scored on the test set' 's/^test = .*/test = split=validation/'
bad 'keys of the task chomsky alone' 's/^test = .*/test = split=test lr=1/'
bad 'must be \[try ROW: NAME\]' "s/try A: slow/try $name/"
done
{ cat wide.ini && printf '[try A: x%d]\n' {1..8} && echo '[try A/b: y]'; } >many.ini
refused 1 'many.ini: A/b has 9 settings to try; at most 8' reproduce ./many.ini --out none
sed -i '/^\[try A\/b/d' many.ini
refused 1 'many.ini: A/a: has settings to try, and no .use = NAME. says' reproduce ./many.ini --out none
sed 's/^\[row B\]/[ours B]\nown-budget = it is slow\nsteps = 3\n&/' small.ini >slow.ini
done_by reproduce ./slow.ini --out three
check "a budget of its own says why" row three/slow.json \
    'r["row"] == "A" or (r["own_budget"] == "it is slow" and r["steps"] == 3)'
finish
