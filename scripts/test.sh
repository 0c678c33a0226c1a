#!/usr/bin/env bash
# Builds and runs the tests of a build folder with CTest. The last line is `N passed, N failed`, with `, N skipped` if
# any were. It counts test cases: each case of a cmocka program, and a script as one. Skipped ones are named with the
# reason, and so is what a script left out; the line before the last says whether there was a GPU to test on.
# usage: scripts/test.sh BUILD [options of ctest]
set -u
build=$1
shift
verdicts=$build/Testing/verdicts.txt
log=$build/Testing/Temporary/LastTest.log
mkdir -p "$build/Testing"
rm -f "$log"

# ThreadSanitizer of older compilers fails with much address randomisation; turn it off where that is possible.
calm=()
case $build in *tsan*) setarch "$(uname -m)" -R true 2>/dev/null && calm=(setarch "$(uname -m)" -R) ;; esac

jobs=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
cmake --build "$build" --target tests --parallel "$jobs" || exit 1
(cd "$build" && ${calm[@]+"${calm[@]}"} ctest --output-on-failure -j "$jobs" "$@") | tee "$verdicts"
status=${PIPESTATUS[0]}
touch "$log"

awk '
FNR == 1 { file++ }
# the log: what each program printed about its cases
file == 1 && /^[0-9]+\/[0-9]+ Test: / { program = $3; summary = 0; why = "" }
file == 1 && /^\[==========\] .*run\.$/ { summary = 1 }
file == 1 && summary { next }
# programs on the emulated card run only their GPU cases: the others run, and count, elsewhere
file == 1 && program ~ /^emulated_/ && /^SKIPPED: |^\[  SKIPPED \] |on a GPU/ { next }
file == 1 && /^SKIPPED: / { why = ": " substr($0, 10) }
file == 1 && /^skipped: / { reason[program] = ": " substr($0, 10) }
file == 1 && /^left out: / { names = names "left out of " program ": " substr($0, 11) "\n" }
file == 1 && /^SKIPPED: on a GPU/ { no_gpu++; no_device = 1 }
file == 1 && /on a GPU, .*: the largest error/ { gpu++ }
file == 1 && /^\[       OK \] / { ok[program]++ }
file == 1 && /^\[  FAILED  \] / { bad[program]++ }
# GPU tests that are skipped because there is no GPU are named together, below
file == 1 && /^\[  SKIPPED \] / {
    left[program]++
    if (!no_device) names = names "skipped: " program ": " $4 why "\n"
    no_device = 0
    why = ""
}
# the verdicts: whether the program as a whole passed
file == 2 && /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
    sub(/^.*#[0-9]+: /, "")
    program = $1
    seen++
    passed += ok[program]
    skipped += left[program]
    if (/\*\*\*Skipped/) { skipped++; names = names "skipped: " program reason[program] "\n" }
    else if (!/ Passed +[0-9.]+ sec/) failed += bad[program] ? bad[program] : 1
    else if (!ok[program] && !left[program]) passed++
}
END {
    if (!seen) print "no test was found: is " build " built with MINRNN_TESTS=ON?"
    if (no_gpu) names = names "GPU tests: SKIPPED (no CUDA device), " no_gpu " of them\n"
    else if (gpu) names = names "GPU tests: ran, " gpu " of them\n"
    printf "\n%s%d passed, %d failed%s\n", names, passed, failed, skipped ? sprintf(", %d skipped", skipped) : ""
    exit failed > 0 || !seen
}' build="$build" "$log" "$verdicts" || exit 1
exit "$status"
