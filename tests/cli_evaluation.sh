#!/usr/bin/env bash
# train: evaluations that score a part of the test text, --max-seconds over everything, schedules that fit it, and the
# hint about overfitting. Nothing here depends on how fast the machine is.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
text=(text --data text.txt "${tiny[@]}")
test_tokens=$(python3 -c 'n = len(open("text.txt").read()); print(n - int(0.9 * n) - 1)')
commas() { python3 -c "print(f'{$1:,}')"; }

# ---- a part of the test text, and all of it at the end: what eval says
done_by "$minrnn" train "${text[@]}" --steps 12 --eval-every 5 --eval-tokens 512 --json --out part
check "--json: all was scored" json "d['scored'] == d['test_size'] == $test_tokens and d['unit'] == 'tokens'" out
mv out told
done_by "$minrnn" eval part/model.safetensors --data text.txt --json
check "the whole test text is what eval scores" json \
    "abs(d['loss'] - $(python3 -c 'import json; print(json.load(open("told"))["best_loss"])')) <= 1e-6" out
check "one line of the log is of the whole" [ "$(grep -c '"kind":"whole"' part/log.jsonl)" -eq 1 ]
done_by "$minrnn" train --out part --resume
check "complete already: all is scored again, as nobody knows how long it takes" \
    grep -q "(on all $(commas $test_tokens) test tokens)" out
check "one line of the log is of the whole" [ "$(grep -c '"kind":"whole"' part/log.jsonl)" -eq 1 ]
done_by "$minrnn" train "${text[@]}" --steps 12 --eval-every 5 --eval-tokens 0 --out whole
check "the same weights" same_files part/last.safetensors whole/last.safetensors
check "another loss" [ "$(grep '"kind":"eval"' part/log.jsonl | timeless /dev/stdin)" != \
    "$(grep '"kind":"eval"' whole/log.jsonl | timeless /dev/stdin)" ]
check "no line of the whole" [ "$(grep -c '"kind":"whole"' whole/log.jsonl)" -eq 0 ]
done_by "$minrnn" train "${text[@]}" --steps 12 --eval-every 5 --out usual
check "the default is more than this text has" cmp <(timeless usual/log.jsonl) <(timeless whole/log.jsonl)
check "the default" grep -qx 'eval-tokens = 200000' usual/recipe.ini

# ---- a folder that is older than the key keeps scoring everything
done_by "$minrnn" train "${text[@]}" --steps 6 --eval-every 5 --eval-tokens 512 --out older
sed -i '/^eval-tokens/d' older/recipe.ini
refused 1 'eval-tokens = 512, which cannot become 0' "$minrnn" train --out older --resume --steps 12
python3 - older/state.safetensors <<'PYTHON'
import json, struct, sys
content = open(sys.argv[1], "rb").read()
size, = struct.unpack("<Q", content[:8])
header = json.loads(content[8:8 + size])
del header["__metadata__"]["train.eval-tokens"]
text = json.dumps(header, separators=(",", ":")).encode()
open(sys.argv[1], "wb").write(content[:8] + text + b" " * (size - len(text)) + content[8 + size:])
PYTHON
refused 1 'eval-tokens = 0, which cannot become 512' "$minrnn" train --out older --resume --eval-tokens 512
done_by "$minrnn" train --out older --resume --steps 12
check "0 for an older folder" grep -qx 'eval-tokens = 0' older/recipe.ini

# ---- scores of different parts of the test text do not compete for the best
refused 1 'eval-tokens = 512, which cannot become 1024 now; leave --eval-tokens out' \
    "$minrnn" train --out part --resume --steps 20 --eval-tokens 1024

# ---- a large share to train on
done_by "$minrnn" train "${text[@]}" --split 0.9999 --steps 2 --out split
refused 1 'split' "$minrnn" train "${text[@]}" --split 1 --steps 2 --out nothing

