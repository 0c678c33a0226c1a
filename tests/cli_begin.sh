#!/usr/bin/env bash
# How runs begin and are continued: from a model (--init), from files, pipes and standard input, with other keys on
# resume, and what is left when the disk is too small.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
make_text more.txt 1500 2
printf 'Ω is not in the other text, and neither is %%\n' >>more.txt
# warm-up and a constant rate: the same numbers whatever --steps says
how=(--schedule constant --warmup 3 --eval-every 10 --save-every 5)
data=(text --data text.txt "${how[@]}")
same_tensors() { python3 - "$@" <<'PYTHON'
import json, sys
def tensors(path):
    content = open(path, "rb").read()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header.pop("__metadata__", None)
    return {name: content[end + t["data_offsets"][0]:end + t["data_offsets"][1]] for name, t in header.items()}
a, b = map(tensors, sys.argv[1:])
sys.exit(not a or a != b)
PYTHON
}

# ---- --init: the weights, the configuration and the vocabulary of a model
done_by "$minrnn" train "${data[@]}" "${tiny[@]}" --steps 20 --out base
tuned=(text --data text.txt "${how[@]}" --context 32 --batch 8)
done_by "$minrnn" train "${tuned[@]}" --init base --lr 0 --weight-decay 0 --steps 1 --out still
check "with a rate of 0 the weights are the model's" same_tensors base/model.safetensors still/last.safetensors
check "it says what it starts from" grep -q 'starts from the weights of base (step' err
check "the step counts from 0" grep -q '"step":"1"' <(grep -ao '"step":"[0-9]*"' still/last.safetensors)
done_by "$minrnn" train "${tuned[@]}" --init base/model.safetensors --steps 20 --dropout 0.3 --out tuned
check "the shape is the model's" grep -qx 'dim = 16' tuned/recipe.ini
check "dropout is the run's own" grep -qx 'dropout = 0.3' tuned/recipe.ini
check "tokens are counted" grep -aq '"state.tokens":"5120"' tuned/state.safetensors # 20 steps of 8 times 32
check "the model is named from the root" grep -qx "init = $PWD/base/model.safetensors" tuned/recipe.ini
# a flag may say the same
check "no file of weights names a place" [ -z "$(grep -alF base/model.safetensors tuned/*.safetensors)" ]
done_by "$minrnn" train "${tuned[@]}" --init base --dim 16 --vocab chars --steps 1 --out repeated

# the same bits: stopped halfway, resumed without the model; and killed before anything was saved
done_by "$minrnn" train "${tuned[@]}" --init base/model.safetensors --steps 10 --dropout 0.3 --out halfway
mkdir early && cp halfway/recipe.ini early
mv base/model.safetensors away
done_by "$minrnn" train --out halfway --resume --steps 20
check "resumed: the same model" same_files tuned/model.safetensors halfway/model.safetensors
refused 1 '--init: .*base/model.safetensors: cannot be opened' "$minrnn" train --out early --resume
cp -r halfway damaged
LC_ALL=C sed -i 's/"vocab":"\[/"vocab":"x/' damaged/state.safetensors
refused 1 'damaged/state.safetensors: the vocabulary is neither' "$minrnn" train --out damaged --resume --steps 30
mv away base/model.safetensors
done_by "$minrnn" train --out early --resume --steps 20
check "killed early: the same model" same_files tuned/model.safetensors early/model.safetensors

# every kind of model, and other tasks
for mixer in minlstm gru attention; do
    flags=(--mixer $mixer)
    [ $mixer = attention ] && flags+=(--positions learned)
    done_by "$minrnn" train "${data[@]}" "${tiny[@]}" "${flags[@]}" --steps 2 --out "of-$mixer"
    done_by "$minrnn" train "${tuned[@]}" --init "of-$mixer" --lr 0 --weight-decay 0 --steps 1 --out "on-$mixer"
    check "$mixer: the weights" same_tensors "of-$mixer/model.safetensors" "on-$mixer/last.safetensors"
done
copy=(selective-copy --tokens 2 --eval-batches 1 --batch 4 --steps 2)
done_by "$minrnn" train "${copy[@]}" --length 10 --dim 8 --layers 1 --out copy
done_by "$minrnn" train "${copy[@]}" --length 20 --init copy --out longer

