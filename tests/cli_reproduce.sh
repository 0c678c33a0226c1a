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
for row in slow fast; do
    check "$row: it says so" grep -qE "^$row/accuracy, seed 1: 0(\.[0-9]+)? \(paper: none\) in [0-9:]+$" err
done
cp sweep.ini 'a b.ini'
cp sweep.ini chomsky.ini
refused 1 'letters' "$minrnn" reproduce 'a b.ini' --out own
refused 1 'another name' "$minrnn" reproduce chomsky.ini --out own
cp sweep.ini efficiency.ini
refused 1 'another name' "$minrnn" reproduce efficiency.ini --out own
refused 1 'none.ini' "$minrnn" reproduce none.ini --out own

# files of somebody else in --out stay; nothing is run
cp sweep.ini column2.ini
for file in sweep.md sweep.svg sweep-accuracy.svg; do
    rm -rf mine && mkdir mine && echo '<svg>my notes</svg>' >mine/$file
    refused 1 "mine/$file: was not made by minrnn.*give another --out, or move" \
        "$minrnn" reproduce column2.ini sweep.ini --device cpu --out mine
    refused 1 "mine/$file: was not made by minrnn" "$minrnn" reproduce --merge own/sweep.json sweep.ini --out mine
    check "$file: alone, as it was" [ "$(ls mine):$(cat mine/$file)" = "$file:<svg>my notes</svg>" ]
done
mkdir measured-mine && echo mine >measured-mine/parameters.md
refused 1 'parameters.md: was not made by minrnn' "$minrnn" reproduce parameters --out measured-mine
rm measured-mine/parameters.md && echo mine >measured-mine/parameters2.svg
for i in 1 2; do
    done_by "$minrnn" reproduce parameters --out measured-mine
    sed -i '/^Made by/d' measured-mine/parameters.md # as 0.1 left them
    sed -i '/Made by/d' measured-mine/parameters.svg
done
check "files of other names stay" [ "$(cat measured-mine/parameters2.svg)" = mine ]

# wrong NAME PATTERN LINE…: the sweep with these lines appended is refused, and leaves nothing.
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
wrong profile 'recipe: not a key of this section' '[ours slow]' 'recipe = shakespeare'
wrong seed 'given by --seed' '[row A]' 'seed = 5'
wrong columns 'no column "far"' '[row A]' 'columns = accuracy, far'
wrong pictures 'the same chart' '[column a b]' '[column a.b]'
wrong key 'key.ini: A/accuracy: unknown key lrr' '[row A]' 'lrr = 1'
wrong range 'A/accuracy: lr = -3' '[row A]' 'lr = -3'
wrong model 'A/accuracy: heads = 3' '[row A]' 'mixer = attention' 'heads = 3'
wrong gates 'A/accuracy: gate-init' '[row A]' 'gate-init = sums=99'
wrong test 'A/accuracy: unknown key splt' '[row A]' 'test = splt=foo'
wrong tested 'tested.ini: A/accuracy: test = =: must be keys and values' '[row A]' 'test = ='
wrong four 'four.ini: A/accuracy: paper: .* is too much; give table' '[row A]' \
    'paper = shakespeare | minGRU | test_loss | more'
wrong share 'warmup-share = 4' '[row A]' 'warmup-share = 4'
wrong blank 'blank.ini: A/accuracy: gate-init: a value may not contain a blank' '[row A]' 'gate-init = sums=1 2'
wrong quick 'quick.ini: slow/accuracy with --quick: unknown key stesp' '[quick]' 'stesp = 3'
wrong paper 'paper.ini: fast/accuracy with --as-paper: clip = -1' '[as-paper]' 'recipe = selective-copy' \
    '[as-paper fast]' 'clip = -1'
