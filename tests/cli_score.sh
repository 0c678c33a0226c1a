#!/usr/bin/env bash
# score: the same log-probabilities in parallel, step by step and in chunks, however the text arrives; constant memory.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
make_text heard.txt 600 2
tokens=$(python3 -c 'print(len(open("heard.txt", encoding="utf-8").read()))')
chunk=$(python3 -c 'import random; print(random.randint(2, 900))')
echo "random chunk: $chunk"

# agree BOUND A B: the log-probabilities of two scores, and what --json promises of each. Says how far they are apart.
agree() {
    python3 - "$@" <<'PYTHON'
import json, math, sys
bound, apart = float(sys.argv[1]), 0.0
a, b = (json.load(open(f)) for f in sys.argv[2:])
for d in (a, b):
    assert set(d) == {"tokens", "nats_per_token", "logprobs"}, set(d)
    assert len(d["logprobs"]) == d["tokens"] - 1, (len(d["logprobs"]), d["tokens"])
    assert all(math.isfinite(x) and x <= 1e-6 for x in d["logprobs"])
    mean = sum(d["logprobs"]) / len(d["logprobs"])
    assert abs(mean + d["nats_per_token"]) <= 1e-6 * max(1, -mean), (mean, d["nats_per_token"])
assert a["tokens"] == b["tokens"], (a["tokens"], b["tokens"])
for x, y in zip(a["logprobs"], b["logprobs"]):
    apart = max(apart, abs(x - y))
print(f"{sys.argv[3]}: at most {apart:.1e} apart")
assert apart <= bound, apart
PYTHON
}

# fp32 through two blocks: 1e-6 was the largest seen
bound=1e-5

# ---- every mode, every form of block
forms=("mingru 0 0" "mingru 4 2" "minlstm 0 2" "minlstm 4 0" "mamba 0 0")
[ "$slow" = 1 ] || forms+=("mingru 4 0" "mingru 0 2" "minlstm 0 0" "minlstm 4 2" "mamba 4 2")
for form in "${forms[@]}"; do
    read -r mixer conv mlp <<<"$form"
    name=$mixer-$conv-$mlp h0=learned
    [ "$mixer" = mamba ] && h0=zero
    done_by "$varied" train text --data text.txt "${tiny[@]}" --mixer "$mixer" --conv "$conv" --mlp "$mlp" --h0 $h0 \
        --steps 60 --lr 0.01 --warmup 10 --out "$name"
    model=$name/model.safetensors
    for mode in parallel step chunk=1 "chunk=$chunk" chunk=100000; do
        done_by "$minrnn" score "$model" heard.txt --mode "$mode" --per-token --json
        mv out "$name-$mode.json"
        [ "$mode" = parallel ] || check "$name, $mode" agree $bound "$name-parallel.json" "$name-$mode.json"
    done
    check "$name: step and chunk=1 are one thing" same_files "$name-step.json" "$name-chunk=1.json"
    check "$name: tokens" json "d['tokens'] == $tokens" "$name-parallel.json"
done
model=mingru-4-2/model.safetensors

# ---- the other outputs say the same
done_by "$minrnn" score $model heard.txt --json
check "without --per-token" json "set(d) == {'tokens', 'nats_per_token'} and d['tokens'] == $tokens" out
done_by "$minrnn" score $model heard.txt
check "for people" grep -qE "^$tokens tokens, [0-9.]+ nats a token$" out
done_by "$minrnn" score $model heard.txt --per-token
check "one line per token" [ "$(wc -l <out)" -eq "$tokens" ]
done_by "$minrnn" score $model heard.txt --per-token --json --threads 1
check "any threads" same_files out mingru-4-2-parallel.json
printf 'th' >two.txt
done_by "$minrnn" score $model two.txt --per-token --json
check "two tokens" json "d['tokens'] == 2 and len(d['logprobs']) == 1" out

# ---- a text that arrives in odd pieces, characters split anywhere
cat >drip.py <<'PYTHON'
import random, sys, time
data, at = open("heard.txt", "rb").read(), 0
while at < len(data):
    n = random.choice([1, 1, 2, 3, 5, 7, 31])
    sys.stdout.buffer.write(data[at:at + n])
    sys.stdout.buffer.flush()
    at += n
    if random.random() < 0.02: time.sleep(0.002)
PYTHON
for mode in parallel step "chunk=$chunk"; do
    python3 drip.py | "$minrnn" score $model - --mode "$mode" --per-token --json >out 2>err
    check "dripping, $mode" same_files out "mingru-4-2-$mode.json"
done
# longer than any buffer, so that reads end inside characters
done_by python3 -c 'open("long.txt", "w", encoding="utf-8").write("東京 → 😀 naïve " * 9000)'
done_by "$minrnn" score $model long.txt --json
check "long text" json "d['tokens'] == $(python3 -c 'print(len("東京 → 😀 naïve " * 9000))')" out

nats=$(python3 -c 'import json; print(json.load(open("out"))["nats_per_token"])')
done_by "$minrnn" score $model long.txt --json --mode step
check "long text, step by step" json "abs(d['nats_per_token'] - $nats) <= $bound" out

# ---- bytes
head -c 20000 /dev/urandom >data.bin
done_by "$minrnn" train text --vocab bytes --data data.bin "${tiny[@]}" --steps 10 --out bytes
printf '\0\377\200abc\0\n\r\n' >odd.bin
head -c 3000 /dev/urandom >>odd.bin
for mode in parallel step "chunk=$chunk"; do
    done_by "$minrnn" score bytes/model.safetensors odd.bin --mode "$mode" --per-token --json
    mv out "bytes-$mode.json"
    check "bytes, $mode" agree $bound bytes-parallel.json "bytes-$mode.json"
