#!/usr/bin/env bash
# minrnn reproduce: rows that stay, runs that are stopped and resumed, side by side the same as one
# by one, merging, budgets.
source "$(dirname "$0")/cli_support.bash"
export MINRNN_DATA=$work/no_data XDG_CACHE_HOME=$work/no_cache

# rows FILE: without what depends on the clock, in one order.
rows() {
    python3 - "$1" <<'PYTHON'
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
for row in rows:
    for key in ("seconds", "date", "side_by_side", "device"): row.pop(key, None)
for line in sorted(json.dumps(row, sort_keys=True) for row in rows): print(line)
PYTHON
}
same_rows() { cmp <(rows "$1") <(rows "$2"); }
reproduce() { "$minrnn" reproduce "$@" --device cpu; }
copy=(selective-copy --quick)

# ---- an experiment of one's own
cat >sweep.ini <<'INI'
[experiment]
summary = copying by learning rate
recipe = selective-copy
score = accuracy
paper = -
[ours]
start-length = 0
length = 24
tokens = 4
eval-batches = 4
batch = 16
dim = 16
expansion = 2
steps = 10
eval-every = 10
[row slow]
lr = 1e-4
[row fast]
lr = 1e-2
INI
done_by reproduce ./sweep.ini --out own
check "its rows" python3 -c \
    'import json; d = json.load(open("own/sweep.json")); assert d["experiment"] == "sweep" and {r["row"]
        for r in d["rows"]} == {"slow", "fast"}'
check "its page" grep -q 'lr=1e-4' own/sweep.md
cp sweep.ini 'a b.ini'
cp sweep.ini chomsky.ini
refused 1 'letters' "$minrnn" reproduce 'a b.ini' --out own
refused 1 'another name' "$minrnn" reproduce chomsky.ini --out own
cp sweep.ini efficiency.ini
refused 1 'another name' "$minrnn" reproduce efficiency.ini --out own
refused 1 'none.ini' "$minrnn" reproduce none.ini --out own

# wrong NAME PATTERN LINE…: the sweep with these lines behind it is refused, and leaves nothing.
wrong() {
    local name=$1 pattern=$2
    shift 2
    { cat sweep.ini; printf '%s\n' "$@"; } >"$name.ini"
    refused 1 "$pattern" "$minrnn" reproduce "$name.ini" --device cpu --out nothing
    check "$name: nothing is left" [ ! -e nothing ]
}
wrong section 'section.ini: unknown section \[rwo A\]' '[rwo A]' 'lr = 1'
wrong twice 'two sections \[row slow\]' '[row slow]' 'clip = 2'
wrong nameless 'needs a name' '[row ]'
wrong long 'at most 47 bytes' "[row $(printf 'x%.0s' {1..60})]"
wrong nobody '\[ours quick\]: there is no such row' '[ours quick]' 'lr = 1'
wrong nowhere '\[ours slow/far\]: there is no such' '[ours slow/far]' 'lr = 1'
wrong profile 'recipe: no key of this section' '[ours slow]' 'recipe = shakespeare'
wrong seed 'given by --seed' '[row A]' 'seed = 5'
wrong columns 'no column "far"' '[row A]' 'columns = accuracy, far'
wrong pictures 'the same picture' '[column a b]' '[column a.b]'
wrong key 'key.ini: A/accuracy: unknown key lrr' '[row A]' 'lrr = 1'
wrong range 'A/accuracy: lr = -3' '[row A]' 'lr = -3'
wrong model 'A/accuracy: heads = 3' '[row A]' 'mixer = attention' 'heads = 3'
wrong gates 'A/accuracy: gate-init' '[row A]' 'gate-init = sums=99'
wrong test 'A/accuracy: unknown key splt' '[row A]' 'test = splt=foo'
wrong tested 'must be a key and its value' '[row A]' 'test = ='
wrong four 'is too much; table' '[row A]' 'paper = shakespeare | minGRU | test_loss | more'
wrong share 'warmup-share = 4' '[row A]' 'warmup-share = 4'
wrong blank 'no blank' '[row A]' 'gate-init = sums=1 2'
wrong quick 'quick.ini: slow/accuracy with --quick: unknown key stesp' '[quick]' 'stesp = 3'
wrong paper 'paper.ini: fast/accuracy with --as-paper: clip = -1' '[as-paper]' 'recipe = selective-copy' \
    '[as-paper fast]' 'clip = -1'
{ cat sweep.ini; printf '[row A]\nlrr = 1\n'; } >other.ini # a mistake in a row that is not asked for
refused 1 'other.ini: A/accuracy: unknown key lrr' "$minrnn" reproduce other.ini --only slow --out nothing
sed 's/^score.*/&\nfoo = 3/' sweep.ini >head.ini
refused 1 '\[experiment\] foo' "$minrnn" reproduce head.ini --out nothing
sed '/^\[row/,$d' sweep.ini >rowless.ini
refused 1 'no \[row NAME\]' "$minrnn" reproduce rowless.ini --out nothing
refused 1 'no section \[quick\]' "$minrnn" reproduce sweep.ini --quick --out nothing
mkdir -p elsewhere && cp sweep.ini elsewhere/
refused 2 'sweep.ini is there twice' "$minrnn" reproduce sweep.ini elsewhere/sweep.ini --out nothing
refused 2 'all stands alone' "$minrnn" reproduce all chomsky --out nothing
refused 1 'fits no cell' "$minrnn" reproduce sweep.ini --only '[' --out nothing
check "nothing is left of any" [ ! -e nothing ]