wrong stdin '\[row A\] data = -: standard input can be read once' '[row A]' 'recipe = text' 'data = -'
{ cat sweep.ini; printf '[row A]\nlrr = 1\n'; } >other.ini # a mistake in a row that is not asked for
refused 1 'other.ini: A/accuracy: unknown key lrr' "$minrnn" reproduce other.ini --only slow --out nothing
sed 's/^score.*/&\nfoo = 3/' sweep.ini >head.ini
refused 1 '\[experiment\] foo' "$minrnn" reproduce head.ini --out nothing
sed '/^\[row/,$d' sweep.ini >rowless.ini
refused 1 'no \[row NAME\]' "$minrnn" reproduce rowless.ini --out nothing
refused 1 'no section \[quick\]' "$minrnn" reproduce sweep.ini --quick --out nothing
mkdir -p elsewhere && cp sweep.ini elsewhere/
refused 2 'sweep.ini was given twice' "$minrnn" reproduce sweep.ini elsewhere/sweep.ini --out nothing
refused 2 'cannot be combined' "$minrnn" reproduce all chomsky --out nothing
refused 1 'matches no cell.*: slow/accuracy, fast/accuracy$' "$minrnn" reproduce sweep.ini --only '[' --out nothing
refused 1 'matches no cell.* and [0-9]+ more$' "$minrnn" reproduce chomsky --only nothing --out nothing
refused 1 'matches no cell' "$minrnn" reproduce efficiency --only nothing --out unmeasured
check "nothing is left of any" [ ! -e nothing ]

# sections in any order
{ sed -n '/^\[row slow/,$p' sweep.ini; sed '/^\[row/,$d' sweep.ini; printf '[ours slow]\nclip = 2\n'; } >row.ini
{ printf '[column a]\n'; cat sweep.ini; printf '[ours slow/a]\nclip = 2\n'; } >column.ini
{ printf '[column a b]\n[column a.b]\n'; cat sweep.ini; } >both.ini
done_by reproduce row.ini --out own --only slow --steps 100
check "a row's own settings; its curve: at most 100 points of training, each of equally many steps" python3 -c '
import json
row, = json.load(open("own/row.json"))["rows"]
assert " clip=2" in row["settings"], row
assert sum(p[1] is not None for p in row["curve"]) == 50, row["curve"]'
done_by reproduce row.ini --out own --only slow
sed 's/clip = 2/clip = 3/' row.ini >changed.ini && mkdir edited && mv changed.ini edited/row.ini
done_by reproduce edited/row.ini --out own --only slow
check "rows of other settings are marked" [ "$(grep -c ', other settings$' out):$(grep -c slow/ out)" = 2:3 ]
done_by reproduce column.ini --out own --only slow
check "a cell's own settings" grep -q ' clip=2' own/column.md
refused 1 'both.ini: columns "a b" and "a.b" would have the same chart' "$minrnn" reproduce both.ini --out nothing

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
check "how to continue" grep -q 'the same command without --again resumes them' err
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
    refused 1 'spoiled.json: row 1 is not a result' "$minrnn" reproduce --merge spoiled.json sweep.ini --out spoiled
done
sed '4s/"score": [^,]*,/"score": null,/' own/sweep.json >spoiled.json # one row per line, after one that begins the list
refused 1 'spoiled.json: row 3 is not a result' "$minrnn" reproduce --merge spoiled.json sweep.ini --out spoiled

# ---- what is asked wrongly
refused 2 'selective' "$minrnn" reproduce selective
refused 2 'which experiment' "$minrnn" reproduce
refused 2 'which folder' "$minrnn" reproduce selective-copy --out ''
refused 2 '25m' "$minrnn" reproduce selective-copy --budget soon
refused 2 '25m' "$minrnn" reproduce selective-copy --budget 0
refused 2 'as-paper' "$minrnn" reproduce selective-copy --quick --as-paper
refused 2 'which files' "$minrnn" reproduce --merge
refused 1 'matches no cell' "$minrnn" reproduce parameters selective-copy --quick --quiet --only 'minGRU/9*' --out none
refused 1 'matches no cell' \
    timeout 120 "$minrnn" reproduce parameters --quiet --only '******************************X' --out none
done_by "$minrnn" reproduce --list
for name in efficiency inference parameters chomsky forget-bias image listops retrieval selective-copy shakespeare; do
    check "the list: $name" grep -qE "^$name +[A-Za-z]" out
done

# ---- a table, and the same again
done_by reproduce "${copy[@]}" --seeds 2 --only 'minGRU/*' --out whole --keep
check "the command's table" \
    grep -qE 'minGRU/3 layers +ours .* 2 seeds, 60 steps.* quick: not comparable with the paper$' out
check "no number of the paper beside a quick one" [ -z "$(grep -i 'paper [0-9]' out)" ]
check "nor in its rows" \
    json 'all(r["comparable"] == "no" and "paper" not in r and "paper_cell" not in r
        for r in d["rows"])' whole/selective-copy.json
