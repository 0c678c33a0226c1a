#!/usr/bin/env bash
# train: the files and outputs that it promises, for every form of model; info, eval and --help with it.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
text=(text --data text.txt "${tiny[@]}")
copy=(selective-copy --length 20 --tokens 2 --symbols 4 --eval-batches 1 --dim 16 --layers 1 --expansion 2 --batch 8
    --accumulate 1)

svg() {
    python3 -c \
        'import sys, xml.etree.ElementTree as e; sys.exit(not e.parse(sys.argv[1]).getroot().tag.endswith("svg"))' "$1"
}

# good_run DIR STEPS: everything that --out holds, and that it fits together
good_run() {
    local dir=$1 steps=$2
    for f in model.safetensors last.safetensors state.safetensors log.jsonl recipe.ini curve.svg; do
        check "$dir/$f is there" [ -s "$dir/$f" ]
    done
    check "$dir: nothing else" [ "$(ls "$dir" | wc -l)" -eq 6 ]
    check "$dir/curve.svg is XML" svg "$dir/curve.svg"
    checks=$((checks + 1))
    python3 - "$dir" "$steps" <<'PYTHON' || fail "$dir: log.jsonl"
import json, math, sys
lines = [json.loads(line) for line in open(sys.argv[1] + "/log.jsonl")]
steps, evals = ([l for l in lines if l["kind"] == k] for k in ("step", "eval"))
assert len(steps) + len(evals) == len(lines)
assert [l["step"] for l in steps] == list(range(1, int(sys.argv[2]) + 1))
assert all(set(l) == {"kind", "step", "loss", "lr", "grad_norm", "tokens_per_s", "seconds"} for l in steps)
assert all(math.isfinite(l[k]) and l[k] >= 0 for l in steps
           for k in ("loss", "lr", "grad_norm", "tokens_per_s", "seconds"))
assert all(a["seconds"] <= b["seconds"] for a, b in zip(lines, lines[1:]))
assert evals and evals[-1]["step"] == int(sys.argv[2]) and any(l["best"] for l in evals)
assert all(0 <= l["accuracy"] <= 1 and l["loss"] >= 0 for l in evals)
PYTHON
    done_by "$minrnn" info "$dir/last.safetensors" --json
    check "$dir: last.safetensors is of the last step" json "d['step'] == $steps" out
}

# ---- every form trains, and its files can be used
forms=(
    "--mixer mingru --candidate positive --conv 0 --mlp 0 --norm rms"
    "--mixer mingru --candidate linear --conv 4 --conv-place residual --norm layer --gate-init forget-bias=2"
    "--mixer mingru --candidate tanh --h0 learned --conv 4 --conv-place inside --gate-init timescales"
    "--mixer mingru --scan log --gate-init timescales-uniform --optimizer adam --schedule linear"
    "--mixer minlstm --candidate positive --normalize-gates no --gate-init forget-bias=-1.5 --decay-set no-gates"
    "--mixer minlstm --candidate linear --normalize-gates yes --h0 learned --norm layer --schedule cosine \
--decay-set all"
    "--mixer minlstm --candidate tanh --gate-init timescales --conv 4 --conv-place residual --mlp 0"
    "--mixer minlstm --scan log --gate-init timescales-uniform --dropout 0.3 --accumulate 2"
    "--mixer gru --gate-init timescales --h0 learned --decay-set no-gates"
    "--mixer gru --gru-reset after --conv 4 --norm layer --gate-init forget-bias=1"
    "--mixer lstm --gate-init timescales-uniform --h0 learned --mlp 0 --dropout 0.2"
    "--mixer mamba --gate-init timescales --expansion 3"
    "--mixer mamba --states 3 --conv 4 --conv-place inside --norm layer --dropout 0.3 --accumulate 2 --decay-set all")
i=0
for form in "${forms[@]}"; do
    i=$((i + 1))
    done_by "$varied" train "${text[@]}" $form --steps 12 --eval-every 5 --out text-$i
    good_run text-$i 12
    done_by "$varied" train "${copy[@]}" $form --steps 12 --eval-every 5 --out copy-$i
    good_run copy-$i 12
    done_by "$minrnn" eval text-$i/last.safetensors --data text.txt --json
    last=$(grep '"kind":"eval"' text-$i/log.jsonl | tail -n 1)
    logged=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["loss"])' "$last")
    check "text-$i: eval says what the log says" json "abs(d['loss'] - $logged) <= 1e-6 * d['loss']" out
    done_by "$minrnn" eval copy-$i/model.safetensors --json
    check "copy-$i: eval" json "d['task'] == 'selective-copy' and 0 <= d['accuracy'] <= 1 and d['rows'] == 128" out
    done_by "$minrnn" generate text-$i/model.safetensors --tokens 20
    done_by "$minrnn" score text-$i/model.safetensors text.txt --json
