#!/usr/bin/env bash
# Every bad input: one line on stderr that says what, where and what to do; the right exit status; no file harmed.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 1500 1
base=(text --data text.txt "${tiny[@]}" --steps 20 --eval-every 10)
done_by "$varied" train "${base[@]}" --out good
model=good/model.safetensors
done_by "$minrnn" train selective-copy --length 20 --tokens 2 --dim 8 --layers 1 --expansion 1 --batch 4 \
    --accumulate 1 --steps 3 --eval-batches 1 --out copy
kept=$(snapshot good; snapshot copy)

# ---- wrong usage: 2
refused 2 'unknown command trian; did you mean train' "$minrnn" trian
refused 2 'unknown command xyzzy' "$minrnn" xyzzy
refused 2 'unknown flag --jsn; did you mean --json' "$minrnn" info $model --jsn
refused 2 'unknown flag --dmi; did you mean --dim' "$varied" train "${base[@]}" --out new --dmi 3
refused 2 'unknown flag --resum; did you mean --resume' "$varied" train "${base[@]}" --resum --out new
refused 2 'unknown flag --lenght; did you mean --length' "$minrnn" eval copy/model.safetensors --lenght 30
refused 2 'unknown flag --qqqqqqqqqq' "$varied" train "${base[@]}" --out new --qqqqqqqqqq 3
refused 2 'unknown flag -x' "$minrnn" info -x
refused 2 '--dim needs a value' "$varied" train "${base[@]}" --out new --dim
refused 2 '--dim needs a value' "$varied" train "${base[@]}" --dim --out new
refused 2 '--out needs a value' "$varied" train "${base[@]}" --out
refused 2 '--out' "$varied" train "${base[@]}"
refused 2 '--dim is given twice' "$minrnn" train "${base[@]}" --out new --dim 16
refused 2 '--quiet is given twice' "$minrnn" info --quiet $model --quiet=yes
refused 2 '--length is given twice' "$minrnn" eval copy/model.safetensors --length 30 --length=40
refused 2 'recipe' "$minrnn" train --out new
for command in generate eval info quantize; do refused 2 'MODEL is missing' "$minrnn" $command; done
refused 2 'MODEL and FILE are missing' "$minrnn" score
refused 2 'FILE is missing' "$minrnn" score $model
for words in 'data path xyzzy|data set xyzzy; there are: .*shakespeare' \
             'data get shakespere|data set shakespere; did you mean shakespeare' \
             'check --op xyzzy|op xyzzy; there are: .*minrnn_fwd' \
             'check --op minrnn_fw|op minrnn_fw; did you mean minrnn_fwd' \
             'reproduce xyzzy|experiment xyzzy; there are: .*chomsky' \
             'reproduce listop|experiment listop; did you mean listops' \
             'bench xyzzy|benchmark xyzzy; there are: .*decode' 'bench decod|benchmark decod; did you mean decode' \
             'help xyzzy|command xyzzy; there are: .*train' 'help train txet|recipe txet; did you mean text'; do
    refused 2 "unknown ${words#*|}" "$minrnn" ${words%|*}
done

# ---- what other programs call a flag
for words in learning-rate:lr learning_rate:lr batch-size:batch batch_size:batch epochs:steps max-steps:steps \
             num-layers:layers hidden-size:dim \
             hidden_dim:dim gpu:device seq-len:context output-dir:out conv_place:conv-place; do
    refused 2 "unknown flag --${words%:*}; did you mean --${words#*:}\?" \
        "$minrnn" train "${base[@]}" --out new --${words%:*} 1
done
for flag in max-new-tokens max_new_tokens max-length n-tokens length; do
    refused 2 "unknown flag --$flag; did you mean --tokens" "$minrnn" generate $model --$flag 3
done
refused 2 'unknown flag --hidden-size' "$minrnn" info $model --hidden-size 3 # info has no --dim
printf '[task]\nname = text\n[train]\nlearning-rate = 1\n' >bad.ini
refused 1 'unknown key learning-rate; did you mean lr' "$minrnn" train bad.ini --out new
refused 2 'extra' "$minrnn" info $model extra
for command in train eval generate score info bench check data; do
    refused 2 'unknown flag' "$minrnn" $command --no-such-flag-at-all=1 \
        $([ $command = train ] && echo text --out new) $([ $command = eval ] && echo $model)
