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
outputs=$(dirname "$minrnn")/tests/model_outputs
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

finish