{ cat sweep.ini; printf '[row plain]\n'; } >plain.ini # a row without keys is one, too
done_by reproduce plain.ini --out own
check "a row without keys" json '{r["row"] for r in d["rows"]} == {"slow", "fast", "plain"}' own/plain.json
check "its page says how" grep -q 'minrnn reproduce plain.ini' own/plain.md
sed -i 's/^score.*/score = loss/' plain.ini
done_by reproduce plain.ini --out own --only slow
check "another score is another result" grep -q '^1 done, 0 were there' err
done_by reproduce plain.ini --out own --only slow
check "which then is there" grep -q '^0 done, 1 were there' err
cp sweep.ini scaled.ini
done_by reproduce scaled.ini --out own --only slow --seeds 2
sed -i 's/^score.*/&\nscale = 100/' scaled.ini
done_by reproduce scaled.ini --out own --only slow --json
check "what was scored in two ways has no mean" json 'sorted(g["seeds"] for g in d) == [1, 1]' out
cp sweep.ini alike.ini
sed -n '/^\[ours\]/,/^\[row/{s/^\[ours\]/[as-paper]/;/^\[row/!p}' sweep.ini >>alike.ini
done_by reproduce alike.ini --out own --only slow
done_by reproduce alike.ini --out own --only slow --as-paper --seeds 2 --json
check "equal settings are equal runs, whatever they are called" json 'len(d) == 1 and d[0]["seeds"] == 2' out

# ---- again: rows stay until others are there in their place
done_by reproduce sweep.ini --out own --seeds 4
run reproduce sweep.ini --out own --seeds 4 --again --budget 0.02s
check "how to go on" grep -q 'the same command without --again goes on' err
check "the old rows stay" json 'len(d["rows"]) == 8 and any(r.get("outdated") == 1 for r in d["rows"])' own/sweep.json
check "and are called so" grep -q '(outdated)' own/sweep.md
mkdir -p renewed && cp own/sweep.json renewed/
done_by reproduce sweep.ini --out own --seeds 4
check "and are replaced" json 'len(d["rows"]) == 8 and not any("outdated" in r for r in d["rows"])' own/sweep.json
done_by "$minrnn" reproduce --merge own/sweep.json elsewhere/sweep.ini --out merged_own
check "rows of one's own are merged" grep -q '^8 rows read, 8 new in merged_own$' out
check "with their page" grep -q 'fast' merged_own/sweep.md
done_by "$minrnn" reproduce --merge own/sweep.json sweep.ini --out renewed
check "good rows take the place of outdated ones" json \
    'len(d["rows"]) == 8 and not any("outdated" in r for r in d["rows"])' renewed/sweep.json
done_by "$minrnn" reproduce --merge own/sweep.json sweep.ini --out renewed
check "once" grep -q ' 0 new in renewed$' out
refused 1 'give its FILE.ini' "$minrnn" reproduce --merge own/sweep.json --out merged_own
for change in 's/"score": [^,]*,/"score": "abc",/' 's/"score": [^,]*,/"score": null,/' 's/"seed": 1,/"seed": -1.5,/' \
    's/"kind": "cpu", //' 's/"row": "slow"/"row": "a\\nb"/'; do
    sed "$change" own/sweep.json >spoiled.json
    refused 1 'spoiled.json: row [0-9]* is not a result' "$minrnn" reproduce --merge spoiled.json sweep.ini \
        --out spoiled
done