# ---- no time: a step, a part of an evaluation, a model, and a line that says so
done_by "$minrnn" train "${text[@]}" --steps 1000 --max-seconds 1e-6 --out late
check "what was left out is said" grep -qE \
    "^time is up; step 1; best at step 1: test loss [0-9.]+, .*\(on 256 of $(commas $test_tokens) tokens: \
--max-seconds left no time for the rest\)$" out
check "and what to do" grep -qE '^to train longer: minrnn train --out late --resume --max-seconds [0-9.e-]+$' err
check "there is a model" [ -s late/model.safetensors ]
check "the longer limit that it suggests is beyond the time used" python3 - late/log.jsonl err <<'PYTHON'
import json, re, sys
used = json.loads(open(sys.argv[1]).readlines()[-1])["seconds"]
limit = float(re.search(r"^to train longer: .*--max-seconds (\S+)$", open(sys.argv[2]).read(), re.M)[1])
assert limit >= 2 * used, (limit, used)
PYTHON
check "the only evaluation counts, though it was cut short" [ "$(grep -c 'no time to evaluate' err)" -eq 0 ]
done_by "$minrnn" train --out late --resume
check "the limit is of the run, not of the call" grep -q '^time is up; step 1;' out
done_by "$minrnn" train --out late --resume --max-seconds 0 --steps 4
check "and can be lifted" grep -q '^step 4;' out
done_by "$minrnn" train --out late --resume --max-seconds 0 --eval-every 1000 --steps 6
done_by "$minrnn" train --out late --resume --max-seconds 1e-6 --steps 1000
check "a last step that was evaluated is not said to be missing" [ "$(grep -c 'no time to evaluate' err)" -eq 0 ]

# ---- the learning rate fits the limit: it falls with the time, though hardly any of the steps is done
for schedule in linear cosine; do
    for seconds in 1 2 4 8 16 32 64 128; do # until there is time for three steps
        rm -rf fits-$schedule
        done_by "$minrnn" train "${text[@]}" --steps 100000000 --warmup 0 --schedule $schedule --max-seconds $seconds \
            --eval-every 100000000 --out fits-$schedule
        [ "$(grep -c '"kind":"step"' fits-$schedule/log.jsonl)" -lt 3 ] || break
    done
    check "$schedule fits --max-seconds" python3 - fits-$schedule/log.jsonl <<'PYTHON'
import json, sys
steps = [line for line in map(json.loads, open(sys.argv[1])) if line["kind"] == "step"]
rates = [line["lr"] for line in steps]
assert all(a >= b for a, b in zip(rates, rates[1:])), "it rises"
assert len(rates) >= 3 and rates[-1] < 0.999 * rates[0], (len(rates), rates[0], rates[-1])
PYTHON
done
done_by "$minrnn" train "${text[@]}" --steps 100000000 --warmup 0 --schedule constant --max-seconds 0.5 \
    --eval-every 100000000 --out flat
check "constant stays" [ "$(grep -o '"lr":[^,]*' flat/log.jsonl | sort -u | wc -l)" -eq 1 ]

# ---- overfitting gets one line, with what to do; a run that learns gets none
head -c 1500 text.txt | iconv -c -f utf-8 -t utf-8 >short.txt
done_by "$minrnn" train text --data short.txt --dim 32 --layers 1 --context 32 --batch 8 --dropout 0 --weight-decay 0 \
    --lr 0.02 --schedule constant \
    --steps 300 --eval-every 20 --out learned-by-heart
check "the hint" [ \
    "$(grep -c '^hint: it overfits: since step [0-9]* the test loss rose from .* model.safetensors is the best point' \
        err)" -eq 1 ]
check "evaluations name the best one" grep -qE '^step 300: .*\(best at step [0-9]+\)$' err
check "the curve marks the best point" grep -q '>best [0-9.]*, step [0-9]*<' learned-by-heart/curve.svg
done_by "$minrnn" train "${text[@]}" --steps 60 --eval-every 20 --lr 0.01 --out learns
check "no hint for a run that learns" [ "$(grep -c hint: err)" -eq 0 ]
done_by "$minrnn" train learned-by-heart/recipe.ini --quiet --out quiet
check "--quiet: no hint" [ ! -s err ]

finish
