#!/usr/bin/env bash
# Input made to hurt: files that never end, claims of terabytes, headers that need more memory than their size, names
# with terminal escapes. One line each, within little memory and time, and no file harmed.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 1500 1
base=(text --data text.txt "${tiny[@]}" --steps 20 --eval-every 10)
done_by "$varied" train "${base[@]}" --out good
model=good/model.safetensors
kept=$(snapshot good)

# Within 3 GB of addresses and 60 seconds. Sanitizers need more addresses than there are.
bounded() {
    [ "$sanitized" = 1 ] || ulimit -v 3000000
    exec timeout 60 "$@"
}
# refused, and bounded
stopped() {
    local expected=$1 pattern=$2
    shift 2
    refused "$expected" "$pattern" bash -c "$(declare -f bounded); sanitized=$sanitized; bounded \"\$@\"" bounded "$@"
}

# ---- names with line ends and escapes: still one line, and nothing that steers a terminal
odd=$'a\nb\033[2J'
for words in "info|$odd" "train|text|--data|$odd|--out|new" "train|$odd.ini|--out|new" \
    "generate|$model|--prompt-file|$odd" "generate|$model|--prompt|$odd" \
    "eval|$model|--data|$odd" "score|$model|$odd" "info|$model|--device|$odd" \
    "quantize|$model|--out|$odd/x|--data|text.txt" "score|$model|text.txt|--mode|$odd"; do
    IFS='|' read -r -d '' -a argv <<<"$words|" || true
    unset 'argv[-1]'
    refused 1 '' "$minrnn" "${argv[@]}"
    check "no escapes: ${argv[0]}" bash -c '! grep -q "$(printf "\033")" err'
done
for words in "$odd" "info|$model|--$odd" "info|$model|-$odd" "info|$model|$odd" "bench|$odd" "data|$odd" \
             "train|$odd|--out|new" "data|get|$odd" "eval|$model|--task|$odd" "check|--op|$odd" \
             "help|$odd" "help|train|$odd"; do
    IFS='|' read -r -d '' -a argv <<<"$words|" || true
    unset 'argv[-1]'
    refused 2 '' "$minrnn" "${argv[@]}"
    check "no escapes: ${argv[0]}" bash -c '! grep -q "$(printf "\033")" err'
done
printf '[task]\nname = text\n[model]\n\033[2Jdim = 3\n' >odd.ini
refused 1 'odd\.ini' "$minrnn" train odd.ini --out new
check "no escapes: recipe" bash -c '! grep -q "$(printf "\033")" err'

# ---- numbers
for value in 99999999999999999999 -99999999999999999999 1e999 nan 9223372036854775808; do
    for flag in steps batch context seed layers expansion mlp eval-every save-every patience warmup accumulate; do
        refused 1 "--$flag = " "$varied" train "${base[@]}" --out new "--$flag=$value"
    done
done
for value in 1e999 -1e999 nan inf 0x1p3 1,5; do
    for flag in lr max-seconds eps weight-decay clip dropout split; do
        refused 1 "--$flag = " "$varied" train "${base[@]}" --out new "--$flag=$value"
    done
done
for value in 99999999999999999999 nan -1; do
    refused 1 '--tokens = ' "$minrnn" generate $model "--tokens=$value"
    refused 1 '--top-k = ' "$minrnn" generate $model "--top-k=$value"
    refused 1 '--mode' "$minrnn" score $model text.txt "--mode=chunk=$value"
done

# ---- what would need more memory than there is: said before it is asked for
stopped 1 ': [0-9.]+ GB of memory are needed and this machine has [0-9.]+, .*--dim, --layers' "$varied" train \
    "${base[@]}" --dim 16384 --layers 20 --out new
stopped 1 'GB of memory are needed and this machine has .*lower (--)?batch' "$varied" train "${base[@]}" \
    --batch 1000000 --context 2000 --out new
# an evaluation goes by chunks where memory is short; a machine may have more than this process
run bash -c "$(declare -f bounded); sanitized=$sanitized; bounded \"\$@\"" bounded \
    "$minrnn" eval $model --data text.txt --batch 1048576
check "a million rows are scored or refused" [ $status -le 1 ]
stopped 1 'GB of memory|too large' "$minrnn" train selective-copy --length 16777216 --tokens 16777216 --batch 1048576 \
    --out new
# a chunk is as long as the text at most
done_by "$minrnn" score $model text.txt --mode chunk=16777216
stopped 1 'GB for the weights alone' "$varied" train "${base[@]}" --out new --dim 65536 --layers 1000 --expansion 64

# ---- files that never end, or never begin
mkfifo pipe
truncate -s 6G huge.txt
truncate -s 6G huge.safetensors
truncate -s 100M huge.ini
for bad in /dev/zero /dev/urandom pipe huge.safetensors /dev/null /dev/tty; do
    for command in info generate "score text.txt" "eval --data text.txt" \
        "quantize --out small.safetensors --data text.txt"; do
        read -r name rest <<<"$command"
        stopped 1 "$bad" "$minrnn" $name $bad $rest
    done
