#!/usr/bin/env bash
# Models that other programs make here, imported, run and exported again. Needs a Python with torch, transformers,
# minGRU-pytorch and safetensors, in MINRNN_PYTHON; MINRNN_DRAWN: how many models of each kind get random sizes.
source "$(dirname "$0")/cli_support.bash"

if [ -z "${MINRNN_PYTHON:-}" ]; then echo "skipped: MINRNN_PYTHON names no Python"; exit 77; fi
for package in torch transformers minGRU_pytorch safetensors; do
    if ! "$MINRNN_PYTHON" -c "import $package" 2>/dev/null; then
        echo "skipped: $MINRNN_PYTHON has no $package"
        exit 77
    fi
done
outputs=${MINRNN_OUTPUTS:-$(dirname "$minrnn")/tests/model_outputs}
check "model_outputs is built" [ -x "$outputs" ]

compare() {
    mkdir exports
    python3 "$tests/weights_check.py" "$minrnn" "$outputs" --exports exports "$@" peers/*
}

# every VARIANT…: makes models, imports, compares, exports, compares, loads.
every() {
    rm -rf peers exports
    done_by "$MINRNN_PYTHON" "$tests/make_peers.py" peers "$@"
    run compare
    cat out
    check "imported models compute the same, exported ones are the same" [ $status -eq 0 ]
    run "$MINRNN_PYTHON" "$tests/load_exports.py" exports
    cat out
    check "exported weights load where they came from" [ $status -eq 0 ]
}

every
every --drawn "${MINRNN_DRAWN:-40}"

# trained_as NAME LAYOUT FLAG…: a model trained here, and its export.
trained_as() {
    done_by "$minrnn" train text --data text.txt --dim 12 --layers 2 --mlp 2 --context 32 --batch 8 --steps 30 \
        --lr 0.01 --device cpu --quiet --out "run-$1" "${@:3}"
    cp "run-$1/model.safetensors" "trained/$1.safetensors"
    done_by "$minrnn" export "run-$1" --to "$2" --out "trained/$1.export"
}
make_text text.txt 2000 1
mkdir trained
minlm=(--norm rms --norm-eps 1.1920929e-07 --gelu erf --mixer-bias no)
trained_as minlm-mingru lucidrains --mixer mingru --conv 0 --expansion 2 "${minlm[@]}"
trained_as minlm-mingru-conv lucidrains --mixer mingru --conv 5 --conv-place residual --width 18 "${minlm[@]}"
trained_as minlm-minlstm lucidrains --mixer minlstm --normalize-gates yes --conv 0 --expansion 3 "${minlm[@]}"
for mixer in mingru minlstm gru lstm; do
    trained_as ours-$mixer torch --mixer $mixer --norm layer --conv 0 --expansion 2 --normalize-gates no \
        --gru-reset $([ $mixer = gru ] && echo after || echo before)
done
trained_as ours-attention torch --mixer attention --norm layer --conv 0 --heads 2 --positions none --window 64
run "$MINRNN_PYTHON" "$tests/trained_exports.py" "$outputs" trained
cat out err
check "models trained here compute the same elsewhere" [ $status -eq 0 ]

finish
