#!/usr/bin/env bash
# What a command takes for a model: a file, the folder of a run, weights of 16 bits, other programs' metadata.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 1500 1
done_by "$minrnn" train text --data text.txt "${tiny[@]}" --steps 30 --lr 0.01 --warmup 5 --out run --quiet
model=run/model.safetensors

# ---- the folder of a run
for command in info eval "score" generate; do
    more=()
    [ $command = score ] && more=(text.txt)
    done_by "$minrnn" $command $model "${more[@]}" --quiet
    cp out by-file
    done_by "$minrnn" $command run "${more[@]}" --quiet
    check "$command: the folder is its model" same_files out by-file
done
done_by "$minrnn" quantize run --out folder8.safetensors
done_by "$minrnn" quantize run/ --out folder8b.safetensors
check "quantize: the same bytes" same_files folder8.safetensors folder8b.safetensors
refused 1 'is the model itself' "$minrnn" quantize run --out $model
mkdir bare
refused 1 'bare: a folder without model\.safetensors' "$minrnn" generate bare
refused 1 'text\.txt: not a model file' "$minrnn" generate text.txt
refused 1 'none: .*No such file' "$minrnn" info none

# ---- info lists the keys that the mixer uses: all but those of other mixers
of_some_mixers="candidate scan h0 gate-init expansion normalize-gates gru-reset heads positions window states"
: >of-any
while read -r mixer used; do
    done_by "$minrnn" train text --data text.txt "${tiny[@]}" --mixer "$mixer" --steps 1 --out "of-$mixer" --quiet
    done_by "$minrnn" info "of-$mixer"
    awk 'NF == 0 { part++ } part == 1 && NF { print $1 }' out >shown
    cat shown >>of-any
    for key in $of_some_mixers; do
        [[ " $used " == *" $key "* ]] && times=1 || times=0
        check "$mixer: $key must be shown $times times" [ "$(grep -cx "$key" shown)" -eq $times ]
    done
    done_by "$minrnn" info "of-$mixer" --json
    check "$mixer: the others in the order of the table, then the vocabulary" json \
        "(lambda s: s == [k for k in d['config'] if k in s] + ['vocabulary'])(open('shown').read().split())" out
done <<'MIXERS'
mingru candidate scan h0 gate-init expansion
minlstm candidate scan h0 gate-init expansion normalize-gates
gru h0 gate-init expansion gru-reset
lstm h0 gate-init expansion
attention heads positions window
mamba expansion states
MIXERS
check "JSON has all keys, and each is shown for some mixer" json \
    "len(d['config']) > 20 and {*d['config'], 'vocabulary'} == {*open('of-any').read().split()}" out

# ---- without data: what the run's recipe names, or what to give
done_by "$minrnn" eval run --json
cp out by-recipe
check "eval says where the text is from" grep -q 'text\.txt, as in the run' err
done_by "$minrnn" eval $model --data text.txt --json
check "eval without --data" same_files out by-recipe
done_by "$minrnn" quantize run --out q8.safetensors
check "quantize without --data" grep -q '^loss in nats: f32 ' out
cp $model alone.safetensors
refused 1 'alone|--data' "$minrnn" eval alone.safetensors
done_by "$minrnn" quantize alone.safetensors --out alone8.safetensors
check "quantize without data says that the loss was not measured" grep -q '^loss not measured: .*--data' out
check "and writes the same file" same_files alone8.safetensors q8.safetensors
done_by "$minrnn" quantize alone.safetensors --out alone8.safetensors --json
check "JSON without losses" json "set(d) == {'bits', 'bytes_before', 'bytes_after'}" out
refused 1 'none\.txt' "$minrnn" quantize alone.safetensors --out alone9.safetensors --data none.txt
check "data that was asked for and is not there: no file" [ ! -e alone9.safetensors ]
echo "data = nonsense" >run/recipe.ini
refused 1 '--data' "$minrnn" eval run
rm run/recipe.ini

