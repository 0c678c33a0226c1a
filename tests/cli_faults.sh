#!/usr/bin/env bash
# Faults injected into small commands (tests/faults.py): every 201st allocation here, all of them in slow_faults.sh.
source "$(dirname "$0")/cli_support.bash"
[ "$sanitized" = 0 ] || { echo "skipped: the sanitizer stands where faults would be injected"; exit 77; }
[ -f "${MINRNN_FAULT_PRELOAD:-}" ] || {
    echo "skipped: no MINRNN_FAULT_PRELOAD (the library of tests/fault_preload.c; Linux)"
    exit 77
}
check "faults" python3 "$tests/faults.py" "$minrnn" "$MINRNN_FAULT_PRELOAD" --stride 201
finish
