#!/usr/bin/env bash
# quantize: a model in 8 bits is read by every command, is as good as the one it was made from,
# and is checked as strictly.
reader=$(dirname "$(realpath "$0")")/reader.py
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
make_text heard.txt 200 2

# apart BOUND A B: the log-probabilities of two scores are within the bound; NaN is within none.
apart() {
    python3 - "$@" <<'PYTHON'
import json, sys
a, b = (json.load(open(f))["logprobs"] for f in sys.argv[2:])
far = [abs(x - y) for x, y in zip(a, b)]
print(f"{sys.argv[3]}: at most {max(far):.1e} apart")
assert len(a) == len(b) and all(x <= float(sys.argv[1]) for x in far)
PYTHON
}

numpy=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import numpy' 2>/dev/null && numpy=$candidate && break
done
[ -n "$numpy" ] || echo "no python3 with numpy here: the files are NOT compared with tests/reader.py"

for form in "mingru --conv 4 --norm rms" "minlstm --conv 4 --conv-place residual --norm layer --h0 learned" \
    "gru --gru-reset after" "lstm --h0 learned" \
    "mamba --conv 0 --norm rms --states 8"; do
    name=${form%% *}
    # shellcheck disable=SC2086
    done_by "$minrnn" train text --data text.txt "${tiny[@]}" --mixer $form --steps 150 --lr 0.01 --warmup 10 \
        --out "$name"
    done_by "$minrnn" quantize "$name/model.safetensors" --out "$name.8" --data text.txt --json
    check "$name: the loss hardly moves" json \
        "abs(d['loss_after'] - d['loss_before']) < 0.01 and d['bits'] == 8 and d['rows'] > 0" out
    share=0.7
    case $name in gru | lstm) share=0.9 ;; esac # weight_hh stays in fp32
    check "$name: the file is smaller" json "d['bytes_after'] < $share * d['bytes_before']" out
    mv out "$name.json"
    done_by "$minrnn" eval "$name.8" --data text.txt --json
    check "$name: eval says the same" python3 -c \
        "import json; assert json.load(open('out'))['loss'] == json.load(open('$name.json'))['loss_after']"

    done_by "$minrnn" info "$name.8" --json
    check "$name: info" json \
        "d['config']['weights'] == 'int8' and all(p['dtype'] == ('I8' if len(p['shape']) == 2 \
            and p['name'] != 'embed.weight' and 'weight_hh' not in p['name'] \
            and not p['name'].endswith('A_log') else 'F32') for p in d['parameters'])" out
    done_by "$minrnn" generate "$name.8" --prompt the --tokens 20 --quiet
    check "$name: generate" [ -s out ]

    for mode in parallel step chunk=7; do
        for threads in 1 2; do
            done_by "$minrnn" score "$name.8" heard.txt --mode $mode --threads $threads --device cpu --per-token --json
            mv out "$name-$mode-$threads.json"
        done
        check "$name, $mode: one and two threads" same_files "$name-$mode-1.json" "$name-$mode-2.json"
        check "$name: $mode" apart 2e-3 "$name-parallel-1.json" "$name-$mode-1.json"
    done
    # ref has the weights in 8 bits and everything else exact
    done_by "$minrnn" score "$name.8" heard.txt --device ref --per-token --json
    mv out "$name-ref.json"
    check "$name: activations in 8 bits" apart 0.1 "$name-ref.json" "$name-parallel-1.json"
    [ -z "$numpy" ] && continue
    done_by "$numpy" "$reader" "$name.8" heard.txt
    mv out "$name-reader.json"
    check "$name: the second reader" apart 1e-5 "$name-reader.json" "$name-ref.json"
done

# ---- the fp32 file stays as it was before there was a choice
check "no key for fp32" bash -c '! grep -qa model.weights mingru/model.safetensors'
check "a key for 8 bits" grep -qa '"model.weights":"int8"' mingru.8

# ---- refused
model=mingru/model.safetensors
refused 2 '\-\-out' "$minrnn" quantize $model
refused 1 'bits = 4: must be one of 8' "$minrnn" quantize $model --bits 4 --out x
refused 1 'is the model itself' "$minrnn" quantize $model --out ./mingru/../$model
refused 1 'already have 8 bits' "$minrnn" quantize mingru.8 --out x --data text.txt
refused 1 'x/y' "$minrnn" quantize $model --out x/y --data text.txt
check "nothing was written" [ ! -e x ]

