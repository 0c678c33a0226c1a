#!/usr/bin/env bash
# Runs and models of commit 4a3825d resume to the same bits and score the same, on every instruction set that was
# recorded; and the same seed still gives the same bits.
#
# Sums are fixed by shape (CONTRIBUTING.md), so every x86-64 machine should find what was recorded on one; only
# one was tried. But where a product and a sum become one instruction is left to the compiler (-ffp-contract=fast), and
# attention calls expf and logf of the C library. The recorded bits are those of gcc 12 with the options of a release
# and glibc 2.36. Other compilers, sanitizers and coverage must find them in plain C, and come near them (1e-5) with
# vectors; MINRNN_TEST_NEAR=1 says that this is such a build. What is recorded, and how: compat/make.sh.
source "$(dirname "$0")/cli_support.bash"

done_by "$minrnn" --version
here=$(sed -n 's/^cpu: //p' out)
[[ " $here " == *" neon "* ]] && { echo "skipped: recorded on x86-64 alone; this is ARM"; exit 77; }
grep -qx 'cblas: no' out || { echo "skipped: a CBLAS sums in an order of its own ($(grep cblas: out))"; exit 77; }

how=exact
if [ "${MINRNN_TEST_NEAR:-$sanitized}" = 1 ] || grep -qaE 'clang version|__gcov_init' "$minrnn" ||
    ! grep -qaE 'GCC: \([^)]*\) 12\.' "$minrnn"; then
    how=near
    echo "not a release built by gcc 12: bits are compared in plain C alone"
fi
for isa in scalar avx2 avx512; do
    if [[ " $here " == *" $isa "* ]]; then
        [ $isa = scalar ] && this=exact || this=$how
        run python3 "$tests/compat/replay.py" check "$minrnn" $isa "$this"
        cat out err
        check "$isa" [ $status -eq 0 ]
        facts=$(sed -n "s/^$isa: \([0-9]*\) facts .*/\1/p" out)
        checks=$((checks + ${facts:-0}))
    else
        left_out "$isa: this machine does not have it"
    fi
done

finish