done
check "bytes: tokens" json "d['tokens'] == 3010" bytes-step.json

# ---- texts that cannot be scored
: >empty.txt
refused 1 'empty' "$minrnn" score $model empty.txt
refused 1 'one token' "$minrnn" score $model - < <(printf 't')
refused 1 'other\.txt' "$minrnn" score $model other.txt
printf 'the \377 dog' >broken.txt
refused 1 'broken\.txt.*UTF-8' "$minrnn" score $model broken.txt
printf 'the dog \346\235' >cut.txt
refused 1 'cut\.txt.*middle of a character' "$minrnn" score $model cut.txt
printf 'the Ж dog' >stranger.txt
for ((i = 0; i < 20000; i++)); do echo dogs; done >long-lines.txt # longer than any buffer
refused 1 'stranger\.txt, line 1, byte 5: ' "$minrnn" score $model stranger.txt
cat long-lines.txt stranger.txt >far.txt
refused 1 'far\.txt, line 20001, byte 100005: ' "$minrnn" score $model far.txt
refused 1 '^minrnn score: - is given twice; standard input can be given once' \
    "$minrnn" score $model - text.txt - <text.txt
refused 1 'directory' "$minrnn" score $model .
for mode in chunk=0 chunk= chunk=-1 chunk=1x chunk=99999999999999999999 steps ''; do
    refused 1 '--mode' "$minrnn" score $model heard.txt --mode "$mode"
done

# ---- several texts: each by itself, and all together
make_text other.txt 60 9
for file in heard.txt other.txt; do
    done_by "$minrnn" score $model $file --json
    cp out $file.json
done
done_by "$minrnn" score $model heard.txt other.txt --json
check "each as alone" python3 -c '
import json
d = json.load(open("out"))
a, b = json.load(open("heard.txt.json")), json.load(open("other.txt.json"))
assert d["files"] == [{"file": "heard.txt", **a}, {"file": "other.txt", **b}], d
n = [x["tokens"] - 1 for x in (a, b)]
mean = (a["nats_per_token"] * n[0] + b["nats_per_token"] * n[1]) / sum(n)
assert d["tokens"] == sum(n) + 2 and abs(d["nats_per_token"] - mean) <= 1e-8 * mean, d'
done_by "$minrnn" score $model - heard.txt <other.txt
check "standard input among them, a line each and one for all" \
    [ "$(cut -d : -f 1 out | tr '\n' ' ')" = '- heard.txt all ' ]
done_by "$minrnn" score $model heard.txt other.txt --json --per-token
check "log-probabilities of each" json "[len(f['logprobs']) + 1 == f['tokens'] for f in d['files']] == [True, True]" out
run "$minrnn" score $model heard.txt none.txt --json
check "one of them fails: status 1, the JSON is whole" json "len(d['files']) == 1 and $status == 1" out
check "and says which" grep -q 'none\.txt' err

# ---- characters that the vocabulary lacks
sed 's/the/Жthe/g' other.txt >strange.txt
count=$(grep -o Ж strange.txt | wc -l)
refused 1 'strange\.txt, line [0-9]+, byte .*U\+0416.*--unknown skip' "$minrnn" score $model strange.txt
for mode in parallel step chunk=3; do
    done_by "$minrnn" score $model other.txt --mode $mode
    cp out plain
    done_by "$minrnn" score $model strange.txt --mode $mode --unknown skip
    check "skipped: as if they were not there ($mode)" same_files out plain
    check "skipped: how many" grep -q "strange\.txt: $count characters that the vocabulary lacks were skipped" err
done
done_by "$minrnn" score $model strange.txt --unknown replace --json
check "replaced: how many" json "d['replaced'] == $count" out
done_by "$minrnn" eval $model --data strange.txt --unknown skip
check "eval tells it as well" grep -q "$count characters that the vocabulary lacks were skipped" err

# ---- a million tokens in the memory of fifty thousand (a sanitizer's memory is its own)
if [ "$sanitized" = 0 ]; then
    done_by "$minrnn" train text --data text.txt --dim 8 --layers 1 --expansion 1 --mlp 0 --context 32 --batch 8 \
        --steps 5 --out small
    cat >stream.py <<'PYTHON'
"""stream.py COMMAND MODEL N: streams N tokens through score --mode step; prints the peak memory in KiB."""
import json, resource, subprocess, sys
command, model, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
p = subprocess.Popen([command, "score", model, "-", "--mode", "step", "--threads", "1", "--json"],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
piece = ("the quick brown fox jumps over 東京\n" * 50)
while n:
    text = piece[:n]
    p.stdin.write(text.encode())
    n -= len(text)
p.stdin.close()
answer = json.load(p.stdout)
assert p.wait() == 0 and answer["tokens"] == int(sys.argv[3]), answer
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
PYTHON
    small=$(python3 stream.py "$minrnn" small/model.safetensors 50000)
    large=$(python3 stream.py "$minrnn" small/model.safetensors 1000000)
    echo "peak memory: 50,000 tokens $small KiB, 1,000,000 tokens $large KiB"
    # 2 MiB are 2 bytes per token: anything that grew with the text would be more
    check "constant memory" [ $((large - small)) -le 2048 -a "$small" -gt 0 ]
fi

finish