done

# ---- it learns: the loss falls, and the best model is the best
done_by "$varied" train "${text[@]}" --steps 150 --eval-every 50 --lr 0.01 --warmup 5 --json --out learns
check "--json" json \
    "d['step'] == 150 and d['best_step'] in (50, 100, 150) and d['best_loss'] < 2.5 and 0 < d['best_accuracy'] <= 1" out
best=$(python3 -c 'import json; print(json.load(open("out"))["best_loss"])')
done_by "$minrnn" eval learns/model.safetensors --data text.txt --json
check "model.safetensors is the best" json "abs(d['loss'] - $best) <= 1e-6 * $best" out
done_by "$minrnn" eval learns/model.safetensors --data text.txt --batch 3
check "eval for people" grep -qE '^text: test loss [0-9.]+, accuracy [0-9.]+ %, over [0-9]+ predictions$' out
done_by "$minrnn" eval copy-1/model.safetensors --length 50 --examples 2
check "eval --examples" [ "$(grep -c target out)" -eq 2 -a "$(grep -c predicted out)" -eq 2 ]

# ---- recipe.ini gives the same run again
done_by "$varied" train "${text[@]}" --dropout 0.2 --mixer minlstm --betas 0.8,0.95 --lr 0.0123456789 --seed 77 \
    --weight-decay 1e-3 \
    --gate-init forget-bias=0.1 --steps 25 --eval-every 7 --out first
done_by "$minrnn" train first/recipe.ini --out second
check "recipe.ini: the same model" same_files first/model.safetensors second/model.safetensors
check "recipe.ini: the same weights" same_files first/last.safetensors second/last.safetensors
check "recipe.ini: the same recipe" same_files first/recipe.ini second/recipe.ini
done_by "$minrnn" train first/recipe.ini --seed 78 --out third
check "a flag goes over the recipe" [ "$(sum_of first/last.safetensors)" != "$(sum_of third/last.safetensors)" ]
done_by "$varied" train "${text[@]}" --dropout 0.2 --mixer=minlstm --betas=0.8,0.95 --lr=0.0123456789 --seed=77 \
    --weight-decay=1e-3 \
    --gate-init=forget-bias=0.1 --steps=25 --eval-every=7 --out=fourth
check "--key=value" same_files first/last.safetensors fourth/last.safetensors
check "no path in the files" [ -z "$(grep -laF text.txt first/*.safetensors)" ]

# ---- batch, accumulation
done_by "$varied" train "${text[@]}" --batch 8 --accumulate 2 --steps 10 --out halves
check "batch 8 twice is said to be 16" grep -q 'batch 16 ' err

# ---- ends other than the last step
done_by "$varied" train "${text[@]}" --steps 100000000 --max-seconds 1 --eval-every 100000000 --save-every 0 --out timed
good_run timed "$(python3 -c 'import json; print(json.loads(open("timed/log.jsonl").readlines()[-1])["step"])')"
done_by "$varied" train "${text[@]}" --lr 0 --steps 1000 --eval-every 2 --patience 3 --out patient
# without learning the first evaluation is the best: three more, and it ends
check "--patience" [ "$(grep -c '"kind":"step"' patient/log.jsonl)" -eq 8 ]
check "--patience is said" grep -q 'no better' out

# ---- info
done_by "$minrnn" info first/model.safetensors --json
check "info --json" json \
    "d['task'] == 'text' and d['config']['mixer'] == 'minlstm' and d['config']['dim'] == 16 \
        and d['config']['layers'] == 2" out
check "info: parameters" json \
    "d['total_parameters'] == sum(math.prod(p['shape']) for p in d['parameters']) and all(p['dtype'] == 'F32' \
        for p in d['parameters'])" out
check "info: names" json \
    "{'embed.weight', 'blocks.0.norm1.weight', 'blocks.1.mixer.linear_f.weight', 'blocks.0.mixer.down.bias', \
      'norm.weight', 'head.weight'} <= {p['name'] for p in d['parameters']}" out
check "info: sizes" json \
    "d['file_bytes'] == $(stat -c %s first/model.safetensors) \
        and d['vocabulary'] == $(python3 -c 'print(len(set(open("text.txt", encoding="utf-8").read())))')" out
done_by "$minrnn" info first/model.safetensors
check "info for people" grep -q 'blocks.0.mixer.linear_f.weight' out
done_by "$minrnn" --version
check "--version" grep -qE '^minrnn [0-9]+\.[0-9]+\.[0-9]+$' out
check "--version: parts" grep -qE '^cuda: ' out