done
run "$minrnn"
check "without a command: help on stderr, exit 2" [ $status -eq 2 -a ! -s out -a -s err ]

# ---- values
for value in 0 -1 1.5 1e3 nan abc '' 99999999999999999999999 65537 0x10 ' 16' 16x; do
    refused 1 '--dim = ' "$varied" train "${base[@]}" --out new "--dim=$value"
done
for value in nan NaN inf -inf -1e-9 1e999 ten '' 0,1 1e 11; do
    refused 1 '--lr = ' "$varied" train "${base[@]}" --out new "--lr=$value"
done
for value in 1 0.95001 -0.1 nan; do
    refused 1 '--dropout = ' "$varied" train "${base[@]}" --out new "--dropout=$value"
done
for value in 0.9 0.9,1 0.9,nan 0.9,0.99,0.999 ,; do
    refused 1 '--betas = ' "$varied" train "${base[@]}" --out new "--betas=$value"
done
refused 1 '--mixer = mingrue.*one of mingru' "$varied" train "${base[@]}" --out new --mixer mingrue
refused 1 '--candidate = ' "$varied" train "${base[@]}" --out new --candidate sin
refused 1 '--normalize-gates = .*yes or no' "$varied" train "${base[@]}" --out new --normalize-gates maybe
refused 1 'conv = 17' "$varied" train "${base[@]}" --out new --conv 17
for value in forget-bias= forget-bias=x forget-bias=nan forget-bias=1e9 uniform sums sums= sums=-101 sums=21 sums=nan \
    sums=1, sums=1,x forget-bias=1,,2 timescales=2,3 timescales= timescales=0 timescales=nan timescales-uniform=x; do
    refused 1 "gate-init = $value" "$varied" train "${base[@]}" --out new --gate-init $value
done
refused 1 'scan = log needs candidate = positive' "$varied" train "${base[@]}" --out new --scan log --candidate linear
refused 1 'scan = log needs candidate = positive' "$varied" train "${base[@]}" --out new --scan log --candidate tanh
for value in 0 33 x; do
    refused 1 '--states = ' "$varied" train "${base[@]}" --out new --mixer mamba --states $value
done
refused 1 'states.*mixer = mamba' "$varied" train "${base[@]}" --out new --states 8
refused 1 'h0 = learned does not go with mixer = mamba' "$varied" train "${base[@]}" --out new --mixer mamba \
    --h0 learned
refused 1 'output = tanh is for predicted values .loss = mse., not for classes' "$varied" train "${base[@]}" --out new \
    --output tanh
refused 1 'scan = log needs transition = positive' "$varied" train "${base[@]}" --out new --scan log --transition signed
for mixer in gru lstm mamba attention; do
    refused 1 "transition = signed is for mixer = mingru and minlstm, not for $mixer" \
        "$varied" train "${base[@]}" --out new --mixer $mixer --transition signed
done
refused 1 'scan = log does not go with mixer = mamba' "$varied" train "${base[@]}" --out new --mixer mamba --scan log
refused 1 'candidate does not go with mixer = mamba' "$varied" train "${base[@]}" --out new --mixer mamba \
    --candidate tanh
refused 1 'parameters, .* GB for the weights alone; lower' "$varied" train "${base[@]}" --out new --dim 65536 \
    --layers 1000 --expansion 64
refused 1 '--threads = ' "$minrnn" info $model --threads -1
refused 1 'device quantum: must be' "$minrnn" info $model --device quantum
refused 1 '--tokens|tokens do not fit' "$minrnn" train selective-copy --length 4 --tokens 5 --out new
if "$minrnn" --version | grep -qx 'cuda: no'; then
    refused 1 'cuda.*(no CUDA|without)' "$minrnn" info $model --device cuda
    refused 1 'cuda' "$varied" train "${base[@]}" --out new --device cuda:1
fi
refused 1 'MINRNN_ISA' env MINRNN_ISA=nonsense "$minrnn" info $model
refused 1 'MINRNN_ISA' env MINRNN_ISA=nonsense "$varied" train "${base[@]}" --out new

