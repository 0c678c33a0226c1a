#!/usr/bin/env bash
# Attention by the command: trained, resumed, run token by token, in 8 bits; what a run settles is in its file.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1

for positions in rotary learned; do
    flags=(--data text.txt "${tiny[@]}" --mixer attention --positions $positions --lr 0.01 --warmup 0
        --schedule constant)
    done_by "$minrnn" train text "${flags[@]}" --steps 30 --out $positions
    done_by "$minrnn" info $positions/model.safetensors --json
    check "$positions: heads and window are settled" json \
        "int(d['config']['heads']) == 1 and int(d['config']['window']) > 1 \
            and d['config']['positions'] == '$positions'" out
    done_by "$minrnn" train text "${flags[@]}" --steps 15 --out cut
    done_by "$minrnn" train --out cut --resume --steps 30
    check "$positions: a resumed run is the whole one" cmp cut/last.safetensors $positions/last.safetensors
    rm -r cut
    done_by "$minrnn" generate $positions/model.safetensors --prompt the --tokens 100 --quiet
    check "$positions: generate" [ -s out ]
    done_by "$minrnn" quantize $positions/model.safetensors --out $positions.8 --data text.txt --json
    check "$positions: 8 bits hardly move the loss" json "abs(d['loss_after'] - d['loss_before']) < 0.02" out
done

refused 1 "heads = 7: must divide dim = 16" "$minrnn" train text --data text.txt "${tiny[@]}" --mixer attention \
    --heads 7 --out no
check "selective copying" "$minrnn" train selective-copy --mixer attention --length 40 --tokens 4 --steps 3 \
    --eval-every 3 --eval-batches 1 --batch 4 --quiet --device cpu --out copy

finish
