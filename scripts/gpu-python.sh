#!/usr/bin/env bash
# The Python package on a machine with an NVIDIA GPU: builds the extension for this card, runs the tests of
# minrnn.torch, those on CUDA first, and measures (python -m minrnn.bench). About five minutes after the build.
# usage: scripts/gpu-python.sh [FOLDER]      results in FOLDER (gpu-python): tests.txt, bench.txt, bench.json
# MINRNN_PYTHON: a Python of 3.11 or later with NumPy and PyTorch (python3). MINRNN_PYTHON_BUILD: the build folder
# (build-python); one that has the extension already is used as it is. MINRNN_SECONDS: for each length measured (25).
set -u
cd "$(dirname "$0")/.." || exit 1
python=${MINRNN_PYTHON:-python3}
build=${MINRNN_PYTHON_BUILD:-build-python}
mkdir -p "${1:-gpu-python}" && out=$(cd "${1:-gpu-python}" && pwd) || exit 1
"$python" -c 'import numpy, torch, sys; sys.exit(not torch.cuda.is_available())' ||
    { echo "gpu-python: $python has no PyTorch that sees a GPU; MINRNN_PYTHON names another" >&2; exit 1; }
failures=0
if [ ! -e "$build/python/_core.abi3.so" ]; then
    cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DMINRNN_CUDA=ON -DMINRNN_PYTHON=ON -DMINRNN_TESTS=OFF \
        "-DPython_EXECUTABLE=$(command -v "$python")" &&
        cmake --build "$build" --parallel "$(nproc)" --target minrnn_python minrnn || exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r python/minrnn "$work/"
rm -rf "$work"/minrnn/*.so "$work/minrnn/bin"
mkdir "$work/minrnn/bin"
cp "$build/python/_core.abi3.so" "$work/minrnn/"
cp "$build/minrnn" "$work/minrnn/bin/"
export PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1
{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    "$python" -c 'import torch, minrnn; print("PyTorch", torch.__version__, "minrnn", minrnn.__version__)'
} | tee "$out/tests.txt"
run_tests() { # PATTERN
    timeout 200 "$python" -W ignore -m unittest discover -s python/tests -p "$1" >"$work/log" 2>&1 ||
        { failures=$((failures + 1)); echo "FAILED: $1"; }
    tee -a "$out/tests.txt" <"$work/log" | tail -n 4
}
# first what no other machine runs; the tests on NumPy arrays need no GPU
run_tests 'test_torch_cuda.py'
"$python" -W ignore -m minrnn.bench --device cuda --seconds "${MINRNN_SECONDS:-25}" --json "$out/bench.json" 2>&1 |
    tee "$out/bench.txt"
[ "${PIPESTATUS[0]}" -eq 0 ] || failures=$((failures + 1))
run_tests 'test_torch_[!c]*.py'
run_tests 'test_torch_c[!u]*.py'
echo "$failures failures; results in $out" | tee -a "$out/tests.txt"
[ "$failures" -eq 0 ]