done
for bad in /dev/zero /dev/urandom pipe huge.txt /dev/null; do
    stopped 1 "$bad" "$varied" train "${base[@]}" --data $bad --out new
    stopped 1 "$bad" "$varied" train "${base[@]}" --data $bad --vocab bytes --out new
    stopped 1 "$bad" "$minrnn" eval $model --data $bad
    stopped 1 "$bad" "$minrnn" score $model $bad
done
for bad in /dev/zero ./pipe huge.ini /dev/null; do stopped 1 "$bad" "$minrnn" train $bad --out new; done
stopped 1 'directory' "$minrnn" score $model good
# bytes of any kind are tokens here, so only the kind of the file can end it
done_by "$varied" train "${base[@]}" --vocab bytes --steps 2 --out bytes
stopped 1 '/dev/zero: is a device' "$minrnn" score bytes/model.safetensors /dev/zero
done_by "$minrnn" score $model <(cat text.txt)
for ((i = 0; i < 20; i++)); do # the command waits a second for a writer; a busy machine may be too slow for that
    (sleep 0.1; exec cat text.txt >pipe) &
    writer=$!
    run "$minrnn" score $model pipe
    kill $writer 2>/dev/null
    wait $writer
    [ $status -ne 0 ] || break
done
check "a pipe whose writer comes later" [ $status -eq 0 ]
head -c 20000 /dev/urandom >noise.txt
stopped 1 'noise\.txt.*--vocab bytes' "$varied" train "${base[@]}" --data noise.txt --out new
stopped 1 'noise\.txt' "$minrnn" score $model noise.txt

# ---- models that claim, or cost, too much
python3 - <<'PYTHON'
import json, struct
raw = open("good/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header, body = json.loads(raw[8:8 + n]), raw[8 + n:]
def variant(path, data=body, **meta):
    h = json.loads(json.dumps(header))
    h["__metadata__"].update(meta)
    text = json.dumps(h).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
variant("dims.safetensors", **{"model.dim": "65536", "model.expansion": "2", "model.mlp": "1"})
variant("layers.safetensors", **{"model.layers": "1000"})
variant("inputs.safetensors", **{"model.inputs": "16777216", "model.outputs": "16777216"})
variant("batch.safetensors", **{"train.batch": "1048576", "train.context": "2000"})
variant("step.safetensors", **{"step": "99999999999999999999x"})
variant("nested.safetensors", vocab="[" * 3000000)
variant("lists.safetensors", vocab="[" + "[]," * 3000000 + "[]]")
variant("strings.safetensors", vocab="[" + '"",' * 3000000 + '""]')
def raw_file(path, text): open(path, "wb").write(struct.pack("<Q", len(text)) + text)
raw_file("dense.safetensors", b'{"":{}' + b',"":{}' * 5000000 + b"}")
raw_file("metas.safetensors", b'{"__metadata__":{"":""' + b',"":""' * 5000000 + b"}}")
raw_file("long.safetensors", b'{"__metadata__":{"format":"' + b"x" * 33000000 + b'"}}')
raw_file("longer.safetensors", b'{"__metadata__":{"format":"' + b"x" * 40000000 + b'"}}')
PYTHON
for bad in dims layers inputs nested lists strings dense metas long longer; do
    for command in info generate; do stopped 1 "$bad\\.safetensors" "$minrnn" $command $bad.safetensors; done
done
stopped 1 'too large|GB of memory' "$minrnn" eval batch.safetensors --data text.txt

# ---- outputs
printf precious >precious.txt
for out in good none/x.safetensors /dev/full pipe text.txt/x; do
    stopped 1 "$out" "$minrnn" quantize $model --data text.txt --out $out
done
check "a pipe stays a pipe" [ -p pipe ]
mkdir sealed && chmod a-w sealed
if ! touch sealed/try 2>/dev/null; then
    refused 1 'sealed' "$minrnn" quantize $model --data text.txt --out sealed/x
    cp text.txt hidden.txt && chmod a-r hidden.txt
    refused 1 'hidden\.txt.*denied' "$varied" train "${base[@]}" --data hidden.txt --out new
    refused 1 'hidden\.txt.*denied' "$minrnn" info hidden.txt
    refused 1 'hidden\.txt.*denied' "$minrnn" score $model hidden.txt
fi

# ---- a run resumes only with the data that it was started on, not with another text of the same characters
python3 -c \
    't = open("text.txt", encoding="utf-8").read(); open("moved.txt", "w", encoding="utf-8").write(t[100:] + t[:100])'
cp -r good resumed
before=$(snapshot resumed)
refused 1 'started on other data \(SHA-256' "$minrnn" train --out resumed --resume --steps 30 --data moved.txt
cp text.txt original.txt
cp moved.txt text.txt
refused 1 'started on other data \(SHA-256' "$minrnn" train --out resumed --resume --steps 30
check "other data: files stay" [ "$before" = "$(snapshot resumed)" ]
cp original.txt text.txt
done_by "$minrnn" train --out resumed --resume --steps 30 --data original.txt

check "the good run is as it was" [ "$kept" = "$(snapshot good)" ]
check "a run that was refused leaves nothing to trip over" [ -z \
    "$(find new -type f ! -name .lock ! -name log.jsonl 2>/dev/null)" ]
finish