# ---- what is asked wrongly
refused 2 'selective' "$minrnn" reproduce selective
refused 2 'which experiment' "$minrnn" reproduce
refused 2 'which folder' "$minrnn" reproduce selective-copy --out ''
refused 2 '25m' "$minrnn" reproduce selective-copy --budget soon
refused 2 '25m' "$minrnn" reproduce selective-copy --budget 0
refused 2 'as-paper' "$minrnn" reproduce selective-copy --quick --as-paper
refused 2 'which files' "$minrnn" reproduce --merge
refused 1 'fits no cell' "$minrnn" reproduce parameters selective-copy --quick --quiet --only 'minGRU/9*' --out none
refused 1 'fits no cell' timeout 20 "$minrnn" reproduce parameters --quiet --only '******************************X' \
    --out none
done_by "$minrnn" reproduce --list
check "the list" grep -q '^shakespeare ' out

# ---- a table, and the same again
done_by reproduce "${copy[@]}" --seeds 2 --only 'minGRU/*' --out whole --keep
check "the command's table" grep -qE 'minGRU/3 layers +paper 99.5 ± 0.2 +ours .* 2 seeds, 60 steps' out
check "six rows" json 'len(d["rows"]) == 6 and {r["seed"] for r in d["rows"]} == {1, 2}' whole/selective-copy.json
check "what a row has" json 'all(r["kind"] == "cpu" and r["steps"] == 60 and r["tokens"] == 60 * 16 * 28
    and r["parameters"] > 1000 and r["seconds"] > 0
    and 0 <= r["score"] <= 100 and r["score"] == 100 * r["accuracy"] and r["loss"] > 0 and r["minrnn"]
    and r["date"] and r["device"] for r in d["rows"])' whole/selective-copy.json
check "curves" json 'all(len(r["curve"]) == 63 and sum(p[2] is not None for p in r["curve"]) == 3 for r in d["rows"])' \
    whole/selective-copy.json
check "the table" grep -q '^| minGRU | 2 layers | 96.8 ± 3.2 | .* ± .* | 2 | 60 |' whole/selective-copy.md
for f in whole/selective-copy.svg whole/selective-copy-3-layers.svg; do
    check "$f" python3 -c "import xml.dom.minidom, sys; xml.dom.minidom.parse('$f')"
done
check "models are kept" [ "$(find whole/runs -name model.safetensors | wc -l)" -eq 6 ]
check "and nothing else" [ "$(find whole/runs -type f ! -name .lock | wc -l)" -eq 6 ]
before=$(snapshot whole | grep json)
done_by reproduce "${copy[@]}" --seeds 2 --only 'minGRU/*' --out whole --json
check "a second time nothing is run" grep -q '^0 done, 6 were there$' err
check "models stay" [ "$(find whole/runs -name model.safetensors | wc -l)" -eq 6 ]
check "nor changed" [ "$before" = "$(snapshot whole | grep json)" ]
check "JSON" json 'len(d) == 3 and all(g["seeds"] == 2 and math.isfinite(g["mean"]) and g["std"] > 0 for g in d)' out
done_by reproduce "${copy[@]}" --only 'minGRU/1*' --out whole --again --keep
check "again" grep -q '^1 done, 0 were there$' err
check "again gives the same" json 'len(d["rows"]) == 6' whole/selective-copy.json

# ---- three at once
done_by reproduce "${copy[@]}" --seeds 2 --only 'minGRU/*' --out three --keep --side-by-side 3 --threads 2
check "side by side: rows" same_rows whole/selective-copy.json three/selective-copy.json
check "how many there were" json 'max(r["side_by_side"] for r in d["rows"]) == 3' three/selective-copy.json
done_by reproduce "${copy[@]}" --only 'minGRU/1*' --out alone --side-by-side 3
check "one alone is one" json '[r["side_by_side"] for r in d["rows"]] == [1]' alone/selective-copy.json
for model in $(cd three && find . -name model.safetensors); do
    check "side by side: $model" same_files "whole/$model" "three/$model"
done

# ---- stopped by the clock and by a signal, and gone on with
one=(selective-copy --quick --only minLSTM/2 --steps 1500)
[ "$slow" = 1 ] && one=(selective-copy --quick --only minLSTM/2 --steps 300)
done_by reproduce "${one[@]}" --out unstopped
done_by reproduce "${one[@]}" --out stopped --budget 0.15s
check "left over" grep -q '^0 done, 0 were there, 1 left' err
check "no row yet" [ ! -e stopped/selective-copy.json ]
check "a state to go on from" [ "$(find stopped/runs -name state.safetensors | wc -l)" -eq 1 ]
for file in stopped/runs/*/*/spent; do printf 100 >"$file"; done # as a kill leaves it: of another moment than the state
python3 - "$minrnn" "${one[@]}" <<'PYTHON' >killed
import signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "reproduce", *sys.argv[2:], "--device", "cpu", "--out", "stopped"],
                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
