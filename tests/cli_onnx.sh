#!/usr/bin/env bash
# `minrnn export --to onnx`: what it refuses, and that onnxruntime computes the scores of the library from its files.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 400 1
done_by "$minrnn" train text --data text.txt --out run "${tiny[@]}" --steps 3 --quiet

done_by "$minrnn" export run --to onnx --out model.onnx
done_by "$minrnn" export run/model.safetensors --to onnx --out again.onnx
check "the same bytes" same_files model.onnx again.onnx
done_by "$minrnn" export run --to onnx --out again.onnx # in the place of the other
check "no other files" [ "$(ls)" = "$(printf '%s\n' again.onnx err model.onnx out run text.txt)" ]

cp run/model.safetensors copy.safetensors
refused 1 'copy.safetensors is the model itself' "$minrnn" export copy.safetensors --to onnx --out copy.safetensors
check "the model is intact" same_files copy.safetensors run/model.safetensors
echo kept >precious
refused 1 'precious exists and is no export' "$minrnn" export run --to onnx --out precious
check "the other file is intact" [ "$(cat precious)" = kept ]
refused 1 'missing/model.onnx' "$minrnn" export run --to onnx --out missing/model.onnx
refused 1 'text.txt: not a model file' "$minrnn" export text.txt --to onnx --out other.onnx
refused 2 'out FILE is missing' "$minrnn" export run --to onnx
check "nothing was left" [ ! -e other.onnx ]

# The interpreter: one that has onnxruntime.
python=
for candidate in "${MINRNN_PYTHON:-}" python3; do
    [ -n "$candidate" ] && "$candidate" -c 'import numpy, onnxruntime' 2>>err && python=$candidate && break
done
library=$(dirname "$minrnn")/libminrnn.so
if [ -z "$python" ]; then
    left_out "scores in onnxruntime: no python3 with numpy and onnxruntime; MINRNN_PYTHON can name one"
elif [ ! -e "$library" ]; then left_out "scores in onnxruntime: no shared library in this build"
elif [ "$sanitized" = 1 ]; then left_out "scores in onnxruntime: python cannot load a library with sanitizers"
else
    check "scores" "$python" "$tests/onnx_check.py" "$minrnn" "$library"

    # A text, scored one step at a time; its tokens by the metadata.
    cat >score.py <<'PYTHON'
import json, sys
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
vocab = json.loads(session.get_modelmeta().custom_metadata_map["vocab"])
ids = [vocab.index(c) for c in open(sys.argv[2], encoding="utf-8", newline="").read()]
names = [part.name for part in session.get_inputs()[1:]]
state = [np.zeros([1, *part.shape[1:]], np.float32) for part in session.get_inputs()[1:]]
expected, off = json.load(open(sys.argv[3]))["logprobs"], []
for token, target, logprob in zip(ids, ids[1:], expected, strict=False):
    scores, *state = session.run(None, {"ids": [[token]], **dict(zip(names, state))})
    row = scores[0, 0].astype(np.float64)
    off.append(abs(row[target] - np.logaddexp.reduce(row) - logprob))
worst = max(off) if not any(o != o for o in off) else float("inf")
print(f"{len(off)} tokens, largest difference {worst:.1e}")
sys.exit(not (len(off) == len(expected) == len(ids) - 1 and worst <= 1e-5))
PYTHON
    "$minrnn" score run text.txt --per-token --json --mode step --device cpu >score.json
    check "log-probabilities of a text" "$python" score.py model.onnx text.txt score.json

    # The program of the documentation.
    sed -n '/^<!-- program: onnx -->$/,/^```$/p' "$tests"/../docs/weights.md |
        sed '1,/^```python$/d; /^```$/d' >write.py
    done_by "$python" write.py model.onnx "the quick"
    check "the prompt and 200 characters" python3 - <<'PYTHON'
text = open("out", encoding="utf-8", newline="").read()
assert text.startswith("the quick") and len(text) == len("the quick") + 200 + 1, text
PYTHON
fi
finish
