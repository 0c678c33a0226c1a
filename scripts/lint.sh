#!/usr/bin/env bash
# Form and static analysis of the C code: clang-format 14 (.clang-format), clang-tidy (.clang-tidy), cppcheck
# (scripts/cppcheck.txt) and gcc -fanalyzer. The backends' kernels (src/ops/cpu, src/ops/ref: arithmetic without input
# of their own) are left to cppcheck. Exit 1 on any finding.
# usage: scripts/lint.sh BUILD      a configured build folder, for its compile_commands.json
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1 failed=0
jobs=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
mapfile -t files < <(
    ls src/core/*.c src/model/*.c src/api/*.c src/ops/*.c src/ops/check/*.c app/*/*.c | grep -v no_cuda
)
# Libraries whose headers have a folder of their own; files for libraries that are not here are left out.
mapfile -t libraries < <(grep -oE -- '-isystem [^ ]+' "$build/compile_commands.json" | sed 's/^-isystem /-I/' | sort -u)
for file in app/control/hdf5_*.c app/control/env_mujoco.c; do
    if grep -q "/$file" "$build/compile_commands.json"; then continue; fi
    echo "lint: $file: NOT CHECKED, this build has no library for it (scripts/bootstrap.sh control)"
    for i in "${!files[@]}"; do [ "${files[i]}" != "$file" ] || unset "files[i]"; done
done

have() {
    command -v "$1" >/dev/null && return 0
    echo "lint: $1: NOT RUN, it is not installed here (Debian, Ubuntu: apt-get install $2)"
    failed=1
    return 1
}
verdict() { # NAME FILE-OF-FINDINGS
    if [ -s "$2" ]; then
        cat "$2"
        failed=1
    fi
    echo "lint: $1: $(grep -cE '(warning|error|style|performance|portability):' "$2") findings"
}
found=$(mktemp)
trap 'rm -f "$found"' EXIT

# Other versions of clang-format differ in a few places, so only one counts.
formatter=
for candidate in clang-format-14 clang-format; do
    if [ -z "$formatter" ] && "$candidate" --version 2>/dev/null | grep -q 'version 14\.'; then formatter=$candidate; fi
done
if [ -n "$formatter" ]; then
    find src app include examples tests fuzz -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' |
        xargs "$formatter" -n -Werror 2>"$found"
    verdict clang-format "$found"
    [ ! -s "$found" ] || echo "lint: clang-format -i FILE fixes it"
else
    echo "lint: clang-format: NOT RUN, version 14 is not installed here (Debian 12: apt-get install clang-format;" \
        "elsewhere: pip install clang-format==14.0.6)"
    failed=1
fi
if have clang-tidy clang-tidy; then
    printf '%s\n' "${files[@]}" | xargs -P "$jobs" -n 4 clang-tidy -p "$build" --quiet 2>/dev/null >"$found"
    verdict clang-tidy "$found"
fi
if have cppcheck cppcheck; then
    cppcheck -q -j "$jobs" --enable=warning,performance,portability --std=c11 --inline-suppr \
        --suppressions-list=scripts/cppcheck.txt -Iinclude -Isrc -Iapp -I. "${files[@]}" src/ops/cpu src/ops/ref \
        2>"$found"
    verdict cppcheck "$found"
fi
if have gcc gcc; then
    printf '%s\n' "${files[@]}" | xargs -P "$jobs" -n 1 gcc -std=c11 -O1 -fanalyzer -c -o /dev/null \
        -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -Iinclude -Isrc -Iapp -I. "${libraries[@]}" 2>"$found" >/dev/null
    verdict "gcc -fanalyzer" "$found"
fi
exit $failed
