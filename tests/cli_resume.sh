#!/usr/bin/env bash
# A run ends with the same bits whatever its threads, and however often it was killed and resumed.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
steps=400 kills=3
[ "$slow" = 1 ] && steps=60 kills=2
# eval-every does not divide steps; save-every is small so that kills fall into saves too
recipe=(text --data text.txt "${tiny[@]}" --dropout 0.2 --steps "$steps" --eval-every 37 --save-every 29)

same_run() { # WHAT DIR: the same as the run that nobody disturbed
    check "$1: last.safetensors differs" same_files whole/last.safetensors "$2/last.safetensors"
    check "$1: model.safetensors differs" same_files whole/model.safetensors "$2/model.safetensors"
    check "$1: log.jsonl differs" cmp <(timeless whole/log.jsonl) <(timeless "$2/log.jsonl")
    check "$1: leftovers" [ -z "$(find "$2" -name '*.tmp')" ]
}

# ---- threads
done_by "$varied" train "${recipe[@]}" --out whole --threads 1
done_by "$varied" train "${recipe[@]}" --out two --threads 2
same_run "two threads" two
done_by "$varied" train "${recipe[@]}" --out seed2 --threads 2 --seed 2
check "another seed gives another model" [ "$(sum_of whole/last.safetensors)" != "$(sum_of seed2/last.safetensors)" ]
check "lines in the log" [ "$(grep -c '"kind":"step"' whole/log.jsonl)" -eq "$steps" ]

# ---- stopped at random moments
cat >stop_at.py <<'PYTHON'
"""stop_at.py SIGNAL SECONDS COMMAND…: sends the signal after so many seconds. Prints how the command ended:
its exit status, or signal=N; then the last line that it wrote on stderr. SECONDS "started": once it has
written its first line."""
import signal, subprocess, sys
name, seconds, command = sys.argv[1], sys.argv[2], sys.argv[3:]
p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
first = p.stderr.readline() if seconds == "started" else b""
try:
    p.wait(0.02 if first else float(seconds))
except subprocess.TimeoutExpired:
    p.send_signal(getattr(signal, "SIG" + name))
text = (first + p.stderr.read()).decode()
lines = text.splitlines()
code = p.wait()
if "Sanitizer" in text:
    print(text, file=sys.stderr)
print(code if code >= 0 else f"signal={-code}")
print(lines[-1] if lines else "")
PYTHON

# The time that a whole run takes, so that moments fall anywhere into it.
whole_time=$(python3 - "$minrnn" "${recipe[@]}" <<'PYTHON'
import subprocess, sys, time
began = time.monotonic()
subprocess.run([sys.argv[1], "train", *sys.argv[2:], "--out", "timed", "--quiet"], check=True,
               stdout=subprocess.DEVNULL)
print(time.monotonic() - began)
PYTHON
)
moment() {
    python3 -c 'import random, sys; print(random.uniform(0, float(sys.argv[1]) / float(sys.argv[2])))' \
        "$whole_time" "$1"
}

# A line that says how to continue comes with the exit status, or that there was nothing yet but reading; only a signal
# before the first line of all may end the process.
ended_well() { # SIGNAL STATUS
    case $1 in
    KILL) [ "$ending" = signal=9 ] || [ "$ending" = 0 ] ;;
    *)  [ "$ending" = 0 ] || { [ "$ending" = "$2" ] && [[ $last_line == *"minrnn train --out"*"--resume"* ]]; } ||
            { [ "$ending" = "$2" ] && [[ $last_line == *"stopped while "*"text.txt was read"* ]]; } ||
            { [[ $ending == signal=* ]] && [ -z "$last_line" ]; } ;;
    esac
}

