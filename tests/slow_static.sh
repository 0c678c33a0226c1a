#!/usr/bin/env bash
# A command that needs no library at all, and no optional one: built, and put to work.
source "$(dirname "$0")/cli_support.bash"
source=$tests/..
[ "$sanitized" = 0 ] || { echo "skipped: a sanitizer needs its library"; exit 77; }
[ "$(uname -s)" != Darwin ] || { echo "skipped: macOS has no static C library"; exit 77; }
for library in inih; do
    [ -e "$(pkg-config --variable=libdir $library)/lib$library.a" ] || {
        echo "skipped: no static lib$library"
        exit 77
    }
done
done_by cmake -S "$source" -B build -DMINRNN_STATIC=ON -DMINRNN_TESTS=OFF
done_by cmake --build build --parallel 2 --target minrnn
check "it needs no shared library" bash -c '! readelf -d build/minrnn | grep -q NEEDED'
done_by build/minrnn --version
check "it says what it was built without" bash -c 'grep -q "cuda: no" out && grep -q "curl: no" out'
make_text text.txt 600 1
done_by build/minrnn train text --data text.txt --out run --steps 10 --quiet "${tiny[@]}"
done_by build/minrnn generate run/model.safetensors --tokens 20
finish