check "the page says so" grep -q '^Small versions.* not comparable with the paper\.$' whole/selective-copy.md
check "and the chart" grep -q '<title>.*not comparable with the paper.*</title>' whole/selective-copy.svg
check "six rows" json 'len(d["rows"]) == 6 and {r["seed"] for r in d["rows"]} == {1, 2}' whole/selective-copy.json
check "what a row has" \
    json 'all(r["kind"] == "cpu" and r["steps"] == 60 and r["tokens"] == 60 * 16 * 28 and r["parameters"] > 1000
        and r["seconds"] > 0 and 0 <= r["score"] <= 100 and r["score"] == 100 * r["accuracy"] and r["loss"] > 0
        and r["minrnn"] and r["date"] and r["device"] for r in d["rows"])' whole/selective-copy.json
check "curves" \
    json 'all(len(r["curve"]) == 63 and sum(p[2] is not None for p in r["curve"]) == 3
        for r in d["rows"])' whole/selective-copy.json
check "the table" grep -q '^| minGRU | 2 layers | .* ± .* | 2 | 60 |' whole/selective-copy.md
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
check "JSON" \
    json 'len(d) == 3 and all(g["seeds"] == 2 and g["comparable"] == "no" and g["data"] == "generated"
        and math.isfinite(g["mean"]) and g["std"] > 0 for g in d)' out
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

# ---- charts: one series a model, whatever it was run on; the paper's values marked
python3 - <<'PYTHON'
import json
d = json.load(open("whole/selective-copy.json"))
d["rows"] = [dict(r, kind="cuda", dtype="bf16", score=77, date="2099-01-01T00:00:00Z")
        for r in d["rows"] if r["seed"] == 1]
json.dump(d, open("elsewhere.json", "w"))
PYTHON
for order in "whole/selective-copy.json elsewhere.json" "elsewhere.json whole/selective-copy.json"; do
    rm -rf drawn
    done_by "$minrnn" reproduce --merge $order --out drawn
    check "both in the table" [ "$(grep -c '^| minGRU | 2 layers ' drawn/selective-copy.md)" -eq 2 ]
    for f in drawn/selective-copy.svg drawn/selective-copy-3-layers.svg; do
        check "$f: once" [ "$(grep -c '>minGRU[^<]*<' $f)" -eq 1 ]
    done
    check "the one with more seeds is drawn" [ -z "$(grep '>77<' drawn/selective-copy.svg)" ]
done
check "no mark of the paper in a quick one" [ -z "$(grep 'class="paper"' drawn/*.svg)" ]
python3 - <<'PYTHON'
import json
d = json.load(open("whole/selective-copy.json"))
for row in d["rows"]: row.update(profile="ours", paper=99.5); row.pop("comparable")
json.dump(d, open("compared.json", "w"))
PYTHON
done_by "$minrnn" reproduce --merge compared.json --out compared
for f in compared/selective-copy.svg compared/selective-copy-3-layers.svg; do
    check "$f: the paper's" grep -q 'class="paper"' $f
done
check "where its curve ends" grep -q '<path class="paper" transform="translate(732 ' \
    compared/selective-copy-3-layers.svg
