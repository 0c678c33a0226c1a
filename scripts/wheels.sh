#!/usr/bin/env bash
# Makes wheels of the Python package for manylinux2014 (glibc 2.17), without containers: zig's C compiler links against
# that glibc, for this machine's processor or another. The CPU backend alone: see docs/python.md for CUDA.
# usage: scripts/wheels.sh [x86_64|aarch64]…        wheels in dist/
# The wheels have the command, too, which needs libinih.a of that processor and ini.h (Debian: libinih-dev, or
# libinih-dev:arm64; MINRNN_INIH_aarch64=FOLDER if libinih.a lies elsewhere).
set -eu
cd "$(dirname "$0")/.."
build=$PWD/build-wheels
mkdir -p "$build" dist
if [ ! -x "$build/venv/bin/wheel" ]; then
    python3 -m venv "$build/venv"
    "$build/venv/bin/pip" install -q "ziglang==0.17.0" "scikit-build-core>=1.0" wheel
fi
python=$build/venv/bin/python

make_compiler() { # ARCH: a compiler and an archiver for it, and a toolchain file that names them
    local arch=$1 tools=$build/$1
    mkdir -p "$tools"
    printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s-linux-gnu.2.17 "$@"\n' "$python" "$arch" >"$tools/cc"
    printf '#!/bin/sh\nexec "%s" -m ziglang ar "$@"\n' "$python" >"$tools/ar"
    printf '#!/bin/sh\nexec "%s" -m ziglang ranlib "$@"\n' "$python" >"$tools/ranlib"
    chmod +x "$tools/cc" "$tools/ar" "$tools/ranlib"
    cat >"$tools/toolchain.cmake" <<EOF
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $arch)
set(CMAKE_C_COMPILER $tools/cc)
set(CMAKE_AR $tools/ar)
set(CMAKE_RANLIB $tools/ranlib)
EOF
}

check_needs() { # FOLDER: what the wheel in it needs of its system is what manylinux2014 promises
    local file found
    local usual='^(libc|libm|libpthread|libdl|librt|ld-linux.*)\.so'
    "$python" -m zipfile -e "$1"/*.whl "$1/unpacked"
    for file in "$1"/unpacked/minrnn/_core.abi3.so "$1"/unpacked/minrnn/bin/minrnn; do
        found=$(readelf -d "$file" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE "$usual" || true)
        found+=$(readelf -V "$file" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | awk -F'[_.]' '$3 > 17 {print $0}')
        [ -z "$found" ] || { echo "wheels: $file needs $found" >&2; exit 1; }
    done
}

for arch in "${@:-$(uname -m)}"; do
    inih=MINRNN_INIH_$arch
    libraries=${!inih:-/usr/lib/$arch-linux-gnu}
    [ -e "$libraries/libinih.a" ] ||
        { echo "wheels: no $libraries/libinih.a here (libinih-dev for $arch)" >&2; exit 1; }
    make_compiler "$arch"
    mkdir -p "$build/$arch/inih" # by itself, so that no other header of this system is found
    cp "$libraries/libinih.a" /usr/include/ini.h "$build/$arch/inih/"
    rm -rf "$build/$arch/out"
    _PYTHON_HOST_PLATFORM=linux-$arch SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0) \
        "$build/venv/bin/pip" wheel -q . --no-deps --no-build-isolation -w "$build/$arch/out" \
        -C cmake.define.MINRNN_CUDA=OFF -C "cmake.define.CMAKE_TOOLCHAIN_FILE=$build/$arch/toolchain.cmake" \
        -C "cmake.define.MINRNN_INIH=$build/$arch/inih"
    check_needs "$build/$arch/out"
    "$build/venv/bin/wheel" tags --platform-tag "manylinux2014_$arch" "$build/$arch"/out/*.whl >/dev/null
    mv "$build/$arch"/out/*manylinux2014*.whl dist/
done
ls -l dist
