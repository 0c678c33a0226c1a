#!/usr/bin/env bash
# The Python package: its tests, the examples of its docstrings and of python/examples, with this build's extension.
# usage: cli_python.sh MINRNN
set -euo pipefail
minrnn=$(realpath "${1:?usage: cli_python.sh MINRNN}")
root=$(realpath "$(dirname "$0")/..")
extension=$(dirname "$minrnn")/python/_core.abi3.so
if [ ! -e "$extension" ]; then
    echo "skipped: no Python headers (python3-dev) of 3.11 or later here: the Python package was not built"
    exit 77
fi
python=
for candidate in ${MINRNN_PYTHON:+"$MINRNN_PYTHON"} python3 /usr/bin/python3; do
    if "$candidate" -c 'import sys, numpy; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "skipped: no Python of 3.11 or later with NumPy here (python3-numpy): the Python package was not tested"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$root/python/minrnn" "$work/minrnn"
rm -rf "$work"/minrnn/*.so "$work/minrnn/bin"
cp "$extension" "$work/minrnn/"
mkdir -p "$work/minrnn/bin"
ln -s "$minrnn" "$work/minrnn/bin/minrnn"
export PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1
cd "$work"
"$python" -c 'import torch' 2>/dev/null || echo "left out: minrnn.torch: PyTorch is not installed"
"$python" -W error::ResourceWarning -m unittest discover -s "$root/python/tests" 2>&1 | tail -n 40
"$python" - <<'PYTHON'
import doctest, importlib, sys
failed = sum(doctest.testmod(importlib.import_module(f"minrnn.{name}")).failed
             for name in ("contexts", "scans", "streams", "models"))
sys.exit(failed > 0)
PYTHON
[ "$("$python" -W error -m minrnn --version | head -n 1)" = "$("$minrnn" --version | head -n 1)" ]
for example in "$root"/python/examples/*.py; do
    (cd "$work" && "$python" "$example" >"$work/out" 2>&1) || { cat "$work/out"; echo "failed: $example"; exit 1; }
    [ "$(wc -l <"$example")" -lt 40 ] || { echo "$example has 40 lines or more"; exit 1; }
done
