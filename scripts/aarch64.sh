#!/usr/bin/env bash
# Builds minrnn for 64-bit ARM and runs its tests with qemu-user. If something is missing for that, names it and exits
# with status 77.
# usage: scripts/aarch64.sh [BUILD]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build-aarch64}

lacking=
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do command -v $tool >/dev/null || lacking+=" $tool"; done
for library in inih cmocka; do
    [ -e "${MINRNN_AARCH64_ROOT:-}/usr/lib/aarch64-linux-gnu/pkgconfig/$library.pc" ] || lacking+=" $library:arm64"
done
if [ -n "$lacking" ]; then
    echo "skipped: not found here:$lacking"
    echo "on Debian: dpkg --add-architecture arm64;" \
        "apt-get install gcc-aarch64-linux-gnu qemu-user lib{inih,cmocka}-dev:arm64"
    exit 77
fi

jobs=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
cmake -S . -B "$build" --log-level=WARNING -DCMAKE_TOOLCHAIN_FILE=scripts/aarch64.cmake \
    -DMINRNN_CUDA=OFF -DMINRNN_CURL=OFF
cmake --build "$build" --target all tests --parallel "$jobs"
qemu-aarch64 "$build/minrnn" check --cases 12 --isa neon --quiet
# Not run: the tests of the laws, which take many minutes under qemu (check has run the same kernels), and the scripts
# that run the command, because they do not know of the emulator.
ctest --test-dir "$build" --output-on-failure -j "$jobs" \
    -R '^test_(api|file|golden|options|progress|safetensors|vocab)' "${@:2}"