print("resumed" if "resumed at step" in p.stderr.readline() else "began anew")
time.sleep(0.05)
p.send_signal(signal.SIGINT)
p.stderr.read()
print(p.wait())
PYTHON
check "Ctrl-C: $(tr '\n' ' ' <killed)" [ "$(tr '\n' ' ' <killed)" = "resumed 130 " ]
done_by reproduce "${one[@]}" --out stopped
check "steps that were asked for" json 'd["rows"][0]["asked_steps"] == d["rows"][0]["steps"]' \
    stopped/selective-copy.json
check "the same row" same_rows unstopped/selective-copy.json stopped/selective-copy.json
check "time of all calls" json 'd["rows"][0]["seconds"] > 100' stopped/selective-copy.json
check "nothing is left" [ -z "$(find stopped/runs -type f ! -name .lock)" ]

# ---- merging
done_by reproduce "${copy[@]}" --only minLSTM/1 --out other
done_by "$minrnn" reproduce --merge whole/selective-copy.json other/selective-copy.json --out merged
check "merged" grep -q '^7 rows read, 7 new in merged$' out
check "its table" grep -q '^| minLSTM | 1 layer ' merged/selective-copy.md
done_by "$minrnn" reproduce --merge other/selective-copy.json --out merged
check "merged twice" grep -q '^1 rows read, 0 new' out
done_by reproduce "${copy[@]}" --only minLSTM/1 --out merged
check "what was merged is not run again" grep -q '^0 done, 1 were there$' err
exec 9>merged/runs/selective-copy/.lock
flock 9 # as a run does that will write the file
refused 1 'another minrnn' "$minrnn" reproduce --merge whole/selective-copy.json --out merged
exec 9>&-
sed 's/"experiment": "selective-copy"/"experiment": "..\/evil"/g' other/selective-copy.json >evil.json
refused 1 'does not know' "$minrnn" reproduce --merge evil.json --out merged
head -c 300 other/selective-copy.json >torn.json
refused 1 'torn.json' "$minrnn" reproduce --merge torn.json --out merged
cp torn.json merged/selective-copy.json
refused 1 'merged/selective-copy.json' "$minrnn" reproduce "${copy[@]}" --out merged
check "a broken file stays" same_files torn.json merged/selective-copy.json
run reproduce selective-copy parameters --quick --out merged
check "a broken file fails" [ $status -eq 1 ]
check "and is told" grep -q 'merged/selective-copy.json: row' err
check "the others are run" grep -q '^# ' out

# ---- a run's folder that was damaged
done_by reproduce "${one[@]}" --out damaged --budget 0.15s
for file in damaged/runs/*/*/log.jsonl; do : >"$file"; done
run reproduce "${one[@]}" --out damaged --quiet
check "a damaged run fails" [ $status -eq 1 ]
check "with what to do" grep -q 'remove damaged/runs/.* to start this run anew' err
rm -r damaged/runs/*/*
done_by reproduce "${one[@]}" --out damaged
check "and then runs" same_rows unstopped/selective-copy.json damaged/selective-copy.json

# ---- measurements that the clock cuts
run reproduce inference --quick --budget 0.01s --out measured
check "measurements are left" grep -q 'not all measured: the same command goes on' err
done_by reproduce inference --quick --out measured
check "and then not" [ -z "$(grep 'not all' err)" ]

# ---- data that is not there, a test part, a whole budget
refused 1 'data get shakespeare' "$minrnn" reproduce shakespeare --quick --quiet --out nodata
run reproduce all --quick --only minLSTM --out all
check "all goes on without data" [ $status -eq 0 ]
check "and says how to get it" grep -q 'data get shakespeare' err
check "what has no data is counted" grep -qE 'done, 0 were there, [0-9]+ without their data$' err
check "the others are there" [ -e all/chomsky.md -a -e all/listops.md -a -e all/selective-copy.md ]
check "scores of the test part" json \
    'len(d["rows"]) == 4 and all("valid_accuracy" in r and r["settings"].startswith("recipe=listops ")
        for r in d["rows"])' all/listops.json
done_by reproduce forget-bias --quick --only 'bias 3/selective*' --out target
check "a target" json 'len(d["rows"]) == 1 and all(r["target_loss"] == 2.78 and r["target_step"] == min(p[0]
    for p in r["curve"] if p[2] is not None and p[2] <= 2.78)
    for r in d["rows"])' target/forget-bias.json
check "its column" grep -q 'steps to target' target/forget-bias.md

finish
