#!/usr/bin/env bash
# minrnn reproduce: which data, and which model to start from, a result is of. Rows of other data are outdated, and runs
# that were begun on it start over.
source "$(dirname "$0")/cli_support.bash"
reproduce() { "$minrnn" reproduce "$@" --device cpu; }

cat >mine.ini <<'INI'
[experiment]
summary = a text of my own
recipe = text
score = loss
[ours]
data = mine.txt
context = 16
batch = 4
dim = 8
layers = 1
steps = 4
eval-every = 4
[row small]
[row large]
dim = 16
INI
printf 'a text to learn from, %s; ' {1..60} >mine.txt
done_by reproduce mine.ini --out data
check "a row names its data" \
    json 'len({r["data"] for r in d["rows"]}) == 1 and all(len(r["data"]) == 16 and int(r["data"], 16) >= 0
        for r in d["rows"])' data/mine.json
cp data/mine.json first.json
done_by reproduce mine.ini --out data
check "the same data is not run again" grep -q '^0 done, 2 were there$' err
sed -i 's/learn/train/g' mine.txt
run reproduce mine.ini --out data --budget 0.000001s
check "other data is noticed" grep -q '^0 done, 0 were there, 2 outdated because the data, .* has changed, 2 left' err
check "its rows are outdated" json 'len(d["rows"]) == 2 and all(r["outdated"] == 1 for r in d["rows"])' data/mine.json
check "and called so" grep -q '(outdated)' data/mine.md
done_by reproduce mine.ini --out data --json
check "they are run again" json 'len(d) == 2 and all(g["seeds"] == 1 for g in d)' out
cp data/mine.json second.json
check "and name the new data" python3 - <<'PYTHON'
import json
first, second = ({r["row"]: r for r in json.load(open(f))["rows"]} for f in ("first.json", "second.json"))
assert all(second[k]["data"] != first[k]["data"] and second[k]["score"] != first[k]["score"]
        and "outdated" not in second[k] for k in first), second
PYTHON
mv mine.txt gone.txt
done_by reproduce mine.ini --out data
check "without its data a row counts" grep -q '^0 done, 2 were there$' err
mkdir unnamed && sed 's/"test_set": "[^"]*", //' data/mine.json >unnamed/mine.json
run reproduce mine.ini --out unnamed --budget 0.000001s
check "but not where it names no test set" grep -q '^0 done, 0 were there, 2 outdated' err
mv gone.txt mine.txt

# the context decides which sequences are scored, so rows of different contexts have different test sets
sed 's/^dim = 16/context = 32/' mine.ini >contexts.ini
done_by reproduce contexts.ini --out contexts
check "two contexts, two test sets" json 'len({r["test_set"] for r in d["rows"]}) == 2' contexts/contexts.json
done_by reproduce contexts.ini --out contexts
check "each row is compared with its own" grep -q '^0 done, 2 were there$' err

# an unfinished run whose data has changed starts over
sed 's/^steps.*/steps = 100000000\nsave-every = 1/; /^\[row large/,$d' mine.ini >begun.ini
has_state() { compgen -G 'begun/runs/begun/*/state.safetensors' >/dev/null; }
stop_begun() { # stops the only run of begun.ini once it has a state
    rm -f err
    "$minrnn" reproduce begun.ini --out begun --device cpu 2>err &
    local pid=$!
    for ((i = 0; i < 1200; i++)); do grep -qs 'parameters' err && has_state && break; sleep 0.05; done
    kill -INT $pid
    wait $pid
    check "stopped" [ $? -eq 130 ]
    check "it has a state" has_state
}
stop_begun
sed -i 's/train/learn/g' mine.txt
stop_begun
check "other data: it starts over" grep -q 'small/.*: its data or the model of init has changed: .* starts over' err
check "from step 0" [ "$(grep -c 'resumed at step' err)" -eq 0 ]
stop_begun
check "the same data: it is resumed" grep -q 'resumed at step' err
check "and nothing is printed" [ "$(grep -c 'starts over' err)" -eq 0 ]

# the model that a run starts from
done_by "$minrnn" train text --data mine.txt --context 16 --batch 4 --dim 8 --layers 1 --steps 2 --out im
done_by "$minrnn" train text --data mine.txt --context 16 --batch 4 --dim 8 --layers 1 --steps 3 --out im2
cp im/model.safetensors im.safetensors
sed '/^\[row large/,$d; s/^dim.*/init = im.safetensors/; /^layers/d' mine.ini >from.ini
done_by reproduce from.ini --out from
done_by reproduce from.ini --out from
check "the same model" grep -q '^0 done, 1 were there$' err
mv im.safetensors im-gone
done_by reproduce from.ini --out from
check "without the model the row counts" grep -q '^0 done, 1 were there$' err
cp im2/model.safetensors im.safetensors
done_by reproduce from.ini --out from
check "another model" grep -q '^1 done, 0 were there, 1 outdated because .* the model of init, .* has changed$' err

# a text is read with the vocabulary of that model, which may have characters that the text has not
printf 'Zebra! ' | cat - mine.txt >wide.txt
done_by "$minrnn" train text --data wide.txt --context 16 --batch 4 --dim 8 --layers 1 --steps 2 --out wide
sed 's/im.safetensors/wide/' from.ini >widened.ini
done_by reproduce widened.ini --out widened
done_by reproduce widened.ini --out widened
check "a model with more characters" grep -q '^0 done, 1 were there$' err

# kept models are in nobody's way, also when the rows are gone
done_by reproduce from.ini --out from --again --keep
rm from/from.json
done_by reproduce from.ini --out from
check "run again" grep -q '^1 done, 0 were there$' err
sed 's/"data": "[^"]*", //' first.json >data/mine.json # as older versions wrote it
done_by reproduce mine.ini --out data --json
check "a row that names no data counts" grep -q '^0 done, 2 were there$' err
check "and says so in JSON" json 'len(d) == 2 and all(g["data"] == "unknown" for g in d)' out
sed -i 's/"seed": 1,/"seed": 2,/' first.json
mkdir -p two && cp second.json two/mine.json
done_by "$minrnn" reproduce --merge first.json mine.ini --out two
check "seeds of other data have a mean of their own" grep -c '^| small | test loss |.* | 1 |' two/mine.md
check "not one of both" [ -z "$(grep '± .* | 2 |' two/mine.md)" ]
finish