# ---- what can be read only once is read once
done_by "$minrnn" quantize $model --out by-file --data text.txt --json
mv out by-file.json
done_by "$minrnn" quantize $model --out by-stdin --data - --json <text.txt
check "standard input: the same losses" same_files out by-file.json
done_by "$minrnn" quantize $model --out by-pipe --data <(cat text.txt) --json
check "a pipe: the same losses" same_files out by-file.json

# ---- what is read is not written over, whatever its name
ln text.txt link.txt
cp text.txt kept.txt
for out in text.txt ./mingru/../text.txt link.txt; do
    refused 1 "--out $out is also --data, which would be lost" "$minrnn" quantize $model --out $out --data heard.txt \
        --data text.txt
done
refused 1 'is also --data' "$minrnn" quantize $model --out text.txt --data - <text.txt
refused 1 'is also --data' "$minrnn" quantize mingru --out text.txt --quiet # the data of the recipe
check "the text is as it was" same_files text.txt kept.txt

# ---- nor is any other file, but a model in 8 bits is replaced
echo notes >notes.txt
mkdir folder
for out in notes.txt folder minlstm/{model,last,state}.safetensors mingru/{state,last}.safetensors \
    mingru/{log.jsonl,recipe.ini}; do
    before=$(snapshot mingru; snapshot minlstm; cat notes.txt)
    refused 1 "--out $out exists and is no 8-bit model; remove it first or give another name" \
        "$minrnn" quantize $model --out $out --data heard.txt --quiet
    check "$out: as it was" [ "$before" = "$(snapshot mingru; snapshot minlstm; cat notes.txt)" ]
done
cp mingru.8 again.8
done_by "$minrnn" quantize minlstm --out again.8 --data text.txt
check "a model in 8 bits is replaced" same_files again.8 minlstm.8

# spoil NAME PYTHON: a copy of mingru.8 with header h and data d changed.
spoil() {
    python3 - "$@" <<'PYTHON'
import json, struct, sys
raw = open("mingru.8", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
h, d = json.loads(raw[8:8 + n]), bytearray(raw[8 + n:])
def at(name): return h[name]["data_offsets"]
exec(sys.argv[2])
text = json.dumps(h).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + d)
PYTHON
}
refuse_spoiled() { # PATTERN PYTHON
    spoil spoiled "$2"
    refused 1 "$1" "$minrnn" info spoiled
    [ -z "$numpy" ] && return
    refused 1 'reader.py: spoiled' "$numpy" "$reader" spoiled heard.txt
}
spoil same pass
done_by "$minrnn" info same
refuse_spoiled 'head.weight_scale has a number that is not finite' \
    'b = at("head.weight_scale")[0]; d[b:b + 4] = struct.pack("<f", float("nan"))'
refuse_spoiled 'head.weight_scale has the value -' \
    'b = at("head.weight_scale")[0]; d[b:b + 4] = struct.pack("<f", -0.5)'
refuse_spoiled 'head.weight_scale has the value 0 ' 'b = at("head.weight_scale")[0]; d[b:b + 4] = struct.pack("<f", 0)'
refuse_spoiled 'head.weight has the value -128' 'd[at("head.weight")[0]] = 0x80'
refuse_spoiled 'has no tensor head.weight_scale' 'h["head.weight_size"] = h.pop("head.weight_scale")'
refuse_spoiled 'head.weight is U8' 'h["head.weight"]["dtype"] = "U8"'
refuse_spoiled 'is I8; minrnn reads F32' 'del h["__metadata__"]["model.weights"]'
refuse_spoiled 'weights = int4' 'h["__metadata__"]["model.weights"] = "int4"'
refuse_spoiled 'head.weight_scale does not have the shape' \
    'h["head.weight_scale"]["shape"] = [1] + h["head.weight_scale"]["shape"]'
refuse_spoiled 'has .* tensors' \
    'h["more"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(d), len(d) + 4]}; d += bytes(4)'

# a row of zeros may have the scale 0
spoil zeros \
    'b, e = at("head.weight"); k = h["head.weight"]["shape"][1]; d[b:b + k] = bytes(k)
b = at("head.weight_scale")[0]; d[b:b + 4] = bytes(4)'
done_by "$minrnn" info zeros
[ -z "$numpy" ] || done_by "$numpy" "$reader" zeros heard.txt

finish
