#!/usr/bin/env bash
# Training that keeps less and computes it again: the same model, in less memory, also over a million tokens.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
steps=60
recipe=(text --data text.txt "${tiny[@]}" --conv 4 --dropout 0 --steps "$steps" --eval-every 23)
pieces=(--recompute chunks --recompute-chunk 8)

values_of() { sed -n 's/^recompute[a-z-]* = //p' "$1/recipe.ini" | tr '\n' ' '; }
losses_are_near() { # DIR DIR: in every line of their logs
    python3 - "$1/log.jsonl" "$2/log.jsonl" <<'PYTHON'
import json, sys
a, b = ([json.loads(line)["loss"] for line in open(path)] for path in sys.argv[1:])
sys.exit(not (len(a) == len(b) > 60 and all(abs(x - y) <= 2e-4 * abs(x) for x, y in zip(a, b))))
PYTHON
}

# ---- the same model
for how in none blocks; do
    done_by "$minrnn" train "${recipe[@]}" --recompute $how --out $how
    cp err $how.err
done
done_by "$minrnn" train "${recipe[@]}" "${pieces[@]}" --out chunks
cp err chunks.err
done_by "$minrnn" train "${recipe[@]}" --out auto
check "by blocks: the same bits" same_files none/last.safetensors blocks/last.safetensors
check "by blocks: the same log" cmp <(timeless none/log.jsonl) <(timeless blocks/log.jsonl)
check "auto has room, and keeps all" same_files none/last.safetensors auto/last.safetensors
check "by chunks: the same losses" losses_are_near none chunks
check "by chunks: other bits" [ "$(sum_of none/last.safetensors)" != "$(sum_of chunks/last.safetensors)" ]
check "none says nothing" [ "$(grep -c recompute none.err)" = 0 ]
check "auto says nothing where nothing is computed again" [ "$(grep -c recompute err)" = 0 ]
check "blocks says so once" [ "$(grep -c '^recompute = blocks: ' blocks.err)" = 1 ]
check "chunks says so once" [ "$(grep -c '^recompute = chunks: .* 8 tokens at a time' chunks.err)" = 1 ]
check "the run has what was chosen" [ "$(values_of auto)$(values_of chunks)" = "none 0 chunks 8 " ]
done_by "$minrnn" train "${recipe[@]}" --recompute chunks --out unsaid
check "the plan chooses the length" [ "$(values_of unsaid)" = "chunks 16 " ]

# ---- resumed
done_by "$varied" train "${recipe[@]}" "${pieces[@]}" --dropout 0.2 --out whole
done_by "$varied" train "${recipe[@]}" "${pieces[@]}" --dropout 0.2 --threads 2 --steps 21 --out part
refused 1 'the run has recompute-chunk = 8, which cannot become 16 now' "$varied" train --out part --resume \
    --recompute-chunk 16
refused 1 'the run has recompute = chunks, which cannot become none now' "$varied" train --out part --resume \
    --recompute none --recompute-chunk 0
timeout -s KILL 0.2 "$minrnn" train --out part --resume --steps "$steps" --save-every 3 --quiet >/dev/null 2>&1
done_by "$varied" train --out part --resume --steps "$steps"
check "chunks, stopped and resumed: the same bits" same_files whole/last.safetensors part/last.safetensors

# ---- runs that are older than these keys kept all
done_by "$minrnn" train "${recipe[@]}" --out older
done_by "$varied" train "${recipe[@]}" --steps 20 --out half
sed -i '/^recompute/d' half/recipe.ini
python3 - half/state.safetensors <<'PYTHON'
import json, sys
data = open(sys.argv[1], "rb").read()
size = int.from_bytes(data[:8], "little")
header = json.loads(data[8:8 + size])
del header["__metadata__"]["train.recompute"]
text = json.dumps(header, ensure_ascii=False).encode()
text += b" " * (-len(text) % 64)
open(sys.argv[1], "wb").write(len(text).to_bytes(8, "little") + text + data[8 + size:])
PYTHON
refused 1 'the run has recompute = none, which cannot become chunks now' "$varied" train --out half --resume \
    "${pieces[@]}"
done_by "$varied" train --out half --resume --steps "$steps"
check "an older run goes on as it was" same_files older/last.safetensors half/last.safetensors

# ---- refused
refused 1 'recompute = some: must be one of auto, none, blocks, chunks' "$minrnn" train "${recipe[@]}" \
    --recompute some --out no
refused 1 'recompute-chunk = 16: recompute = blocks has no chunks' "$minrnn" train "${recipe[@]}" --recompute blocks \
    --recompute-chunk 16 --out no
refused 1 'recompute = chunks: head = [a-z]* looks at whole sequences; use blocks or none' "$minrnn" train listops \
    --recompute chunks --out no
check "nothing is left of what was refused" [ ! -e no/model.safetensors ]

# ---- a million tokens in little memory
cat >peak.py <<'PYTHON'
"""peak.py COMMAND…: runs it and prints the most memory that it had, in MB."""
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(done.returncode)
PYTHON
long=1048576 most=200
[ "$slow" = 1 ] && long=65536
make_text long.txt $((long / 4)) 2
done_by python3 peak.py "$minrnn" train text --data long.txt --vocab bytes --layers 2 --dim 64 --batch 1 \
    --context "$long" --steps 2 --recompute chunks --quiet --out long
echo "$long tokens: $(cat out) MB"
if [ "$sanitized" = 1 ]; then left_out "memory: sanitizers take more"
else check "$(cat out) MB, not $most" [ "$(cat out)" -lt "$most" ]; fi
check "its loss is finite" grep -q '"kind":"step","step":2,"loss":[0-9.]*,' long/log.jsonl

finish