for signal in KILL:137 TERM:143 INT:130; do
    name=${signal%:*} code=${signal#*:} dir=killed-$name stopped=0 share=2
    for ((i = 0; stopped < kills && i < 10 * kills; i++)); do
        # in turn: the whole command line again, or the folder alone
        how=("${recipe[@]}")
        [ $((i % 2)) -eq 1 ] && [ -f "$dir/recipe.ini" ] && how=()
        { read -r ending; read -r last_line; } < <(python3 stop_at.py "$name" "$(moment $share)" \
            "$varied" train "${how[@]}" --out "$dir" --resume --threads $((1 + i % 2)))
        check "$name ended with $ending, \"$last_line\"" ended_well "$name" "$code"
        if [ "$ending" = 0 ]; then # too late: from the start again, and earlier
            rm -rf "$dir"
            share=$((share * 2))
        else stopped=$((stopped + 1))
        fi
    done
    check "$name: stopped $stopped times, not $kills" [ "$stopped" -eq "$kills" ]
    done_by "$varied" train "${recipe[@]}" --out "$dir" --resume
    same_run "$name" "$dir"
done

# ---- the promised ends, for certain: a long run, stopped after its first line
for signal in TERM:143 INT:130; do
    name=${signal%:*} code=${signal#*:}
    { read -r ending; read -r last_line; } < <(python3 stop_at.py "$name" started \
        "$varied" train "${recipe[@]}" --steps 100000000 --out "long-$name")
    check "$name: exit $ending, not $code" [ "$ending" = "$code" ]
    check "$name: no command to resume in \"$last_line\"" \
        grep -q "minrnn train --out long-$name --resume" <<<"$last_line"
    check "$name: it was saved" [ -s "long-$name/state.safetensors" ]
done

# ---- resumed when all is done, and with more steps
before=$(snapshot two | grep -v state.safetensors)
done_by "$minrnn" train --out two --resume
check "a finished run resumed stays as it is" [ "$before" = "$(snapshot two | grep -v state.safetensors)" ]
# cosine would change with the steps; a constant rate does not
constant=("${recipe[@]}" --schedule constant)
done_by "$varied" train "${constant[@]}" --out grown --steps 37 # an evaluation is due there in both
done_by "$minrnn" train --out grown --resume --steps "$steps"
done_by "$varied" train "${constant[@]}" --out ungrown
check "more steps: last.safetensors" same_files grown/last.safetensors ungrown/last.safetensors
check "more steps: model.safetensors" same_files grown/model.safetensors ungrown/model.safetensors
check "more steps: the recipe" grep -qx "steps = $steps" grown/recipe.ini

# ---- refused, and nothing changes
before=$(snapshot whole)
refused 1 'the run has dim = 16' "$minrnn" train --out whole --resume --dim 32
refused 1 'the run has dropout = 0.2' "$varied" train "${recipe[@]}" --out whole --resume --dropout 0.1
refused 1 'the run has seed' "$minrnn" train --out whole --resume --seed 7
refused 1 'run of task text' "$minrnn" train selective-copy --out whole --resume
refused 1 'holds a run' "$varied" train "${recipe[@]}" --out whole
refused 2 'name a recipe' "$minrnn" train --out whole
make_text other.txt 3000 2 && printf 'Ω%.0s' {1..99} >>other.txt
refused 1 'other data' "$minrnn" train --out whole --resume --data other.txt
check "refused: files stay as they are" [ "$before" = "$(snapshot whole)" ]

# ---- two runs into one folder
"$varied" train "${recipe[@]}" --steps 100000000 --out shared 2>first.err >first.out &
first=$!
for ((i = 0; i < 600; i++)); do [ -s shared/state.safetensors ] && break; sleep 0.1; done
refused 1 'another minrnn' "$minrnn" train --out shared --resume
refused 1 'another minrnn' "$varied" train "${recipe[@]}" --out shared
size=$(stat -c %s shared/log.jsonl)
for ((i = 0; i < 600; i++)); do [ "$(stat -c %s shared/log.jsonl)" -gt "$size" ] && break; sleep 0.1; done
check "the first run continues" [ "$(stat -c %s shared/log.jsonl)" -gt "$size" ]
kill -TERM $first
wait $first
check "the first run ends as told" [ $? -eq 143 ]

# ---- killed before anything was saved
for how in full short; do
    "$varied" train "${recipe[@]}" --save-every 0 --steps 100000000 --out "early-$how" 2>first.err &
    first=$!
    for ((i = 0; i < 600; i++)); do [ -f "early-$how/recipe.ini" ] && break; sleep 0.05; done
    kill -KILL $first
    wait $first 2>/dev/null
    if [ -e "early-$how/state.safetensors" ]; then
        left_out "killed early, $how: 15 seconds passed before the kill"
    elif [ $how = full ]; then done_by "$varied" train "${recipe[@]}" --out early-full --resume &&
        same_run "killed early" early-full
    else done_by "$minrnn" train --out early-short --resume --steps "$steps" --save-every 29 &&
        same_run "killed early, short" early-short
    fi
done
done_by "$varied" train "${recipe[@]}" --out fresh --resume
same_run "--resume where there is nothing" fresh

# ---- what a kill may leave: temporary files, a torn log, files older than the state or missing
half() { # DIR: a run stopped in its middle, so that the log goes beyond the checkpoint
    done_by "$varied" train "${recipe[@]}" --schedule constant --steps $((steps / 2)) --eval-every 1000000 --out "$1"
}
undisturbed() {
    check "$1: last.safetensors" same_files plain/last.safetensors "$1/last.safetensors"
    check "$1: model.safetensors" same_files plain/model.safetensors "$1/model.safetensors"
    check "$1: log" cmp <(timeless plain/log.jsonl) <(timeless "$1/log.jsonl")
}
go_on() { done_by "$minrnn" train --out "$1" --resume --steps "$steps"; }
half plain
cp -r plain garbage && cp -r plain torn && cp -r plain missing && cp -r plain leftover && cp -r plain short_log
go_on plain
head -c 3000 /dev/urandom >>garbage/log.jsonl
go_on garbage && undisturbed garbage
printf '{"kind":"step","step":%d,"lo' $((steps / 2 + 1)) >>torn/log.jsonl
go_on torn && undisturbed torn
rm missing/last.safetensors missing/model.safetensors missing/curve.svg
go_on missing && undisturbed missing
for f in state.safetensors last.safetensors model.safetensors recipe.ini curve.svg; do
    head -c 999 /dev/urandom >"leftover/$f.tmp"
done
go_on leftover && undisturbed leftover
check "leftover temporary files go away" [ -z "$(find leftover -name '*.tmp')" ]
before=$(snapshot short_log | grep -v log.jsonl)
truncate -s -5 short_log/log.jsonl
refused 1 'log.jsonl' "$minrnn" train --out short_log --resume --steps "$steps"
check "a log that is too short: the rest stays" [ "$before" = "$(snapshot short_log | grep -v log.jsonl)" ]

finish