refused 1 '--dim 32: the model of --init has dim = 16' "$minrnn" train "${tuned[@]}" --init base --dim 32 --out no
refused 1 '--mixer gru: the model of --init has mixer = mingru' "$minrnn" train "${tuned[@]}" --init base --mixer gru \
    --out no
refused 1 '--vocab bytes: the model of --init has vocab = chars' "$minrnn" train "${tuned[@]}" --init base \
    --vocab bytes --out no
refused 1 'selective-copy needs a model with .* this one has' "$minrnn" train "${copy[@]}" --init base --out no
refused 1 'has no vocabulary' "$minrnn" train "${tuned[@]}" --init copy --out no
refused 1 'nowhere: cannot be opened' "$minrnn" train "${tuned[@]}" --init nowhere --out no
refused 1 '--init: text.txt' "$minrnn" train "${tuned[@]}" --init text.txt --out no
done_by "$minrnn" quantize base/model.safetensors --data text.txt --out eight
refused 1 'its weights are in 8 bits, which are not trained' "$minrnn" train "${tuned[@]}" --init eight --out no
refused 1 '--init is for new runs' "$minrnn" train --out halfway --resume --init copy
refused 1 '--init is for new runs.*random weights' "$minrnn" train --out base --resume --init copy
check "refused: no run was started" [ ! -e no/recipe.ini ]

# ---- --unknown: characters that the model's vocabulary lacks
other=(text --data more.txt "${how[@]}" --context 32 --batch 8 --init base --steps 2)
refused 1 'more.txt, line [0-9]+, byte [0-9]+: the character U\+03A9 .*--unknown skip' "$minrnn" train "${other[@]}" \
    --out no
done_by "$minrnn" train "${other[@]}" --unknown skip --out skipped
check "skipped: counted" grep -q '3 characters that the vocabulary lacks were skipped' err
done_by "$minrnn" train "${other[@]}" --unknown replace --out replaced
check "replaced: counted" grep -q '3 characters that the vocabulary lacks were replaced' err
done_by "$minrnn" train --out skipped --resume --steps 4
refused 1 'the run has unknown = skip' "$minrnn" train --out skipped --resume --unknown replace
done_by "$minrnn" eval base/model.safetensors --data more.txt --unknown skip

# ---- data: several files, standard input, pipes
run_on() { local out=$1; shift; done_by "$minrnn" train text "${tiny[@]}" --steps 6 "$@" --out "$out"; }
cat text.txt more.txt >both.txt
run_on whole --data both.txt
run_on several --data text.txt --data more.txt
check "several files are one text" same_files whole/last.safetensors several/last.safetensors
check "a line each in recipe.ini" cmp -s <(grep '^data' several/recipe.ini) \
    <(printf 'data = %s\n' "$PWD/text.txt" "$PWD/more.txt")
run_on piped --data - <both.txt
check "standard input is the same text" same_files whole/last.safetensors piped/last.safetensors
run_on fifo --data <(cat text.txt) --data more.txt
check "a pipe and a file are one text" same_files whole/last.safetensors fifo/last.safetensors
for name in piped fifo; do
    check "$name: a copy in the folder" same_files both.txt $name/data.txt
    check "$name: the recipe names it" grep -qx "data = $PWD/$name/data.txt" $name/recipe.ini
done
done_by "$minrnn" train --out whole --resume --steps 9
mkdir elsewhere
(cd elsewhere && "$minrnn" train --out ../several --resume --steps 9) >out 2>err
check "resumed from another folder" same_files whole/last.safetensors several/last.safetensors
mv piped moved
done_by "$minrnn" train --out moved --resume --steps 9
check "resumed after the folder was moved" same_files whole/last.safetensors moved/last.safetensors
done_by "$minrnn" train text "${tiny[@]}" --steps 9 --data - --out fifo --resume </dev/null # the copy is its data
check "resumed with the whole command line" same_files whole/last.safetensors fifo/last.safetensors
done_by "$minrnn" eval whole/model.safetensors --data - <both.txt