# ---- data
: >empty.txt
printf 'ab' >short.txt
printf 'a%.0s' {1..400} >one.txt
head -c 4000 text.txt >mixed.txt && printf '\303(' >>mixed.txt && head -c 4000 text.txt >>mixed.txt
head -c 3999 text.txt >ends.txt && printf '\342\202' >>ends.txt
mkfifo pipe
refused 1 'none\.txt.*No such file' "$varied" train "${base[@]}" --out new --data none.txt
refused 1 '--data' "$minrnn" train text --out new
refused 1 'empty\.txt is empty' "$varied" train "${base[@]}" --out new --data empty.txt
refused 1 'directory' "$varied" train "${base[@]}" --out new --data good
refused 1 'pipe' "$varied" train "${base[@]}" --out new --data pipe
refused 1 'short\.txt' "$varied" train "${base[@]}" --out new --data short.txt
refused 1 'lower --context' "$varied" train "${base[@]}" --out new --context 100000
refused 1 'mixed\.txt, line .*--vocab bytes' "$varied" train "${base[@]}" --out new --data mixed.txt
refused 1 'ends\.txt.*--vocab bytes' "$varied" train "${base[@]}" --out new --data ends.txt
refused 1 'two classes' "$varied" train "${base[@]}" --out new --data one.txt
refused 1 '--split = ' "$varied" train "${base[@]}" --out new --split 2
cp $model alone.safetensors
refused 1 '--data' "$minrnn" eval alone.safetensors
rm alone.safetensors
refused 1 'stranger\.txt' "$minrnn" eval $model --data stranger.txt
printf 'Ж%.0s' {1..400} >stranger.txt
refused 1 'stranger\.txt' "$minrnn" eval $model --data stranger.txt
cp text.txt 'a ;b.txt'
refused 1 'recipe\.ini cannot hold a blank with a semicolon' "$varied" train "${base[@]}" --out new --data 'a ;b.txt'
cp 'a ;b.txt' 'a '
refused 1 'recipe\.ini cannot hold a blank at the end' "$varied" train "${base[@]}" --out blank --data 'a '
check "nothing was written" [ ! -e blank ]
deep=$(printf 'd%.0s' {1..120})
mkdir -p "$deep/$deep" && cp text.txt "$deep/$deep/"
refused 1 'longer than' "$varied" train "${base[@]}" --out new --data "$deep/$deep/text.txt"
refused 1 'data = .*shorter than' "$varied" train "${base[@]}" --out new --data "$(printf 'd%.0s' {1..2000})"

refused 2 'RECIPE and --out DIR are missing' "$minrnn" train
refused 2 'unknown flag --setps; did you mean --steps' "$minrnn" train text --setps 3
refused 2 '--out DIR is missing' "$minrnn" train text --steps 3
refused 2 'unexpected argument "nope"; see ' "$minrnn" info $model nope
for flag in -V version; do
    done_by "$minrnn" $flag
    check "$flag is --version" cmp out <("$minrnn" --version)
done
printf 'ЖЖЖЖ' >unknown.txt
refused 1 'unknown.txt: nothing is left without' "$minrnn" score $model unknown.txt --unknown skip --quiet
refused 1 'nope/x: cannot be created' "$minrnn" quantize $model --out nope/x --quiet
done_by "$minrnn" quantize $model --out q8 --quiet
refused 1 ' q8: the weights already have 8 bits' "$minrnn" quantize q8 --out q9 --quiet
for recipe in text image; do
    done_by "$minrnn" train $recipe --help
    check "$recipe --help: each flag once" [ -z "$(grep -oE '^  --[a-z0-9-]+' out | sort | uniq -d)" ]
    check "$recipe --help: its own examples" [ "$(grep -c "^  minrnn train $recipe .*--out" out)" -eq 1 ]
done