# ---- a pipe gets plain lines, --quiet only the result, a terminal a progress line
done_by "$varied" train "${text[@]}" --steps 30 --eval-every 10 --out plain
check "no control characters in a pipe" [ -z "$(cat out err | LC_ALL=C tr -d '\n' | LC_ALL=C grep -a '[[:cntrl:]]')" ]
check "an evaluation is a line" [ "$(grep -cE '^step [0-9]+: (test|validation) loss [0-9.]+' err)" -eq 3 ]
done_by "$varied" train "${text[@]}" --steps 30 --eval-every 10 --out quiet --quiet
check "--quiet" [ ! -s err -a -s out ]
cat >terminal.py <<'PYTHON'
"""terminal.py COMMAND…: runs it on a terminal of 60 columns, interrupts it when it has drawn its line twice, and prints
what the terminal got."""
import fcntl, os, pty, re, signal, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
screen, interrupted = b"", False
while True:
    try: data = os.read(fd, 65536)
    except OSError: break
    if not data: break
    screen += data
    drawn = [line for line in screen.split(b"\r") if re.match(rb"step +[0-9]+/100000000 .*loss [0-9]", line)]
    if len(drawn) >= 2 and not interrupted:
        interrupted = True
        os.kill(pid, signal.SIGINT)
sys.stdout.buffer.write(screen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PYTHON
run python3 terminal.py "$varied" train "${text[@]}" --steps 100000000 --eval-every 100000000 --max-seconds 300 \
    --out terminal
mv out screen
check "a terminal sees the line drawn again and again" [ $status -eq 130 ]
check "no line is wider than the terminal" python3 - screen <<'PYTHON'
import re, sys
text = open(sys.argv[1], "rb").read().decode("utf-8")
drawn = [line[:-3] for line in re.split("[\r\n]+", text) if line.endswith("\x1b[K")]
sys.exit(not 20 < max(map(len, drawn)) < 60)
PYTHON

# ---- help: every command, every flag it takes, examples; exit 0
for command in train eval generate score info bench check data; do
    for flag in --help -h; do
        done_by "$minrnn" $command $flag
        check "$command $flag: usage, examples, nothing on stderr" [ "$(grep -c '^usage: minrnn '$command out)" -eq 1 \
            -a "$(grep -c '^examples:' out)" -eq 1 -a ! -s err ]
        check "$command $flag: an example" grep -qE "^ +minrnn $command" out
    done
    # check chooses its threads itself, and prints nothing but its result
    for flag in --device --json $([ $command = check ] || echo --threads --quiet); do
        check "$command --help names $flag" grep -q -- "$flag " out
    done
    cp out help
    done_by "$minrnn" help $command
    check "help $command is $command --help" same_files out help
    done_by "$minrnn" $command --help all
    mv out help-$command
done
names() { # COMMAND FLAG…
    local command=$1
    shift
    for flag in "$@"; do check "$command --help names $flag" grep -qE -- "(^| )$flag( |$)" help-$command; done
}
names train --out --resume --mixer --candidate --scan --normalize-gates --h0 --gate-init --layers --dim --expansion \
    --conv --conv-place \
    --mlp --norm --dropout --batch --context --steps --max-seconds --lr --schedule --warmup --optimizer --betas \
    --weight-decay --clip \
    --accumulate --eval-every --save-every --patience --seed --data --vocab --length --tokens --symbols
names eval --task --data --length
names generate --prompt --tokens --temperature --top-k --top-p --stop --seed
names score --mode --per-token
names check --quick --mutate
# and what the keys of a complete recipe are, the help of train names
for key in $(sed -n 's/^\([a-z0-9-]*\) = .*/\1/p' first/recipe.ini | grep -vx name); do names train "--$key"; done
done_by "$minrnn" train --help selective-copy
check "train --help RECIPE" grep -q '^usage: minrnn train selective-copy ' out
done_by "$minrnn" train --help
check "train --help is short" [ "$(wc -l <out)" -le 60 ]
for recipe in text selective-copy demo chomsky-parity; do
    check "train --help has $recipe" grep -qE "^  $recipe +[A-Z]" out
done
for flag in --out --data --steps --lr --dim; do check "train --help names $flag" grep -q -- "^  $flag " out; done
done_by "$minrnn" train text --help
check "of a recipe: its task's keys" grep -q -- '^  --vocab chars|bytes ' out
check "of a recipe: its values" grep -qE -- '^  --dim N .*\(128\)$' out
check "of a recipe: no other task's keys" bash -c '! grep -q -- "--symbols" out'
cp out of-recipe
done_by "$minrnn" help train text
check "help train text" same_files out of-recipe
done_by "$minrnn" eval --help selective-copy
check "of a task" bash -c 'grep -q -- "--symbols" out && ! grep -q -- "--vocab" out'
for flag in --help -h help; do
    done_by "$minrnn" $flag
    for command in train eval generate score info bench check data; do
        check "$flag names $command" grep -qE "^  $command " out
    done
done

finish