before=$(snapshot whole)
refused 1 'holds a run' "$minrnn" train text --data - --out whole <text.txt
check "refused before anything was copied" [ "$before" = "$(snapshot whole)" ]
refused 1 'standard input is empty' "$minrnn" train text --data - --out no </dev/null
rm -rf no
refused 1 'standard input can be given once' "$minrnn" train text --data - --data text.txt --data - --out no <text.txt
check "it was refused before anything was written" [ ! -e no ]
refused 1 'standard input can be given once' "$minrnn" eval whole --data - --data - <text.txt
refused 1 '--data: a path with a line break' "$minrnn" train text --data "text.txt
more.txt" --out no
refused 1 'recipe.ini cannot hold a blank with a semicolon' "$minrnn" train text --data - --out 'no ;no' <text.txt
check "the copy of standard input was not made" [ ! -e 'no ;no' ]
cp text.txt 'odd ; name.txt'
for names in "odd ; name.txt|text.txt" "text.txt|odd ; name.txt" "text.txt|odd ; name.txt|more.txt"; do
    IFS='|' read -ra list <<<"$names"
    refused 1 '--data odd ; name\.txt: recipe.ini cannot hold a blank with a semicolon' \
        "$minrnn" train text "${list[@]/#/--data=}" --out no
done
mkfifo silent
refused 1 'silent is empty' "$minrnn" train text --data silent --out no
refused 1 'is a device' "$minrnn" train text --data /dev/zero --out no
refused 1 'is a directory' "$minrnn" train text --data text.txt --data elsewhere --out no
refused 1 'missing.txt: cannot be opened' "$minrnn" train text --data text.txt --data missing.txt --out no
refused 1 'missing.txt: cannot be opened' "$minrnn" train text --data - --data missing.txt --out no <text.txt
refused 1 'shorter than 1024 bytes' "$minrnn" train text --data "$(printf 'x%.0s' {1..600})" \
    --data "$(printf 'y%.0s' {1..600})" --out no
check "nothing was kept of what was refused" [ ! -e no/data.txt ]
printf '[task]\nname = text\ndata = text.txt\ndata = more.txt\n[train]\nsteps = 2\n' >mine.ini
done_by "$minrnn" train mine.ini --out mine "${tiny[@]}"
check "a recipe may have several" [ "$(grep -c '^data = ' mine/recipe.ini)" -eq 2 ]
printf 'vocab = chars\nvocab = chars\n' | cat <(printf '[task]\nname = text\n') - >twice.ini
refused 1 'vocab is given twice' "$minrnn" train twice.ini --out no
# a path that recipe.ini cannot hold from the root stays as it was given
deep=$(printf 'd%.0s' {1..120})
mkdir -p "$deep/$deep" && cp text.txt "$deep/$deep/"
(
    cd "$deep/$deep" && "$minrnn" train text --data text.txt "${tiny[@]}" --steps 1 --out r &&
        grep -qx 'data = text.txt' r/recipe.ini
) >out 2>err
check "a long path" [ $? -eq 0 ]

# ---- other keys on resume
done_by "$minrnn" train "${data[@]}" "${tiny[@]}" --steps 10 --lr 0.01 --out slower
done_by "$minrnn" train --out slower --resume --steps 14 --lr 1e-4 --weight-decay 0.2 --clip 0.5 --schedule linear \
    --warmup 0
check "what changes is said" grep -q \
    'from here on: steps = 14 (was 10), lr = 0.0001 (was 0.01), schedule = linear (was constant)' err
check "and recorded" grep -qx 'lr = 0.0001' slower/recipe.ini
# steps count from the start of the run: 4 of 14 are left, so the rate falls from 4/14 of 1e-4
check "the rate is that of step 11 of 14" python3 - slower/log.jsonl <<'PYTHON'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
rates = {d["step"]: d["lr"] for d in lines if d["kind"] == "step"}
assert abs(rates[10] - 0.01) < 1e-9, rates
for step in range(11, 15):
    want = 1e-4 * (1 - (step - 1) / 14)
    assert abs(rates[step] - want) <= 1e-6 * want, (step, rates[step], want)