# ---- recipes
ini() { printf "$@" >bad.ini; }
refused 2 'unknown recipe txet; did you mean text' "$minrnn" train txet --out new
refused 2 'unknown recipe xyzzy; there are: .*selective-copy.* text' "$minrnn" train xyzzy --out new
refused 1 'none\.ini.*No such file' "$minrnn" train none.ini --out new
refused 1 'directory' "$minrnn" train ./good --out new
ini '';                                            refused 1 'bad\.ini: names no task' "$minrnn" train bad.ini --out new
ini '[task]\nname = chess\n';                      refused 1 'unknown task chess' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\nthis is no key\n';       refused 1 'bad\.ini, line 3' "$minrnn" train bad.ini --out new
ini '[task\nname = text\n';                        refused 1 'bad\.ini, line 1' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\n[modle]\ndim = 3\n'
refused 1 'bad\.ini.*unknown section \[modle\]' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\n[model]\ndmi = 3\n'
refused 1 'bad\.ini.*\[model\].*dmi.*did you mean dim' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\n[train]\ndim = 3\n'
refused 1 'bad\.ini.*\[train\].*dim' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\n[model]\ninputs = 3\n';  refused 1 'bad\.ini.*inputs' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\n[model]\ndim = 3\ndim = 4\n'
refused 1 'bad\.ini.*dim is given twice' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\nname = text\n'
refused 1 'bad\.ini.*name is given twice' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\n[model]\ndim = many\n';  refused 1 'bad\.ini.*dim = many' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\n[model]\n%s = 3\n' "$(printf 'k%.0s' {1..100})"
refused 1 'bad\.ini.*unknown key' "$minrnn" train bad.ini --out new
ini '[task]\nname = text\ndata = %s\n' "$(printf 'd%.0s' {1..400})"
refused 1 'bad\.ini, line 3: longer' "$minrnn" train bad.ini --out new
ini '[task]\nname = te\0xt\n';                     refused 1 'bad\.ini.*zero byte' "$minrnn" train bad.ini --out new

# ---- models
: >empty.safetensors
head -c 1000 $model >cut.safetensors
head -c -1 $model >cut1.safetensors
(cat $model; printf x) >more.safetensors
head -c 5000 /dev/urandom >noise.safetensors
python3 - <<'PYTHON'
import json, struct
def write(path, meta, tensors=None):
    header = json.dumps(dict({"__metadata__": meta}, **(tensors or {}))).encode()
    open(path, "wb").write(struct.pack("<Q", len(header)) + header)
