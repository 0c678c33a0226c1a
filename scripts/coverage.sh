#!/usr/bin/env bash
# Runs the tests of a build with MINRNN_COVERAGE and prints the share of the lines of src/ that they ran, by folder.
# usage: scripts/coverage.sh BUILD [LEAST]       LEAST: fail below this percentage; default 90
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1 least=${2:-90}
root=$PWD
command -v gcov >/dev/null || { echo "coverage: NOT MEASURED: there is no gcov here"; exit 1; }
find "$build" -name '*.gcda' -delete
scripts/test.sh "$build" --label-exclude slow || exit 1
find "$build/CMakeFiles/minrnn_objects.dir" -name '*.gcda' -print0 |
    xargs -0 gcov --json-format --stdout 2>/dev/null >"$build/coverage.json"
python3 - "$root" "$build/coverage.json" "$least" <<'PYTHON'
import json, os, sys
root, path, least = sys.argv[1], sys.argv[2], float(sys.argv[3])
runs = {}  # (file, line) → how often: a header counts once, however many files include it
for text in open(path):
    for file in json.loads(text)["files"]:
        name = os.path.relpath(os.path.join(root, file["file"]), root)
        if name.startswith("src/"):
            for line in file["lines"]:
                key = name, line["line_number"]
                runs[key] = runs.get(key, 0) + line["count"]
folders, files = {}, {}
for (name, _), count in runs.items():
    for table, key in ((folders, os.path.dirname(name)), (files, name), (folders, "src")):
        entry = table.setdefault(key, [0, 0])
        entry[0] += count > 0
        entry[1] += 1
share = lambda entry: 100 * entry[0] / entry[1]
for name, entry in sorted(files.items(), key=lambda item: share(item[1])):
    if share(entry) < least:
        print(f"{share(entry):6.1f} %  {entry[1]:5} lines  {name}")
print()
for name, entry in sorted(folders.items()):
    print(f"{share(entry):6.1f} %  {entry[1]:5} lines  {name}")
sys.exit(share(folders["src"]) < least)
PYTHON
