#!/usr/bin/env bash
# import, export and info with weights of other programs: what is read, what comes out again, and that nothing is
# written where something is wrong. cli_peers.sh compares what imported models compute.
source "$(dirname "$0")/cli_support.bash"

cat >make.py <<'PYTHON'
"""make.py KIND OUT [CHANGE]: weights of a layout. CHANGE is Python over t (name → [dtype, shape, numbers]), meta and c
(config.json, None: none is written)."""
import json, os, random, struct, sys
FORM = {"F32": "f", "F64": "d", "F16": "e", "I32": "i"}
kind, out = sys.argv[1:3]
r, t, meta, c = random.Random(7), {}, {"format": "pt", "someone's": "note"}, None
def w(name, *shape, dtype="F32"):
    count = 1
    for size in shape: count *= size
    t[name] = [dtype, list(shape), [r.uniform(-0.5, 0.5) for _ in range(count)]]
def minlm(lstm, V=9, D=6, H=9, F=15, layers=2):
    w("token_emb.weight", V, D); w("norm.weight", D); w("to_logits.weight", V, D)
    for i in range(layers):
        l = f"layers.{i}."
        w(l + "0.net.0.weight", D, 1, 3); w(l + "0.net.0.bias", D); w(l + "0.net.1.weight", D, D, 1)
        w(l + "0.net.1.bias", D); w(l + "1.weight", D); w(l + "3.weight", D); w(l + "2.to_out.weight", D, H)
        w(l + "2.to_hidden_and_" + ("f_i_gate.weight" if lstm else "gate.weight"), (3 if lstm else 2) * H, D)
        w(l + "4.0.weight", F, D); w(l + "4.0.bias", F); w(l + "4.2.weight", D, F); w(l + "4.2.bias", D)
def authors(V=7, D=4, H=8, F=6):
    w("token_emb.weight", V, D); w("norm.gamma", D); w("to_out.weight", V, D)
    l = "layers.0."
    w(l + "1.gamma", D); w(l + "2.to_hidden_and_gate.weight", 3 * H, D); w(l + "2.to_hidden_and_gate.bias", 3 * H)
    w(l + "2.to_out.weight", D, H); w(l + "2.to_out.bias", D); w(l + "2.init_hidden_state", H); w(l + "3.gamma", D)
    w(l + "4.0.weight", 2 * F, D); w(l + "4.0.bias", 2 * F); w(l + "4.1.mult_bias", F)
    w(l + "4.2.weight", D, F); w(l + "4.2.bias", D)
def mamba(V=7, D=5, H=10, S=4, K=4, R=1, layers=2):
    w("backbone.embeddings.weight", V, D); w("backbone.norm_f.weight", D)
    for i in range(layers):
        l = f"backbone.layers.{i}."
        m = l + "mixer."
        w(l + "norm.weight", D); w(m + "A_log", H, S); w(m + "D", H); w(m + "conv1d.weight", H, 1, K)
        w(m + "conv1d.bias", H); w(m + "in_proj.weight", 2 * H, D); w(m + "x_proj.weight", R + 2 * S, H)
        w(m + "dt_proj.weight", H, R); w(m + "dt_proj.bias", H); w(m + "out_proj.weight", D, H)
    return {"model_type": "mamba", "vocab_size": V, "hidden_size": D, "state_size": S, "num_hidden_layers": layers,
            "conv_kernel": K, "time_step_rank": R, "use_bias": False, "use_conv_bias": True, "hidden_act": "silu",
            "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "architectures": ["MambaForCausalLM"]}
def gru(D=3, H=4, layers=2):
    for i in range(layers):
        w(f"weight_ih_l{i}", 3 * H, D if i == 0 else H); w(f"weight_hh_l{i}", 3 * H, H)
        w(f"bias_ih_l{i}", 3 * H); w(f"bias_hh_l{i}", 3 * H)
if kind in ("mingru-lm", "minlstm-lm"): minlm(kind == "minlstm-lm")
elif kind == "mingru": w("to_hidden_and_gate.weight", 10, 4); w("to_out.weight", 4, 5)
elif kind == "plain-minlstm": w("to_hidden_and_f_i_gate.weight", 15, 4)
elif kind == "authors": authors()
elif kind == "mamba": c = mamba()
elif kind == "gru": gru()
def save(path, names):
    head, parts, at = {"__metadata__": meta}, [], 0
    for name in names:
        dtype, shape, numbers = t[name]
        raw = struct.pack(f"<{len(numbers)}{FORM[dtype]}", *numbers)
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        parts.append(raw); at += len(raw)
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(parts))
exec(sys.argv[3] if len(sys.argv) > 3 else "")
os.makedirs(out, exist_ok=True)
save(out + "/model.safetensors", sorted(t))
if c is not None: json.dump(c, open(out + "/config.json", "w"))
PYTHON
cat >same.py <<'PYTHON'
"""same.py A B: the tensors of both files have the same names, shapes and bits."""
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    n, = struct.unpack_from("<Q", data)
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    body = data[8 + n:]
    return {k: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for k, e in head.items()}
