#!/usr/bin/env bash
# Long Range Arena by the command: each recipe made small, resumed, scored on its test part; small versions that are
# learnt well above chance.
source "$(dirname "$0")/cli_support.bash"

small=(--layers 2 --dim 32 --dropout 0 --batch 32 --quiet --device cpu --threads 1)

# ---- ListOps: the largest class has a share of less than 0.2
listops=(listops "${small[@]}" --min-length 2 --max-length 16 --depth 3 --arguments 4
    --train-size 4000 --validation-size 500 --test-size 500 --lr 1e-2 --warmup 30)
steps=400
[ "$slow" = 1 ] && steps=40
done_by "$varied" train "${listops[@]}" --steps $steps --eval-every 100 --out listops
done_by "$minrnn" eval listops/model.safetensors --split test --device cpu --threads 1 --json
check "listops: eval" json "d['task'] == 'listops' and d['rows'] == 500" out
[ "$slow" = 1 ] || check "listops: learnt" json "d['accuracy'] > 0.38" out
done_by "$varied" train "${listops[@]}" --pool last --steps 20 --eval-every 10 --out whole
refused 1 "--resume" "$varied" train "${listops[@]}" --out whole
done_by "$minrnn" info whole/model.safetensors --json
check "listops: the head" json "d['config']['head'] == 'last' and d['vocabulary'] == 0" out
refused 1 'different trees' "$minrnn" train listops --min-length 2 --max-length 5 --depth 2 --arguments 2 --out new
refused 1 'split = all: must be one of validation, test' "$minrnn" eval listops/model.safetensors --split all \
    --device cpu

# ---- retrieval, on pairs in the published form: do both documents use the same letters?
mkdir -p data/retrieval
python3 - <<'PYTHON'
import random
random.seed(1)
words = ["abcd", "cdef", "efab"]
def document(k): return "".join(random.choice(words[k]) for _ in range(random.randrange(5, 30)))
for name, n in (("train", 2000), ("eval", 300), ("test", 400)):
    with open(f"data/retrieval/new_aan_pairs.{name}.tsv", "w") as file:
        for i in range(n):
            a = random.randrange(3)
            b = a if i % 2 else (a + random.randrange(1, 3)) % 3
            file.write(f"{i % 2}.0\tid{a}\tid{b}\t{document(a)}\t{document(b)}\n")
PYTHON
retrieval=(retrieval "${small[@]}" --layers 1 --length 24 --lr 1e-2 --warmup 10)
done_by env MINRNN_DATA=data "$varied" train "${retrieval[@]}" --steps 100 --eval-every 50 --out retrieval
done_by env MINRNN_DATA=data "$minrnn" eval retrieval/model.safetensors --split test --device cpu --threads 1 --json
check "retrieval: learnt" json "d['rows'] == 400 and d['accuracy'] > 0.8" out
done_by env MINRNN_DATA=data "$minrnn" eval retrieval/model.safetensors --device cpu --examples 2
check "retrieval: examples" [ "$(grep -c '^target' out)" -eq 2 ]
done_by env MINRNN_DATA=data "$varied" train "${retrieval[@]}" --steps 30 --eval-every 10 --schedule constant --out half
done_by env MINRNN_DATA=data "$varied" train "${retrieval[@]}" --steps 17 --eval-every 10 --schedule constant \
    --out resumed
done_by env MINRNN_DATA=data "$minrnn" train --out resumed --resume --steps 30
check "retrieval: a resumed run is the whole one" cmp half/last.safetensors resumed/last.safetensors
done_by env MINRNN_DATA=data "$minrnn" quantize retrieval/model.safetensors --out retrieval.8 --device cpu
done_by env MINRNN_DATA=data "$minrnn" eval retrieval.8 --split test --device cpu --threads 1 --json
check "retrieval: in 8 bits" json "d['accuracy'] > 0.8" out
refused 1 'batch must be even' env MINRNN_DATA=data "$minrnn" train retrieval --batch 3 --out new
printf '1.0\tid\tid\ttext\n' >data/retrieval/new_aan_pairs.eval.tsv
refused 1 'eval.tsv, line 1: has 4 columns' env MINRNN_DATA=data "$minrnn" train retrieval --out new
refused 1 'minrnn data get lra' env MINRNN_DATA=nowhere XDG_CACHE_HOME="$PWD/none" "$minrnn" train retrieval --out new
refused 1 'minrnn data get cifar10' env MINRNN_DATA=nowhere XDG_CACHE_HOME="$PWD/none" "$minrnn" train image --out new
done_by env MINRNN_DATA=nowhere XDG_CACHE_HOME="$PWD/none" "$minrnn" data list --json
check "data: what is not here" json \
    "[s['path'] for s in d] == [None] * len(d) and {'cifar10', 'lra', 'shakespeare'} <= {s['name'] for s in d}" out

# ---- G-Image: ten classes of equal size
if [ "$slow" = 1 ]; then
    left_out "G-Image: too slow in this build"
elif [ -n "${MINRNN_DATA:-}" ] && [ -e "$MINRNN_DATA/cifar10/gray.bin" ]; then
    image=(image "${small[@]}" --side 8 --values reals --layers 1 --mlp 0 --lr 1e-2 --warmup 30)
    done_by "$varied" train "${image[@]}" --steps 400 --eval-every 400 --out image
    done_by "$minrnn" eval image/model.safetensors --split test --device cpu --threads 1 --json
    check "image: learnt" json "d['rows'] == 10000 and d['accuracy'] > 0.2" out
    done_by "$varied" train image "${small[@]}" --side 8 --flip yes --batch 4 --layers 1 --dim 8 --steps 2 \
        --eval-every 2000 --max-seconds 1 --out tokens
else
    left_out "G-Image: set MINRNN_DATA to the folder that has cifar10/gray.bin"
fi

finish