check "in the legend, once" [ "$(grep -c '>paper<' compared/selective-copy.svg)" -eq 1 ]
rm compared/*.md compared/*.svg
done_by "$minrnn" reproduce --merge compared.json --out compared
check "merging draws again what is there" [ -s compared/selective-copy.md -a -s compared/selective-copy.svg ]
# a model has its own colour in every chart; other names get those that are left, in their order
colours=(LSTM=5 theirs=2 minLSTM=3 ours=4 a=6 b=7 c=8 d=9)
python3 - "${colours[@]}" <<'PYTHON'
import json, sys
d = json.load(open("compared.json"))
d["rows"] = [dict(d["rows"][0], row=word.split("=")[0], column=column)
        for word in sys.argv[1:] for column in ("one_" + 70 * "x", "two")]
json.dump(d, open("coloured.json", "w"))
PYTHON
done_by "$minrnn" reproduce --merge coloured.json --out coloured
for word in "${colours[@]}"; do
    for f in coloured/selective-copy.svg coloured/selective-copy-two.svg; do
        check "$f: $word" grep -q "<g class=\"c${word#*=}\">.*>${word%=*}</text>" $f
    done
done
check "long names are cut" grep -qE '>x{59}</text>' coloured/selective-copy.svg

# ---- stopped by the clock and by a signal, and resumed
one=(selective-copy --quick --only minLSTM/2 --steps 1500)
[ "$slow" = 1 ] && one=(selective-copy --quick --only minLSTM/2 --steps 300)
done_by reproduce "${one[@]}" --out unstopped
done_by reproduce "${one[@]}" --out never --budget 0.000001s
check "no time at all: nothing is begun" [ ! -e never/runs -a "$(grep -c '1 left' err)" -eq 1 ]
# until_a_state DIR: runs it until the clock stops it with the state of a step; a busy machine needs longer for that
until_a_state() {
    local budget
    for budget in 0.15 0.3 0.6 1.2 2.5 5 10 20 40 80 160 320; do
        done_by reproduce "${one[@]}" --out "$1" --budget ${budget}s
        [ -z "$(find "$1" -name log.jsonl -size +0 2>/dev/null)" ] || break
    done
}
until_a_state stopped
check "left over" grep -q '^0 done, 0 were there, 1 left' err
check "no row yet" [ ! -e stopped/selective-copy.json ]
check "a state to resume from" [ "$(find stopped/runs -name state.safetensors | wc -l)" -eq 1 ]
for file in stopped/runs/*/*/spent; do printf 100 >"$file"; done # as a kill leaves it: of another moment than the state
cat >interrupt.py <<'PYTHON'
import signal, subprocess, sys
p = subprocess.Popen([sys.argv[1], "reproduce", *sys.argv[2:], "--device", "cpu", "--out", "stopped"],
                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
first = p.stderr.readline()
print("resumed" if "resumed at step" in first else f"not resumed: {first}")
p.send_signal(signal.SIGINT)
p.stderr.read()
print(p.wait())
PYTHON
cp -a stopped before
for ((i = 0; i < 20; i++)); do # on a busy machine the run may end before the signal
    python3 interrupt.py "$minrnn" "${one[@]}" >killed
    [ "$(tail -n 1 killed)" = 0 ] || break
    rm -rf stopped
    cp -a before stopped
done
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
mkdir -p merged/runs/selective-copy
exec 9>merged/runs/selective-copy/.lock
flock 9 # as a run does that will write the file
refused 1 'another minrnn' "$minrnn" reproduce --merge whole/selective-copy.json --out merged
exec 9>&-
sed 's/"experiment": "selective-copy"/"experiment": "..\/evil"/g' other/selective-copy.json >evil.json
refused 1 'does not know' "$minrnn" reproduce --merge evil.json --out merged
echo '[]' >list.json
refused 1 'list.json: has no rows; give a NAME.json' "$minrnn" reproduce --merge list.json --out merged
head -c 300 other/selective-copy.json >torn.json
refused 1 'torn.json' "$minrnn" reproduce --merge torn.json --out merged
cp torn.json merged/selective-copy.json
refused 1 'merged/selective-copy.json' "$minrnn" reproduce "${copy[@]}" --out merged
check "a broken file stays" same_files torn.json merged/selective-copy.json
run reproduce selective-copy parameters --quick --out merged
check "a broken file fails" [ $status -eq 1 ]
check "and a line says so" grep -q 'merged/selective-copy.json: row' err
check "the others are run" grep -q '^# ' out

# ---- a run's folder that was damaged
cp -a before damaged
for file in damaged/runs/*/*/log.jsonl; do : >"$file"; done
run reproduce "${one[@]}" --out damaged
check "a damaged run fails" [ $status -eq 1 ]
check "and is counted" grep -q '^0 done, 0 were there, 1 failed$' err
check "with what to do" grep -q 'remove damaged/runs/.* to start this run afresh' err
rm -r damaged/runs/*/*
done_by reproduce "${one[@]}" --out damaged
check "and then runs" same_rows unstopped/selective-copy.json damaged/selective-copy.json

# ---- measurements that the clock cuts
run reproduce inference --quick --budget 0.01s --out measured
check "measurements are left" grep -q 'not all measured: the same command continues' err
done_by reproduce inference --quick --out measured
check "and then not" [ -z "$(grep 'not all' err)" ]

# ---- data that is not there, a test part, a whole budget
refused 1 'data get shakespeare' "$minrnn" reproduce shakespeare --quick --quiet --out nodata
run reproduce all --quick --only minLSTM --out all
check "all continues without data" [ $status -eq 0 ]
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
step=$(python3 -c 'import json; print(json.load(open("target/forget-bias.json"))["rows"][0]["target_step"])')
check "its column" grep -q '| steps | best step | steps to target | time |' target/forget-bias.md
check "and its value" grep -qE "\| [0-9]+ \| [0-9]+ \| ${step%.*} \| [0-9:]+ \|" target/forget-bias.md

finish
