#!/usr/bin/env bash
# --log: log.csv and TensorBoard's event files say what log.jsonl says, also after a kill and --resume.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
text=(text --data text.txt "${tiny[@]}" --eval-every 4)

# same_numbers DIR: every number of log.jsonl is in log.csv, and the scalars in the file `scalars`
cat >same.py <<'PYTHON'
import csv, json, struct, sys
folder = sys.argv[1]
lines = [json.loads(line) for line in open(folder + "/log.jsonl")]
if "csv" in sys.argv[2:]:
    rows = list(csv.DictReader(open(folder + "/log.csv")))
    assert len(rows) == len(lines), (len(rows), len(lines))
    for row, line in zip(rows, lines):
        want = dict(line)
        want.pop("best", None)
        if line["kind"] != "step": want["test_loss"] = want.pop("loss")
        got = {k: v if k == "kind" else float(v) for k, v in row.items() if v != ""}
        assert got == want, (got, want)
if "events" in sys.argv[2:]:
    single = lambda x: struct.unpack("f", struct.pack("f", x))[0]
    want = {}
    for line in lines:
        for key in ("loss", "lr", "grad_norm", "tokens_per_s") if line["kind"] == "step" else ("loss", "accuracy"):
            tag = key if line["kind"] == "step" or key != "loss" else "test_loss"
            want.setdefault(tag, []).append([line["step"], single(line[key])])
    got = json.load(open("scalars"))
    assert got == want, (got, want)
PYTHON
same_numbers() { python3 same.py "$@"; }
# scalars DIR: by our own reader, and by TensorBoard where it is installed
tensorboard=yes
scalars() {
    done_by python3 "$tests/events.py" "$1"
    mv out scalars
    check "$1: the events are those of log.jsonl" same_numbers "$1" events
    run python3 "$tests/events.py" --tensorboard "$1"
    if [ $status -eq 77 ]; then tensorboard=no
    else check "$1: TensorBoard reads the same" json "d == $(cat scalars)" out
    fi
}

# ---- without --log there is log.jsonl alone
done_by "$minrnn" train "${text[@]}" --steps 8 --out plain
check "no other logs" [ -z "$(ls plain | grep -E 'csv|tfevents')" ]

# ---- both, at once and each alone; the numbers of the run are the same
done_by "$minrnn" train "${text[@]}" --steps 8 --log csv,tensorboard --out both
check "csv" same_numbers both csv
check "the header of log.csv" [ "$(head -n 1 both/log.csv)" = \
    kind,step,loss,test_loss,accuracy,lr,grad_norm,tokens_per_s,seconds ]
scalars both
check "the log is what it is without" cmp <(timeless plain/log.jsonl) <(timeless both/log.jsonl)
done_by "$minrnn" train "${text[@]}" --steps 5 --log csv --out rows
check "csv alone" [ -s rows/log.csv -a -z "$(ls rows | grep tfevents)" ]
done_by "$minrnn" train "${text[@]}" --steps 5 --log tensorboard --out events
check "tensorboard alone" [ ! -e events/log.csv -a "$(ls events | grep -c tfevents)" -eq 1 ]
for wrong in yaml csv,csv tensorboard,tensorboard csv, ,csv tensorboard,cs; do
    refused 1 'csv,tensorboard' "$minrnn" train "${text[@]}" --steps 5 --log $wrong --out none
done
done_by "$minrnn" train "${text[@]}" --steps 2 --log tensorboard,csv --out order
check "in either order" grep -qx 'log = csv,tensorboard' order/recipe.ini

# ---- a run that goes back to its checkpoint: what was undone goes from all three
done_by "$minrnn" train "${text[@]}" --schedule constant --steps 8 --log csv,tensorboard --out undone
cp -r undone checkpoint
done_by "$minrnn" train --out undone --resume --steps 11
for file in state.safetensors model.safetensors last.safetensors recipe.ini; do cp checkpoint/$file undone/$file; done
done_by "$minrnn" train --out undone --resume --steps 12
check "undone: the log" [ "$(grep -c '"kind":"step"' undone/log.jsonl)" -eq 12 ]
check "undone: csv" same_numbers undone csv
check "undone: three files of events" [ "$(ls undone | grep -c tfevents)" -eq 3 ]
scalars undone
done_by "$minrnn" train "${text[@]}" --schedule constant --steps 12 --out straight
check "undone: as if it had not been" cmp <(timeless straight/log.jsonl) <(timeless undone/log.jsonl)

# ---- a kill may leave a record that is cut off; --log may come later, and then has the whole log in log.csv
truncate -s -7 both/events.out.tfevents.0000000001.minrnn
done_by python3 "$tests/events.py" both
done_by "$minrnn" train --out both --resume --steps 10
done_by "$minrnn" train --out plain --resume --steps 10 --log csv
check "csv from step 1 on" same_numbers plain csv
rm plain/log.csv
done_by "$minrnn" train --out plain --resume --steps 12
check "a lost log.csv comes back" same_numbers plain csv

# ---- events that begin late, or begin again, have the steps in between, and none twice
done_by "$minrnn" train --out straight --resume --steps 14 --log tensorboard
scalars straight
done_by "$minrnn" train --out straight --resume --steps 16 --log jsonl
done_by "$minrnn" train --out straight --resume --steps 18 --log csv,tensorboard
check "begun again: csv" same_numbers straight csv
scalars straight
done_by "$minrnn" train --out straight --resume --steps 130 # numbers that take two bytes
scalars straight

[ $tensorboard = yes ] || echo \
    "skipped in part: TensorBoard is not installed, the events were read by tests/events.py alone"
finish