write("foreign.safetensors", {"format": "pt"})
raw = open("good/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header, body = json.loads(raw[8:8 + n]), raw[8 + n:]
def variant(path, change, data=body):
    h = json.loads(json.dumps(header))
    change(h)
    text = json.dumps(h).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
variant("key.safetensors", lambda h: h["__metadata__"].update({"model.colour": "red"}))
variant("version.safetensors", lambda h: h["__metadata__"].update({"version": "99"}))
variant("dim.safetensors", lambda h: h["__metadata__"].update({"model.dim": "24"}))
variant("vocab.safetensors", lambda h: h["__metadata__"].update({"vocab": "ab"}))
variant("lacks.safetensors", lambda h: h["norm.weight"].update({"shape": [4, 4]}))
start = header["head.weight"]["data_offsets"][0]
variant("nan.safetensors", lambda h: None, body[:start] + struct.pack("<f", float("nan")) + body[start + 4:])
PYTHON
for bad in none empty cut cut1 more noise foreign key version dim vocab lacks nan; do
    for command in "info" "generate" "score" "eval"; do
        more=()
        [ $command = score ] && more=(text.txt)
        [ $command = eval ] && more=(--data text.txt)
        refused 1 "$bad\\.safetensors" "$minrnn" $command $bad.safetensors "${more[@]}"
    done
done
refused 1 'state of a training run, not a model; .* model\.safetensors .*minrnn train --out FOLDER --resume' \
    "$minrnn" info good/state.safetensors
refused 1 'text\.txt' "$minrnn" info text.txt
refused 1 'copy/model.safetensors.*not read text' "$minrnn" generate copy/model.safetensors
refused 1 'copy/model.safetensors.*not read text' "$minrnn" score copy/model.safetensors text.txt
refused 1 'needs a model with' "$minrnn" eval $model --task selective-copy
refused 2 'unknown task chess; there are: .*text' "$minrnn" eval $model --task chess

# ---- a state that is not one
cp -r good hurt
for hurt in noise empty cut key; do
    cp $hurt.safetensors hurt/state.safetensors
    before=$(snapshot hurt)
    refused 1 'state\.safetensors' "$minrnn" train --out hurt --resume --steps 30
    check "$hurt state: files stay" [ "$before" = "$(snapshot hurt)" ]
done

# ---- where nothing can be written
refused 1 'text\.txt.*not a directory' "$varied" train "${base[@]}" --out text.txt
refused 1 'text\.txt' "$varied" train "${base[@]}" --out text.txt/below
mkdir locked && chmod a-w locked
if ! touch locked/try 2>/dev/null; then refused 1 'locked' "$varied" train "${base[@]}" --out locked/run; fi
refused 1 '/proc' "$varied" train "${base[@]}" --out /proc/minrnn-run
[ -w /dev/full ] && for command in "info $model" "info $model --json" "score $model text.txt" \
    "eval $model --data text.txt" "data list"; do
    "$minrnn" $command >/dev/full 2>err
    status=$?
    check "$command to a full disk: status $status, $(cat err)" [ $status -eq 1 -a "$(wc -l <err)" -eq 1 ]
done

# A disk that fills up, as a limit on the size of files: no checkpoint can be written, the old one stays whole.
cp -r good full
before=$(snapshot full | grep -E 'model|last|state|curve')
limited() { (trap '' XFSZ; ulimit -f 40; exec "$@"); }
refused 1 'full/state\.safetensors.*(too large|No space)' limited "$minrnn" train --out full --resume --steps 40 \
    --save-every 5 --quiet
check "a full disk: the old checkpoint is whole" [ "$before" = "$(snapshot full | grep -E 'model|last|state|curve')" ]
check "a full disk: no leftovers" [ -z "$(find full -name '*.tmp')" ]
done_by "$minrnn" train --out full --resume --steps 40
done_by "$varied" train "${base[@]}" --out straight --steps 20
done_by "$minrnn" train --out straight --resume --steps 40
check "a full disk: the run continues as if nothing had happened" \
    same_files full/last.safetensors straight/last.safetensors

# ---- numbers that run away: weights grow a hundredfold a step
wild=(text --data text.txt "${tiny[@]}" --lr 10 --weight-decay 10 --clip 0 --schedule constant --warmup 0
    --steps 1000 --eval-every 1000 --quiet)
refused 1 'step [0-9]+: .*NaN or infinite in (embed|blocks|norm|head).*last good checkpoint \(step [0-9]+\)' "$varied" \
    train "${wild[@]}" --save-every 1 --out wild
saved=$(sed -n 's/.*checkpoint (step \([0-9]*\)).*/\1/p' err)
done_by "$minrnn" info wild/last.safetensors --json
check "the last good checkpoint is that of step $saved" json "d['step'] == $saved" out
refused 1 'step [0-9]+: .*NaN or infinite' "$minrnn" train --out wild --resume --quiet
refused 1 'NaN or infinite.*nothing had been saved' "$varied" train "${wild[@]}" --out wild2
# 0 / 0 in the optimiser, for a character that no training text has: no step shows it, but no file may hold it
python3 -c 'open("rare.txt", "w").write("abcd efg\n" * 300 + "xyz" * 30)'
rare=(text --data rare.txt "${tiny[@]}" --context 16 --eps 0 --weight-decay 0 --warmup 0 --steps 20 --quiet)
refused 1 'step 1: .*embed\.weight' "$varied" train "${rare[@]}" --save-every 1 --out rare1
refused 1 'step 5: .*embed\.weight' "$varied" train "${rare[@]}" --eval-every 5 --out rare2
check "nothing that is not finite was saved" [ -z "$(find rare1 rare2 -name '*.safetensors')" ]

check "the good runs are as they were" [ "$kept" = "$(snapshot good; snapshot copy)" ]
check "a run that was refused leaves nothing to trip over" [ -z \
    "$(find new -type f ! -name .lock ! -name log.jsonl 2>/dev/null)" ]
done_by "$varied" train "${base[@]}" --out new
finish