PYTHON
for flag in "batch 4" "seed 9" "optimizer adam" "betas 0.8,0.9" "context 16" "accumulate 2" "split 0.8" "layers 3"; do
    # shellcheck disable=SC2086 # flag and value
    refused 1 "the run has ${flag% *} = .* leave --${flag% *} out" "$minrnn" train --out slower --resume --${flag}
done
refused 1 'no: there is no run to resume; to start one' "$minrnn" train --out no --resume
cp -r slower bare && rm bare/recipe.ini
refused 1 'its recipe.ini is missing' "$minrnn" train --out bare --resume
# the recipe and the flags again: seven keys differ from the defaults
done_by "$minrnn" train text --data text.txt "${tiny[@]}" --eval-every 10 --steps 15 --out bare --resume

# ---- a disk that is too small: the best model is kept (a limit on the size of files stands in for it)
small() { # KiB COMMAND…
    local limit=$1
    shift
    (ulimit -f "$limit" && exec "$@")
}
state=$(stat -c %s base/state.safetensors) model=$(stat -c %s base/model.safetensors)
between=$(((state + model) / 2 / 1024))
refused_after() { # PATTERN COMMAND…: fails, and the last line on stderr matches
    local pattern=$1
    shift
    run "$@"
    checks=$((checks + 1))
    [ $status -eq 1 ] && tail -n 1 err | grep -qE -- "$pattern" || fail "status $status, $(tail -n 1 err)"
}
disk=(train text --data text.txt "${tiny[@]}" --eval-every 5 --save-every 5 --schedule constant --eval-tokens 300)
refused_after 'full/state.safetensors: cannot be .*the best model \(step 5\) is saved, but no state.*--init full' \
    small $between "$minrnn" "${disk[@]}" --steps 20 --out full
done_by "$minrnn" info full/model.safetensors
check "no halves are left" [ -z "$(find full -name '*.tmp')" ]
refused 1 'full: has a model but no state to resume from' "$minrnn" train --out full --resume
done_by "$minrnn" "${disk[@]}" --steps 5 --out filled
refused_after 'the best model \(step 10\) is saved; once it can be .*, resume: minrnn train --out filled --resume' \
    small $between "$minrnn" train --out filled --resume --steps 20
# the state is at step 5 and the model at step 10, which no earlier one replaces
cp filled/model.safetensors later
refused_after 'the later model \(step 10\) is kept; once it can be' \
    small $between "$minrnn" train --out filled --resume --steps 20 --save-every 3
check "full again: the later model is there" same_files later filled/model.safetensors
cp -r filled unread && head -c 3000 later >unread/model.safetensors
cp -r filled nan && { head -c -4 later; printf '\0\0\300\177'; } >nan/model.safetensors
done_by "$minrnn" train text --data text.txt "${tiny[@]}" --mixer minlstm --steps 12 --out lstm
cp -r filled foreign && cp lstm/model.safetensors foreign/
for dir in unread nan foreign; do
    done_by "$minrnn" train --out $dir --resume --steps 7
    done_by "$minrnn" info $dir --json
    check "$dir: made again from the state" json '0 < d["step"] <= 7' out
done
done_by "$minrnn" train --out filled --resume --steps 7
check "ended earlier: the later model is there" same_files later filled/model.safetensors
check "which is not scored for the earlier one" grep -q 'tokens: model.safetensors is of a later step)$' out
check "and a line says so" [ "$(grep -c 'model.safetensors is kept: it is of step 10' err)" -eq 1 ]
done_by "$minrnn" train --out filled --resume --steps 10
check "come there again: the same bits" same_files later filled/model.safetensors
check "and nothing is kept" [ "$(grep -c 'is kept' err)" -eq 0 ]
done_by "$minrnn" train --out filled --resume --steps 20
done_by "$minrnn" "${disk[@]}" --steps 20 --out roomy
check "resumed with room: the same model" same_files filled/model.safetensors roomy/model.safetensors
refused_after 'could not be saved either' \
    small 16 "$minrnn" train text --data text.txt "${tiny[@]}" --steps 20 --eval-every 5 --save-every 5 --out fuller

finish
