#!/usr/bin/env bash
# generate: the same seed, the same text; what --tokens, --stop, --prompt, --top-k, --top-p and --json promise.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
done_by "$minrnn" train text --data text.txt "${tiny[@]}" --steps 150 --lr 0.01 --warmup 10 --out run
model=run/model.safetensors
write() { done_by "$minrnn" generate $model "$@"; }
# written NAME FLAGS…: what was written, kept as a file
written() {
    local name=$1
    shift
    write "$@"
    mv out "$name"
}
characters() { python3 -c 'import sys; print(len(open(sys.argv[1], encoding="utf-8", newline="").read()))' "$1"; }

# ---- the same seed, the same text
written seed5 --seed 5 --tokens 400
written seed5-again --seed 5 --tokens 400
written seed5-threads --seed 5 --tokens 400 --threads 2
written seed6 --seed 6 --tokens 400
written seed5-short --seed 5 --tokens 100
check "the same seed" same_files seed5 seed5-again
check "any threads" same_files seed5 seed5-threads
check "another seed" [ "$(sum_of seed5)" != "$(sum_of seed6)" ]
check "fewer tokens are a beginning" [ "$(head -c $(($(stat -c %s seed5-short) - 1)) seed5 | sha256sum)" = \
    "$(head -c -1 seed5-short | sha256sum)" ]

# ---- the likeliest
written greedy --temperature 0 --tokens 200
written greedy-seed --temperature 0 --tokens 200 --seed 99
written top1 --top-k 1 --tokens 200 --temperature 1.5
written nucleus0 --top-p 0 --tokens 200 --temperature 1.5
written hot --tokens 200 --temperature 1.5
check "temperature 0 takes no chances" same_files greedy greedy-seed
check "--top-k 1 is temperature 0" same_files greedy top1
check "--top-p 0 leaves one" same_files greedy nucleus0
check "heat changes the text" [ "$(sum_of hot)" != "$(sum_of greedy)" ]
written all --tokens 200 --temperature 1 --seed 3
written all-k --tokens 200 --temperature 1 --seed 3 --top-k 1000000 --top-p 1
check "--top-k beyond the vocabulary changes nothing" same_files all all-k

# ---- tokens are characters here, a line end follows
for n in 0 1 7 300; do
    written count --tokens $n --seed 2
    check "$n tokens" [ "$(characters count)" -eq $((n + 1)) ]
done

