#!/usr/bin/env bash
# The folder of a run: files in it that are somebody else's stay, and so does a model that has lost its state; a run
# that lost its log continues; a folder that was moved is still a run.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 1500 1
make_text other.txt 1500 2
small=("${tiny[@]}" --steps 6 --eval-every 3 --save-every 3 --schedule constant)
data=(text --data text.txt "${small[@]}")
untouched() { # DIR PATTERN COMMAND…: refused, and no file of the folder is changed or added
    local dir=$1 pattern=$2 before
    shift 2
    before=$(snapshot "$dir")
    refused 1 "$pattern" "$@"
    check "$dir: as it was" [ "$before" = "$(snapshot "$dir")" ]
}

# ---- a model without its state
done_by "$minrnn" train "${data[@]}" --out whole
cp -r whole lost && rm lost/state.safetensors
lost='lost: has a model but no state to resume from; .*--init lost --out ANOTHER'
untouched lost "$lost" "$minrnn" train --out lost --resume --steps 10
untouched lost "$lost" "$minrnn" train text --data other.txt "${small[@]}" --out lost --resume
untouched lost "$lost" "$minrnn" train text --data - "${small[@]}" --out lost --resume <other.txt
untouched lost "$lost" "$minrnn" train "${data[@]}" --out lost
rm lost/recipe.ini
untouched lost "$lost" "$minrnn" train --out lost --resume
rm lost/model.safetensors # last.safetensors is a model, too
untouched lost "$lost" "$minrnn" train "${data[@]}" --out lost --resume
done_by "$minrnn" train text --data text.txt --init whole --steps 1 --batch 8 --context 32 --out further

# ---- files that no run wrote
for name in log.jsonl curve.svg log.csv data.txt recipe.ini last.safetensors model.safetensors; do
    mkdir "own-$name" && echo mine >"own-$name/$name"
    what="has a file $name that no run wrote.*give another --out, or move"
    [[ $name == *.safetensors ]] && what='has a model but no state'
    for resume in '' --resume; do
        # shellcheck disable=SC2086 # a flag or nothing
        untouched "own-$name" "$what" "$minrnn" train text --data - "${small[@]}" --log csv --out "own-$name" $resume \
            <text.txt
        [ $name = data.txt ] && continue
        # shellcheck disable=SC2086
        untouched "own-$name" "$what" "$minrnn" train "${data[@]}" --log csv --out "own-$name" $resume
    done
done
printf '[task]\nname = text\ndata = text.txt\n; mine\n' >own-recipe.ini/recipe.ini
untouched own-recipe.ini 'a file recipe.ini that no run wrote' "$minrnn" train own-recipe.ini/recipe.ini "${small[@]}" \
    --out own-recipe.ini
mkdir input && cp text.txt input/data.txt
untouched input 'a file data.txt that no run wrote' "$minrnn" train text --data <(cat other.txt) \
    --data input/data.txt "${small[@]}" --out input
done_by "$minrnn" train text --data input/data.txt "${small[@]}" --out input # which it does not write
check "read, not written" same_files text.txt input/data.txt
mkdir notes && echo mine >notes/notes.txt && echo mine >notes/log.csv
done_by "$minrnn" train "${data[@]}" --out notes
check "what the run does not write stays" [ "$(cat notes/notes.txt notes/log.csv)" = $'mine\nmine' ]

# a run that failed in its beginning leaves nothing that stands in the way of the next try
refused 1 'lower --context' "$minrnn" train text --data - --context 1000000 --out again <text.txt
check "nothing is left" [ -z "$(snapshot again)" ]
refused 1 'GB of memory are needed' "$minrnn" train text --data - --dim 16384 --layers 16 --context 8 --out again \
    <text.txt
check "nothing is left of a model that is too large" [ -z "$(snapshot again)" ]
refused 1 'the model of --init has dim' "$minrnn" train text --data - --init whole --dim 8 --context 8 --out again \
    <text.txt
check "nothing is left of a flag that contradicts" [ -z "$(snapshot again)" ]
done_by "$minrnn" train text --data - "${small[@]}" --out again <text.txt
check "the same model" same_files whole/model.safetensors again/model.safetensors

