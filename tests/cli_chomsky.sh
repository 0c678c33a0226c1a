#!/usr/bin/env bash
# The Chomsky hierarchy as a user trains it: small models learn short strings far above chance.
source "$(dirname "$0")/cli_support.bash"

small=(--dim 32 --batch 32 --lr 3e-3 --train-length 8
       --eval-from 8 --eval-to 12 --eval-lengths 8 --eval-samples 64 --eval-every 100)

# learns ACCURACY NAME FLAGS…: the best accuracy must be above it, and eval must say the same of the file.
learns() {
    local least=$1 name=$2
    shift 2
    done_by "$minrnn" train "$@" "${small[@]}" --out "$name"
    best=$(grep '"best":true' "$name/log.jsonl" | tail -n 1 | grep -o '"accuracy":[^,]*' | cut -d : -f 2)
    done_by "$minrnn" eval "$name/model.safetensors" --json
    check "$name learns" json "d['accuracy'] > $least and abs(d['accuracy'] - $best) < 1e-6" out
}

learns 0.95 even_pairs chomsky-even_pairs --steps 300 # chance: 1/2
if [ "${2-}" = all ]; then
    learns 0.45 cycle_nav chomsky-cycle_nav --steps 600     # 1/5
    learns 0.50 bucket_sort chomsky-bucket_sort --steps 600 # 0.36, by the likeliest symbol of each place
    learns 0.60 reverse chomsky --protocol deepmind --task reverse_string --steps 600   # 1/2
    # how often the most frequent one occurs: a model that knows only the length has a loss of 0.78
    done_by "$minrnn" train chomsky-majority_count --mixer mingru --candidate linear --gate-init sums=10,-100 \
        --norm none --conv 0 --mlp 4 --dim 64 --batch 128 --lr 4e-3 --schedule cosine \
        --steps 1500 --train-length 16 --eval-from 12 --eval-to 16 --eval-lengths 5 --eval-samples 128 \
        --eval-every 1500 --out count
    done_by "$minrnn" eval count/model.safetensors --json
    check "majority_count learns" json "d['loss'] < 0.68" out
    # 0.46, by the likeliest of each place
    learns 0.60 stack chomsky --protocol deepmind --task stack_manipulation --steps 600
fi

done_by "$minrnn" eval even_pairs/model.safetensors --eval-from 100 --eval-to 120 --eval-lengths 3 --json
check "longer strings" json "d['rows'] == 3 * 64" out
refused 1 'the paper protocol has no task "palindromes": choose --task among bucket_sort .* majority_count$' \
    "$minrnn" train chomsky --task palindromes --out none
finish
