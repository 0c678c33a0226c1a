#!/usr/bin/env bash
# Laws of training, as the command shows them: micro-batches add up to a batch, and the logged learning rates are those
# of closed forms.
source "$(dirname "$0")/cli_support.bash"

# ---- K micro-batches of B are one batch of K·B
# One character only, so that every batch has the same rows. A large eps lets the weights show the gradient's size:
# Adam alone would hide a wrong scale.
printf 'a%.0s' {1..2000} >same.txt
small=(--layers 1 --expansion 2 --mlp 2 --context 32 --dropout 0 --quiet)
whole=(text --data same.txt --vocab bytes --dim 16 "${small[@]}" --steps 6 --eval-every 6 --lr 0.01 --schedule constant
    --warmup 0 --eps 0.1 --clip 0)
done_by "$minrnn" train "${whole[@]}" --batch 6 --accumulate 1 --out one
done_by "$minrnn" train "${whole[@]}" --batch 2 --accumulate 3 --out three
done_by "$minrnn" train "${whole[@]}" --batch 1 --accumulate 6 --out six
cat >compare.py <<'PYTHON'
"""compare.py DIR DIR: the weights of two runs and the numbers of their logs, to 1e-5; NaN is never close."""
import json, struct, sys
def weights(folder):
    content = open(f"{folder}/last.safetensors", "rb").read()
    size, = struct.unpack("<Q", content[:8])
    found = {}
    for name, entry in json.loads(content[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            found[name] = struct.unpack(f"<{(end - begin) // 4}f", content[begin:end])
    return found
def log(folder):
    steps = [json.loads(line) for line in open(f"{folder}/log.jsonl")]
    return {f"{key} of step {line['step']}": (line[key],) for line in steps if line["kind"] == "step"
            for key in ("loss", "grad_norm", "lr")}
for read in (weights, log):
    a, b = map(read, sys.argv[1:3])
    assert a and a.keys() == b.keys()
    for name in a:
        assert len(a[name]) == len(b[name])
        for x, y in zip(a[name], b[name]):
            assert abs(x - y) <= 1e-5 * max(1, abs(x)), f"{name}: {x} and {y}"
losses = [values[0] for name, values in log(sys.argv[1]).items() if name.startswith("loss")]
assert losses[-1] < 0.9 * losses[0], "it learned nothing"
PYTHON
check "3 micro-batches of 2 are not one batch of 6" python3 compare.py one three
check "6 micro-batches of 1 are not one batch of 6" python3 compare.py one six

# ---- learning rates
cat >rates.py <<'PYTHON'
"""rates.py DIR SCHEDULE LR STEPS WARMUP: every logged rate is that of the closed form."""
import json, math, sys
folder, schedule, lr, steps, warmup = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
lines = [json.loads(line) for line in open(f"{folder}/log.jsonl")]
rates = {line["step"]: line["lr"] for line in lines if line["kind"] == "step"}
assert sorted(rates) == list(range(1, steps + 1))
for step, rate in rates.items():
    progress = (step - 1 - warmup) / max(1, steps - warmup)
    want = lr * (step / warmup if step <= warmup else
                 {"constant": 1, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[schedule])
    assert abs(rate - want) <= 1e-6 * lr, f"step {step}: {rate}, not {want}"
PYTHON
make_text text.txt 600 1
for schedule in constant linear cosine; do
    for warmup in 0 1 4; do
        out=$schedule-$warmup
        done_by "$minrnn" train text --data text.txt --dim 4 --batch 4 "${small[@]}" --steps 12 --eval-every 12 \
            --lr 0.02 --schedule $schedule --warmup $warmup --out "$out"
        check "$out: the logged rates" python3 rates.py "$out" $schedule 0.02 12 $warmup
    done
done

finish