a, b = map(read, sys.argv[1:])
assert a.keys() == b.keys(), a.keys() ^ b.keys()
for name in a: assert a[name] == b[name], name
PYTHON
make() { rm -rf "$2" && python3 make.py "$@"; }

# ---- there and back

for case in mingru-lm:lucidrains minlstm-lm:lucidrains mingru:lucidrains plain-minlstm:lucidrains gru:torch; do
    kind=${case%:*} layout=${case#*:}
    make $kind there
    done_by "$minrnn" import there --out model --json
    check "$kind: whose it is" json "d['from'] == '$layout' and d['parameters'] > 0 and d['what']" out
    done_by "$minrnn" import there/model.safetensors --out again --from $layout
    check "$kind: a file and a folder are the same" same_files model again
    done_by "$minrnn" export model --to $layout --out back
    check "$kind: every number comes back" python3 same.py there/model.safetensors back
    done_by "$minrnn" import back --out again
    check "$kind: and makes the same model again" same_files model again
    make $kind there 'for x in t.values(): x[0] = "F64"'
    done_by "$minrnn" import there --out again
    check "$kind: F64 is rounded to what F32 has" same_files model again
done
for kind in authors mamba; do
    make $kind there
    done_by "$minrnn" import there --out $kind.model --json
    [ $kind = mamba ] || check "what nothing told is said" grep -q 'assumed: normalize-gates = no (a flag' err
    check "$kind: what was assumed" json "bool(d['assumed']) == ('$kind' == 'authors')" out
    check "$kind: whose it is" json "d['from'] == '${kind/authors/borealis}'" out
    refused 1 'h0 = learned: a minLSTM|normalize-gates = no: a minLSTM|mixer = mamba: a minGRU' \
        "$minrnn" export $kind.model --to lucidrains --out back.$kind
    check "$kind: nothing was written" [ ! -e back.$kind ]
done

# our own layout: every mixer, with its settings as metadata, as config.json, as flags
make_text text.txt 600 1
for form in "mingru --conv 4 --norm layer" "minlstm --conv 3 --conv-place residual --h0 learned" \
    "gru --gru-reset after" "lstm" "attention --heads 2" "mamba --states 4" \
    "mingru --mlp-gate swiglu --tie-embeddings"; do
    name=${form%% *}
    rm -rf run ours
    # shellcheck disable=SC2086
    done_by "$minrnn" train text --data text.txt --dim 8 --layers 2 --mlp 2 --context 16 --batch 2 --mixer $form \
        --steps 2 --out run --quiet
    done_by "$minrnn" export run --to torch --out ours.safetensors --json
    check "$name: what was written" json "d['to'] == 'torch' and d['file_bytes'] > 0" out
    done_by "$minrnn" import ours.safetensors --out ours.model
    done_by "$minrnn" score run text.txt --per-token
    mv out ours.scores
    done_by "$minrnn" score ours.model text.txt --per-token
    check "$name: the same model" same_files out ours.scores
done
run "$minrnn" info ours.safetensors
check "names of PyTorch" grep -q 'blocks.0.mixer.linear_h.weight' out
rm -rf run
done_by "$minrnn" train text --data text.txt --dim 8 --layers 1 --context 16 --batch 2 --mixer attention --heads 2 \
    --steps 1 --out run --quiet
done_by "$minrnn" export run --to torch --out ours.safetensors
check "nn.MultiheadAttention's names" grep -q 'blocks.0.mixer.out_proj.weight' ours.safetensors

# ---- what the weights do not tell

make mingru-lm there
done_by "$minrnn" import there --out model --norm-eps 1e-3
done_by "$minrnn" info model --json
check "a key given as a flag" json "d['config']['norm-eps'] == 1e-3 and d['config']['gelu'] == 'erf'" out
make authors there 'c = {"use_coeff_norm": False}'
done_by "$minrnn" import there --out model
done_by "$minrnn" info model --json
check "a key of config.json" json "d['config']['normalize-gates'] == 'no' and d['config']['h0'] == 'learned'" out
printf 'abcdefghi' >nine.txt
make mingru-lm there
done_by "$minrnn" import there --out model --vocab chars --text nine.txt
done_by "$minrnn" generate model --prompt abc --tokens 5 --quiet
done_by "$minrnn" score model nine.txt
refused 1 'reads 9 tokens and has 9 outputs, the vocabulary has 256' "$minrnn" import there --out new --vocab bytes
make mingru other
refused 1 'has no tokens as input' "$minrnn" import other --out new --vocab bytes

# ---- info

make mamba there
done_by "$minrnn" info there
check "info: whose it is, how to import it" grep -q 'to import: minrnn import there --from mamba' out
check "info: tensors" grep -qE 'backbone.layers.1.mixer.A_log +F32 +10 × 4' out
done_by "$minrnn" info there/model.safetensors --json
check "info --json" json "d['from'] == 'mamba' and len(d['tensors']) == 22 and d['shards'] == 1 \
    and d['total_numbers'] * 4 == d['total_bytes']" out
make other there 't["x"] = ["I32", [2], [1, 2]]'
done_by "$minrnn" info there --json
check "info of something else" json \
    "d['from'] is None and d['tensors'] == [{'name': 'x', 'shape': [2], 'dtype': 'I32'}]" out

make other there 't["a\nb\033[2Jé"] = ["I32", [2], [1, 2]]'
done_by "$minrnn" info there
check "info of a name that steers a terminal" grep -qF '  a?b?[2Jé  ' out
refused 1 'the first is a\?b\?\[2J' "$minrnn" import there --out new

# ---- what is refused: one line, status 1, nothing written

spoiled() { # KIND CHANGE PATTERN [FLAG…]
    local kind=$1 change=$2 pattern=$3
    shift 3
    make "$kind" there "$change"
    rm -f new
    refused 1 "$pattern" "$minrnn" import there --out new "$@"
    check "nothing was written: $change" [ ! -e new ]
}
for kind in mingru-lm minlstm-lm; do
    spoiled $kind 'del t["layers.1.4.2.bias"]' 'has no tensor layers\.1\.4\.2\.bias'
    spoiled $kind 'del t["layers.0.1.weight"]' 'has no tensor layers\.0\.1\.weight'
    spoiled $kind 'w("layers.1.5.weight", 2)' 'tensor layers\.1\.5\.weight has no place in a minLM'
    spoiled $kind 'w("layers.3.1.weight", 6)' 'tensor layers\.3\.1\.weight has no place'
    spoiled $kind 't["layers.0.2.to_out.weight"][1].reverse()' \
        'tensor layers\.0\.2\.to_out\.weight is 9 × 6, not 6 × 9: it is transposed'
    spoiled $kind 't["layers.1.0.net.0.weight"][1] = [6, 3, 1]' 'net\.0\.weight is 6 × 3 × 1, not 6 × 1 × 3'
    spoiled $kind 't["norm.weight"][2][4] = float("nan")' 'tensor norm\.weight: element 4 is NaN'
    spoiled $kind 't["norm.weight"][2][0] = float("-inf")' 'tensor norm\.weight: element 0 is infinite'
    spoiled $kind 't["norm.weight"] = ["F64", [6], [1e39] * 6]' 'element 0 is too large for a float'
    spoiled $kind 't["norm.weight"] = ["I32", [6], [1] * 6]' 'norm\.weight is I32, not of floats'
    spoiled $kind 'w("to_logits.weight", 8, 6)' 'to_logits\.weight is 8 × 6, not 9 × 6'
    spoiled $kind 'w("token_emb.weight", 54)' 'tensor token_emb\.weight has 1 sizes, not 2'
    spoiled $kind 'w("token_emb.weight", 0, 6)' 'tensor token_emb\.weight is empty'
    spoiled $kind 'w("layers.0.0.net.0.weight", 6, 1, 17)' 'conv = 17'
done
spoiled mingru 'w("to_out.bias", 4)' 'tensor to_out\.bias has no place in a minGRU layer'
spoiled mingru 'w("to_out.weight", 4, 6)' 'to_out\.weight is 4 × 6, not 4 × 5'
spoiled mingru-lm 'pass' 'no vocabulary|vocabulary has' --vocab bytes
spoiled mingru-lm 'pass' 'has no tensor' --from mamba
spoiled mingru-lm 'pass' 'has no tensor' --from borealis
spoiled mingru-lm 'pass' 'has no tensor' --from torch
spoiled mingru-lm 'meta["format"] = "minrnn"' 'already a file of minrnn'
spoiled other 'w("x", 2)' 'not of a program that minrnn knows \(1 tensors, the first is x\)'
spoiled other 'pass' '0 tensors'
spoiled authors 'w("layers.0.1.norm.running_mean", 4)' 'running_mean: BatchNorm cannot be expressed'
spoiled authors 'w("layers.0.2.to_hidden_and_gate.weight", 20, 4)' 'has 20 rows, not 2 or 3 times the 8 channels'
spoiled authors 'del t["layers.0.4.1.mult_bias"]; w("layers.0.4.1.bias", 6)' '4\.1\.bias has no place'
spoiled authors 'w("layers.0.4.1.mult_bias", 7)' 'mult_bias is 7, not 6'
spoiled mamba 'c["use_bias"] = True' 'use_bias = true cannot be expressed'
spoiled mamba 'c["model_type"] = "mamba2"' 'model_type = mamba2 cannot be expressed'
spoiled mamba 'c["hidden_act"] = "gelu"' 'hidden_act = gelu cannot be expressed'
spoiled mamba 'c["hidden_size"] = 6' 'hidden_size = 6, but the tensors have 5'
spoiled mamba 'c["intermediate_size"] = 12' 'intermediate_size = 12, but the tensors have 10'
spoiled mamba 'c["num_hidden_layers"] = 3' 'num_hidden_layers = 3, but the tensors have 2'
spoiled mamba 'c["use_conv_bias"] = False' 'conv1d\.bias has no place'
spoiled mamba 'c["layer_norm_epsilon"] = "x"' 'norm-eps = x: must be a number'
spoiled mamba 'c["layer_norm_epsilon"] = ""' 'norm-eps = : must be a number'
spoiled mamba 'c["layer_norm_epsilon"] = True' 'norm-eps = true: must be a number'
spoiled mamba 'c["layer_norm_epsilon"] = [1]' 'config\.json: layer_norm_epsilon is a list or an object'
spoiled mamba 'w("lm_head.weight", 7, 5)' 'lm_head\.weight is not the embedding'
spoiled mamba 'c["tie_word_embeddings"] = False' 'has no tensor lm_head\.weight'
spoiled mamba 't.clear(); c = mamba(S=33)' 'state_size = 33: at most 32'
spoiled mamba 't.clear(); c = mamba(K=17)' 'conv_kernel = 17: at most 16'
spoiled gru 'w("weight_hh_l0", 11, 4)' 'neither of a GRU nor of an LSTM'
spoiled gru 'w("weight_ih_l0_reverse", 12, 3)' 'weight_ih_l0_reverse has no place'
spoiled gru 'del t["bias_hh_l1"]' 'has no tensor bias_hh_l1'

spoiled gru 'meta["vocab"] = "[1]"; w("embed.weight", 9, 4); w("blocks.0.norm1.weight", 4)' 'has no place in a nn'

# settings that cannot be read must not be assumed
make mamba there
rm there/config.json
ln -s nowhere there/config.json
refused 1 'there/config\.json: cannot be opened' "$minrnn" import there --out new
make mingru-lm there
printf 'abc\377' >latin.txt
refused 1 '^minrnn import: --text latin\.txt: line 1, byte 4: 0xFF' \
    "$minrnn" import there --out new --vocab chars --text latin.txt

# a run without a model is no other program's weights
mkdir half && cp run/state.safetensors half
refused 1 'a folder without model.safetensors' "$minrnn" info half
refused 1 'already a file of minrnn' "$minrnn" import half --out new

# a model whose metadata were damaged is still called a model
python3 -c 'import sys; sys.stdout.buffer.write(open("model", "rb").read().replace(b"minrnn", b"minrmm"))' >damaged
refused 1 'not a minrnn model' "$minrnn" info damaged

# files that are no weights, shards that lie
make mingru there
head -c 100 there/model.safetensors >cut
refused 1 'cut off' "$minrnn" import cut --out new
refused 1 'not a model file' "$minrnn" import text.txt --out new
refused 1 'gone' "$minrnn" import gone --out new
printf 'PK\003\004 and so on' >zip.pt
printf '\200\002\212\012l and so on' >legacy.pt
for file in zip.pt legacy.pt; do
    refused 1 "$file: written by torch.save" "$minrnn" import $file --out new
    refused 1 "$file: written by torch.save" "$minrnn" info $file
done
mkdir empty && refused 1 'a folder without safetensors files' "$minrnn" import empty --out new
for map in '"to_out.weight":"gone.safetensors"' '"to_out.weight":"../x.safetensors"' '"x":"model.safetensors"' \
    '"to_out.weight":"model.safetensors"' '"x":"model.safetensors","x":"model.safetensors"'; do
    echo "{\"weight_map\":{$map}}" >there/lies.index.json
    refused 1 'weight_map|there twice' "$minrnn" import there/lies.index.json --out new
done
refused 1 'lies.index.json' "$minrnn" info there/lies.index.json
python3 - <<'PYTHON'
import json, struct # two tensors that overlap
data = open("there/model.safetensors", "rb").read()
n, = struct.unpack_from("<Q", data)
head = json.loads(data[8:8 + n])
head["to_out.weight"]["data_offsets"] = [at - 4 for at in head["to_out.weight"]["data_offsets"]]
text = json.dumps(head).encode()
open("overlap", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
PYTHON
refused 1 'overlaps' "$minrnn" import overlap --out new
check "nothing was written" [ ! -e new ]

# ---- what is there already stays

make mingru there
done_by "$minrnn" import there --out model
echo mine >mine
refused 1 'mine exists and is no model' "$minrnn" import there --out mine
refused 1 'mine exists and is no export' "$minrnn" export model --to torch --out mine
check "it is still there" grep -qx mine mine
refused 1 'is no model of minrnn' "$minrnn" import there --out there/model.safetensors
refused 1 'is the model itself' "$minrnn" export model --to torch --out ./model
done_by "$minrnn" export model --to torch --out back.torch
done_by "$minrnn" export model --to lucidrains --out back.torch
make mingru there 't["to_out.weight"][2][0] = float("nan")'
before=$(sum_of model)
refused 1 'NaN' "$minrnn" import there --out model
check "a model that is not replaced is intact" [ "$(sum_of model)" = "$before" ]

# ---- stopped half-way: a signal while a file is written leaves nothing, not even its temporary file

cat >stop.py <<'PYTHON'
"""stop.py SIGNAL TEMPORARY COMMAND…: sends the signal as soon as the temporary file is there; prints how it ended."""
import os, signal, subprocess, sys
ending = 0
for _ in range(30): # until one was slow enough
    p = subprocess.Popen(sys.argv[3:], stdout=subprocess.DEVNULL, preexec_fn=lambda: [
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_DFL) for name in ("INT", "TERM", "HUP")])
    while p.poll() is None and not os.path.exists(sys.argv[2]): pass
    p.send_signal(getattr(signal, "SIG" + sys.argv[1]))
    ending = p.wait()
    if ending: break
print(ending)
PYTHON
python3 - <<'PYTHON'
import json, struct
text = json.dumps({"to_hidden_and_gate.weight": {"dtype": "F32", "shape": [4096, 2048],
                                                 "data_offsets": [0, 4 * 4096 * 2048]}}).encode()
with open("large.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.truncate(8 + len(text) + 4 * 4096 * 2048)
PYTHON
done_by "$minrnn" import large.safetensors --out large
for case in "INT -2" "TERM -15" "HUP -1"; do
    read -r signal code <<<"$case"
    check "import: $signal ends it" [ "$(python3 stop.py $signal new.tmp \
        "$minrnn" import large.safetensors --out new)" = "$code" ]
    check "import: $signal leaves no temporary file" [ ! -e new.tmp ]
    rm -f new
    check "export: $signal ends it" [ "$(python3 stop.py $signal new.tmp \
        "$minrnn" export large --to torch --out new)" = "$code" ]
    check "export: $signal leaves no temporary file" [ ! -e new.tmp ]
    rm -f new
done
refused 1 '`minrnn import` makes one' "$minrnn" generate large.safetensors
refused 1 '`minrnn import` makes one' "$minrnn" train text --data text.txt --init large.safetensors --out new
rm -f large large.safetensors

# ---- what cannot be written

done_by "$minrnn" export run --to torch --out torch.safetensors
refused 1 'mixer = attention: a .* has mixer = mingru' "$minrnn" export run --to lucidrains --out new
rm -rf run
done_by "$minrnn" train text --data text.txt "${tiny[@]}" --mixer gru --steps 1 --out run --quiet
refused 1 'gru-reset = before: a .* has gru-reset = after' "$minrnn" export run --to torch --out new
rm -rf run
done_by "$minrnn" train text --data text.txt "${tiny[@]}" --mixer mingru --mixer-bias no --steps 1 --out run --quiet
refused 1 'gelu = tanh: a minLM has gelu = erf' "$minrnn" export run --to lucidrains --out new
done_by "$minrnn" quantize run --out small --quiet
refused 1 'weights = int8' "$minrnn" export small --to torch --out new
check "nothing was written" [ ! -e new ]

# ---- usage

make mingru there
refused 2 '--out MODEL is missing' "$minrnn" import there
refused 2 '--steps is neither a flag nor a key of a model$' "$minrnn" import there --out new --steps 3
refused 2 'did you mean --heads\?' "$minrnn" import there --out new --headz 3
refused 2 'did you mean --heads' "$minrnn" import there --out new --head_s 3
refused 2 'belong together' "$minrnn" import there --out new --vocab chars
refused 2 'unknown layout toch; did you mean torch' "$minrnn" export model --to toch --out new
refused 2 '--to LAYOUT is missing' "$minrnn" export model --out new
refused 2 '--out FILE is missing' "$minrnn" export model --to torch

finish