# ---- weights of 16 bits, and other programs' metadata
cat >change.py <<'PYTHON'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + size]), data[8 + size:]
meta = header.pop("__metadata__")

def floats(entry):
    begin, end = entry["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", body[begin:end])

def bf16(x):  # to nearest, ties to even
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16

def pack(kind, values):
    if kind == "F16": return struct.pack(f"<{len(values)}e", *values)
    if kind == "BF16": return struct.pack(f"<{len(values)}H", *map(bf16, values))
    return struct.pack(f"<{len(values)}f", *values)

def rounded(kind, values):  # the same numbers as F32
    if kind == "F16": return struct.unpack(f"<{len(values)}e", pack(kind, values))
    return [struct.unpack("<f", struct.pack("<I", bf16(x) << 16))[0] for x in values]

def write(name, tensors, more={}):
    head, at, parts = {"__metadata__": {**meta, **more}}, 0, []
    for key, (kind, shape, raw) in tensors.items():
        head[key] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        parts.append(raw)
    text = json.dumps(head).encode()
    open(name, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(parts))

entries = {key: (e["shape"], floats(e)) for key, e in header.items()}
plain = {key: ("F32", shape, pack("F32", values)) for key, (shape, values) in entries.items()}
for kind in "F16", "BF16":
    small = {key: (kind, shape, pack(kind, values)) for key, (shape, values) in entries.items()}
    write(kind + ".safetensors", small)
    write(kind + "-as-f32.safetensors",
          {key: ("F32", shape, pack("F32", rounded(kind, values))) for key, (shape, values) in entries.items()})
    mixed = dict(plain)
    mixed["embed.weight"] = small["embed.weight"]
    write(kind + "-mixed.safetensors", mixed)
    for name, bits in ("inf", {"F16": 0x7C00, "BF16": 0x7F80}[kind]), ("nan", {"F16": 0x7E01, "BF16": 0x7FC1}[kind]):
        bad = dict(small)
        shape, raw = bad["embed.weight"][1:]
        bad["embed.weight"] = (kind, shape, raw[:6] + struct.pack("<H", bits) + raw[8:])
        write(f"{kind}-{name}.safetensors", bad)
write("notes.safetensors", plain, {"author": "somebody", "general.architecture": "minGRU", "note": "é \"x\""})
write("newer.safetensors", plain, {"model.teeth": "32"})
write("task.safetensors", plain, {"task.teeth": "32"})
write("fewer.safetensors", plain, {"vocab": json.dumps(json.loads(meta["vocab"])[:-1])})
write("integers.safetensors", {**plain, "embed.weight": ("I32", *plain["embed.weight"][1:])})
PYTHON
python3 change.py $model
for kind in F16 BF16; do
    done_by "$minrnn" score $kind.safetensors text.txt --per-token
    cp out halves
    done_by "$minrnn" score $kind-as-f32.safetensors text.txt --per-token
    check "$kind: the numbers that it stands for" same_files out halves
    done_by "$minrnn" info $kind-mixed.safetensors
    for name in inf nan; do
        refused 1 'embed\.weight has a number that is not finite \(element 3\)' "$minrnn" info $kind-$name.safetensors
    done
    done_by "$minrnn" quantize $kind.safetensors --out $kind-8.safetensors --data text.txt --quiet
done
refused 1 'embed\.weight is I32; minrnn reads F32, F16, BF16 and F64' "$minrnn" info integers.safetensors
done_by "$minrnn" generate notes.safetensors --tokens 40
cp out noted
done_by "$minrnn" generate $model --tokens 40
check "notes of others change nothing" same_files out noted
refused 1 'its vocabulary has [0-9]+ tokens, but the model has [0-9]+ inputs' "$minrnn" info fewer.safetensors
refused 1 'unknown metadata key "model\.teeth"' "$minrnn" info newer.safetensors
refused 1 'unknown metadata key "task\.teeth"' "$minrnn" info task.safetensors
finish