# killed early: with the recipe alone, with the copy of the data, with an empty log
for left in '' data.txt 'data.txt log.jsonl' 'log.jsonl log.csv curve.svg'; do
    rm -rf early && mkdir early
    for name in recipe.ini $left; do cp "again/$name" early/ 2>/dev/null || : >"early/$name"; done
    sed -i 's|/again/|/early/|' early/recipe.ini
    done_by "$minrnn" train text --data - "${small[@]}" --out early --resume <text.txt
    check "$left: the same model" same_files whole/model.safetensors early/model.safetensors
done

rm -rf early && mkdir early && sed 's|/again/|/early/|' again/recipe.ini >early/recipe.ini
untouched early 'early/data.txt: the run was ended before its data was copied' "$minrnn" train --out early --resume

# ---- a lost log
done_by "$minrnn" train "${data[@]}" --log csv --out logless
rm logless/log.jsonl
done_by "$minrnn" train --out logless --resume --steps 9
check "it says so" grep -q 'log.jsonl is missing: another one begins at step 7' err
check "the log has the steps since" [ "$(grep -c '"kind":"step"' logless/log.jsonl)" -eq 3 ]
check "so has log.csv" [ "$(grep -c '^step,' logless/log.csv)" -eq 3 ]
done_by "$minrnn" train --out logless --resume --steps 12
check "and it is continued" [ "$(grep -c '"kind":"step"' logless/log.jsonl)" -eq 6 ]
done_by "$minrnn" train "${data[@]}" --out short
: >short/log.jsonl
untouched short 'log.jsonl: has 0 bytes.*remove this one and resume: only the log is lost' \
    "$minrnn" train --out short --resume --steps 9
cp -r whole damaged && sed -i '3s/step/stop/' damaged/log.jsonl
untouched damaged 'log.jsonl: line 3 is not a step.*remove this one and resume: only the log is lost' \
    "$minrnn" train --out damaged --resume --steps 9
cp whole/log.jsonl damaged/ && echo torn >>damaged/log.jsonl # after the checkpoint: cut off, as what a kill leaves
done_by "$minrnn" train --out damaged --resume --steps 9
cp -r whole spreadsheet && echo mine >spreadsheet/log.csv
untouched spreadsheet 'log.csv: no run wrote this file' "$minrnn" train --out spreadsheet --resume --steps 9 --log csv
rm spreadsheet/log.csv
done_by "$minrnn" train --out spreadsheet --resume --steps 9 --log csv
done_by "$minrnn" train --out spreadsheet --resume --steps 12 # its own

# ---- a spoiled state, a lost recipe, a folder that is in use already
cp -r whole spoiled && echo nonsense >spoiled/state.safetensors
way='spoiled/state.safetensors: not a .*with --init spoiled --out ANOTHER'
untouched spoiled "$way" "$minrnn" train --out spoiled --resume
untouched spoiled "$way" "$minrnn" train "${data[@]}" --out spoiled
rm spoiled/{model,last}.safetensors
untouched spoiled 'not a .*the run is lost: remove spoiled' "$minrnn" train --out spoiled --resume
cp -r whole bare && rm bare/recipe.ini
untouched bare 'the run has dim = 16, not .*its recipe.ini is missing; add --dim 16$' "$minrnn" train text \
    --data text.txt --out bare --resume
refused 2 'whole holds a run: add --resume to continue it, or name a recipe' "$minrnn" train --out whole
printf 'Ω' | cat - other.txt >greek.txt
untouched whole 'whole: holds a run already' "$minrnn" train text --data greek.txt --init whole --out whole

# ---- what is printed on resume
done_by "$minrnn" train --out short/../whole --resume --steps 5
check "there already" grep -q 'the run is at step 6 already' err
done_by "$minrnn" train "${data[@]}" --lr 0.01 --out worse
best=$(grep -o '"best":true' worse/log.jsonl | wc -l)
check "it has a best step" [ "$best" -ge 1 ]
done_by "$minrnn" train --out worse --resume --steps 9 --lr 10 --clip 0
check "the best is older than the resume" grep -qE '^step 9: (test|validation) loss .* \(best at step [36]\)$' err