# ---- the prompt comes first, also one longer than a chunk
written prompted --prompt 'naïve 東京 ' --tokens 50
check "the prompt is echoed" [ "$(head -c 14 prompted)" = 'naïve 東京 ' ]
check "and written on from" [ "$(characters prompted)" -eq $((9 + 50 + 1)) ]
long=$(printf 'the quick brown fox %.0s' {1..45})
written longer --prompt "$long" --tokens 5 --temperature 0
check "a long prompt" [ "$(characters longer)" -eq $((${#long} + 5 + 1)) ]
# the state continues from the prompt: greedy text, fed back as a prompt, continues as it did
done_by "$minrnn" generate $model --prompt 'the quick' --temperature 0 --tokens 60 --json
cp out whole.json
head=$(python3 -c 'import json; print(json.load(open("whole.json"))["text"][:20])'; echo .)
head=${head%$'\n'.}
done_by "$minrnn" generate $model --prompt "the quick$head" --temperature 0 --tokens 40 --json
check "a text as its own prompt" json \
    "d['text'] == '''$(python3 -c 'import json; print(repr(json.load(open("whole.json"))["text"][20:])[1:-1])')'''" out

# ---- stop
refused 2 '--stop is empty' "$minrnn" generate $model --stop ''
refused 2 '--stop is empty' "$minrnn" generate $model --stop x --stop=
done_by "$minrnn" generate $model --tokens 400 --seed 5 --json
cp out unstopped.json
for stop in ' ' 'o' 'fox' 'é' '東京' 'never to be found'; do
    done_by "$minrnn" generate $model --tokens 400 --seed 5 --json --stop "$stop"
    check "--stop '$stop'" json \
        "d['text'] == __import__('json').load(open('unstopped.json'))['text'].split('$stop')[0]" out
done
done_by "$minrnn" generate $model --tokens 400 --seed 5 --stop o --prompt 'fox '
check "--stop does not look at the prompt" grep -q '^fox ' out

# ---- JSON; a text for people has no control characters but line ends
check "JSON" json "set(d) == {'prompt', 'text', 'seed'} and d['seed'] == 5 and not d['prompt']" unstopped.json
check "JSON: all of the text" json "len(d['text']) == 400" unstopped.json
done_by "$minrnn" generate $model --tokens 40 --seed random --json --quiet
check "JSON tells the seed that was drawn, which stderr does not" [ ! -s err ]
cp out drawn.json
seed=$(python3 -c 'import json; print(json.load(open("drawn.json"))["seed"])')
done_by "$minrnn" generate $model --tokens 40 --json --seed "$seed"
check "and it gives the same text" same_files out drawn.json
done_by "$minrnn" generate $model --prompt $'the\n' --tokens 20 --json
check "JSON with a line break" json "d['prompt'] == 'the\n' and len(d['text']) == 20" out
check "nothing on stderr" [ ! -s err ]

# ---- bytes: any byte may come, JSON stays JSON and whole
python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 80)' >data.bin
done_by "$minrnn" train text --vocab bytes --data data.bin "${tiny[@]}" --steps 3 --out bytes
for seed in 1 2 3; do
    done_by "$minrnn" generate bytes/model.safetensors --temperature 2 --tokens 3000 --seed $seed
    check "3000 bytes" [ "$(stat -c %s out)" -eq 3001 ]
    done_by "$minrnn" generate bytes/model.safetensors --temperature 2 --tokens 3000 --seed $seed --json
    check "bytes as JSON" json "1500 <= len(d['text']) <= 3000 and '\x00' in d['text']" out
done

# ---- a prompt from a file, a pipe, standard input
written by-flag --prompt 'the quick' --tokens 30
printf 'the quick' >prompt.txt
written by-file --prompt-file prompt.txt --tokens 30
printf 'the quick' | "$minrnn" generate $model --prompt - --tokens 30 >by-stdin 2>err
check "a prompt in a file" same_files by-file by-flag
check "a prompt from standard input" same_files by-stdin by-flag
written by-pipe --prompt-file <(printf 'the quick') --tokens 30
check "a prompt from a pipe" same_files by-pipe by-flag
written by-minus --prompt-file - --tokens 30 <prompt.txt
check "- as a file" same_files by-minus by-flag
for ((i = 0; i < 12000; i++)); do printf 'the quick '; done >large.txt # larger than the first buffer
written large --prompt-file large.txt --tokens 3
check "a large prompt is echoed whole" [ "$(characters large)" -eq $((120000 + 3 + 1)) ]
: >empty.txt
written no-prompt --tokens 30
written by-empty --prompt-file empty.txt --tokens 30
check "an empty prompt is none" same_files by-empty no-prompt
refused 1 'standard input: Bad file descriptor' "$minrnn" generate $model --prompt - 0>write-only
printf '\000\377\200' >odd.bin
done_by "$minrnn" generate bytes --prompt-file odd.bin --tokens 2
check "any byte in a prompt" [ "$(head -c 3 out | od -An -tx1 | tr -d " ")" = 00ff80 -a "$(stat -c %s out)" -eq 6 ]

# ---- several texts to stop at: what comes first ends it
write --prompt 'the quick' --temperature 0 --tokens 400 --json
cp out free.json
python3 - >stops <<'PYTHON'
import json
text = json.load(open("free.json"))["text"]
for stops in (["e", "o"], ["o", "e"], ["fox", "brown"], [" b", "n"], ["ow", "row"], ["row", "ow"],
              ["\n", "zzz"], ["zzz", "qqq"], [text[4:10], text[8:10]], [text[8:10], text[4:10]],
              [text[5:9], text[4:10]], [text[7:12], text[7:9], text[6:8]]):
    places = [text.find(s) + len(s) for s in stops if s and s in text]
    end = min(places, default=None)  # the first that is complete; of two, the longer
    cut = text if end is None else text[:end - max(len(s) for s in stops if s and text.endswith(s, 0, end))]
    print(json.dumps([stops, cut]))
PYTHON
while read -r line; do
    flags=()
    while IFS= read -r -d '' stop; do flags+=("--stop=$stop"); done < <(
        python3 -c 'import json, sys; [print(s, end="\0") for s in json.loads(sys.argv[1])[0]]' "$line")
    write --prompt 'the quick' --temperature 0 --tokens 400 --json "${flags[@]}"
    check "stops ${flags[*]}" \
        python3 -c 'import json, sys; assert json.load(open("out"))["text"] == json.loads(sys.argv[1])[1]' "$line"
done <stops
refused 2 'more than 64 texts' "$minrnn" generate $model $(printf ' --stop x%.0s' {1..65})

# ---- a seed that is drawn can be given again
"$minrnn" generate $model --seed random --tokens 40 >drawn 2>err
check "the seed is printed" grep -qE '^minrnn generate: --seed [0-9]+ was drawn' err
written repeated --seed "$(sed -n 's/.*--seed \([0-9]*\) was drawn.*/\1/p' err)" --tokens 40
check "and gives the same text" same_files drawn repeated
seeds=$(for i in 1 2 3 4; do "$minrnn" generate $model --seed random --tokens 0 2>&1 >/dev/null; done | sort -u | wc -l)
check "seeds differ" [ "$seeds" -gt 1 ]
done_by "$minrnn" generate $model --seed=random --quiet --tokens 1
check "quiet: nothing on stderr" [ ! -s err ]
done_by "$minrnn" train text --data text.txt "${tiny[@]}" --steps 2 --seed random --out drawn-run
check "train keeps the seed in its recipe" \
    grep -qx "seed = $(sed -n 's/.*--seed \([0-9]*\) was drawn.*/\1/p' err)" drawn-run/recipe.ini

# ---- characters that the vocabulary lacks
write --prompt 'Жthe Ж quick' --unknown skip --tokens 0
check "skipped: how many" grep -q 'prompt: 2 characters that the vocabulary lacks were skipped' err
check "the prompt is echoed as it was given" [ "$(head -n 1 out)" = 'Жthe Ж quick' ]
written skipped --prompt 'Жthe quickЖ' --unknown skip --tokens 30 --json
written plain --prompt 'the quick' --tokens 30 --json
check "skipped: as if it were not there" [ "$(sed 's/.*"text"//' skipped)" = "$(sed 's/.*"text"//' plain)" ]
written replaced --prompt 'theЖquick' --unknown replace --tokens 30 --json
check "replaced: how many" grep -q '1 character that the vocabulary lacks was replaced' err
written spaced --prompt 'the quick' --tokens 30 --json
check "replaced by the space, as this vocabulary has neither U+FFFD nor ?" \
    [ "$(sed 's/.*"text"//' replaced)" = "$(sed 's/.*"text"//' spaced)" ]
written nothing --prompt 'ЖЖ' --unknown skip --tokens 30 --json
written none --tokens 30 --json
check "nothing left: as without a prompt" [ "$(sed 's/.*"text"//' nothing)" = "$(sed 's/.*"text"//' none)" ]

# ---- refused; a prompt that is refused is not printed
refused 2 'exclude each other' "$minrnn" generate $model --prompt a --prompt-file prompt.txt
refused 1 'none\.txt.*No such file' "$minrnn" generate $model --prompt-file none.txt
refused 1 'run: is a directory' "$minrnn" generate $model --prompt-file run
refused 1 '/dev/zero: is a device' "$minrnn" generate $model --prompt-file /dev/zero
refused 1 'odd\.bin: byte 2: ' "$minrnn" generate $model --prompt-file odd.bin --unknown skip
printf 'the Жук' >strange.txt
refused 1 'strange\.txt: byte 5: .*U\+0416.*--unknown skip' "$minrnn" generate $model --prompt-file strange.txt
check "nothing on stdout" [ ! -s out ]
refused 1 '--prompt: byte 5' "$minrnn" generate $model --prompt 'the Жук'
check "nothing on stdout" [ ! -s out ]
refused 1 '--prompt' "$minrnn" generate $model --prompt 'Жук'
refused 1 '--prompt' "$minrnn" generate $model --prompt $'the \377'
refused 1 'temperature' "$minrnn" generate $model --temperature -1
refused 1 'temperature' "$minrnn" generate $model --temperature nan
refused 1 'top-k' "$minrnn" generate $model --top-k -1
refused 1 'top-p' "$minrnn" generate $model --top-p 1.5
refused 1 'tokens' "$minrnn" generate $model --tokens many
if [ -w /dev/full ]; then
    "$minrnn" generate $model --tokens 10 >/dev/full 2>err
    check "a full disk is no success" [ $? -eq 1 -a "$(wc -l <err)" -eq 1 ]
fi

finish
