#!/usr/bin/env bash
# A fault at every allocation, thread and call on files of small commands, in turn, and a power cut between any two
# calls of a checkpoint (tests/faults.py).
source "$(dirname "$0")/cli_support.bash"
[ "$sanitized" = 0 ] || { echo "skipped: the sanitizer stands where faults would be injected"; exit 77; }
[ -f "${MINRNN_FAULT_PRELOAD:-}" ] || {
    echo "skipped: no MINRNN_FAULT_PRELOAD (the library of tests/fault_preload.c; Linux)"
    exit 77
}
check "faults" python3 "$tests/faults.py" "$minrnn" "$MINRNN_FAULT_PRELOAD" --stride 1
finish