# ---- eval: moved, and edited
done_by "$minrnn" train text --data - "${small[@]}" --out piped <text.txt
mv piped moved
for model in moved moved/model.safetensors; do
    done_by "$minrnn" eval $model
    check "$model: its copy" grep -q 'data: moved/data.txt' err
done
check "eval: nothing has changed" [ "$(grep -c 'has changed' err)" -eq 0 ]
(cd moved && "$minrnn" eval model.safetensors) >out 2>err
check "from inside" [ $? -eq 0 ]
done_by "$minrnn" quantize moved --out eight.safetensors
check "quantize finds the copy" grep -q 'data: moved/data.txt' err
done_by "$minrnn" eval whole
check "the same data: nothing is printed" [ "$(grep -c 'has changed' err)" -eq 0 ]
cp text.txt kept.txt
head -c 4000 other.txt >>text.txt
done_by "$minrnn" eval whole
check "edited: told once" [ "$(grep -c 'the data has changed since the run was trained on it' err)" -eq 1 ]
done_by "$minrnn" eval whole --data text.txt # which was asked for
check "data that was asked for" [ "$(grep -c 'has changed' err)" -eq 0 ]
done_by "$minrnn" quantize whole --out eight.safetensors
check "quantize: told once" [ "$(grep -c 'the data has changed since the run was trained on it' err)" -eq 1 ]
mv kept.txt text.txt

# ---- the copy of a run is its own, not that of a run that has its old place
mv moved p2 && sed -i "s|/piped/|/p1/|" p2/recipe.ini
done_by "$minrnn" train text --data - "${small[@]}" --out p1 <other.txt
done_by "$minrnn" eval p2
check "eval" grep -q 'data: p2/data.txt' err
done_by "$minrnn" quantize p2 --out eight.safetensors
check "quantize" grep -q 'data: p2/data.txt' err
done_by "$minrnn" train --out p2 --resume --steps 9
check "train" grep -q 'the data is p2/data.txt' err
check "the other run has its own" same_files other.txt p1/data.txt
# a run that began from a file has no copy
cp -r whole filed && cp other.txt filed/data.txt
untouched filed 'filed/data.txt: is not this run.s: it began with --data .*text.txt; leave --data out' \
    "$minrnn" train text --data - "${small[@]}" --out filed --resume <text.txt
done_by "$minrnn" train --out filed --resume --steps 9

# ---- names that are files for this process alone
for name in /dev/stdin /dev/fd/5 /proc/self/fd/5; do
    rm -rf passing
    done_by "$minrnn" train text --data $name "${small[@]}" --out passing <text.txt 5<text.txt
    check "$name: copied" same_files text.txt passing/data.txt
    check "$name: named" grep -qx "data = $PWD/passing/data.txt" passing/recipe.ini
    check "$name: the same model" same_files whole/model.safetensors passing/model.safetensors
done

# ---- many files
long=$(printf 'd%.0s' {1..20})
mkdir "$long"
files=()
for i in {1..200}; do
    name=$long/$(printf '%03d' "$i").txt
    cp text.txt "$name"
    files+=(--data "$name")
done
done_by "$minrnn" train text "${files[@]:0:70}" "${small[@]}" --out many
check "35 files stay relative" grep -qx "data = $long/001.txt" many/recipe.ini
check "it says so" grep -q '^data stays relative in recipe.ini.*resume from this folder$' err
done_by "$minrnn" train text "${files[@]:0:20}" "${small[@]}" --out few
check "10 do not" grep -qx "data = $PWD/$long/001.txt" few/recipe.ini
check "and nothing is printed" [ "$(grep -c 'stays relative' err)" -eq 0 ]
refused 1 'shorter than 1024 bytes; `cat FILES… >ONE` makes one file' "$minrnn" train text "${files[@]:0:100}" --out no
refused 2 'at most 128 flags can be given, and --data is one too many; `cat FILES… >ONE`' \
    "$minrnn" train text "${files[@]}" --out no
check "nothing is left of those" [ ! -e no ]

finish
