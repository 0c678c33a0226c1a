#!/usr/bin/env python3
"""The shape of the house: who may include whom, and how long files, functions and lines may be (CONTRIBUTING.md).

usage: house.py ROOT | --symbols ROOT BUILD | --self-test      prints each violation; exit 1 if there is one

--symbols looks at what the program's objects in a build folder need of the library.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

FILE_LINES, FUNCTION_LINES, COLUMNS = 500, 60, 120
SOURCES = (".c", ".h", ".inc", ".def", ".cu", ".cuh")

# Arrows: the longest prefix that fits a file says what it may include, itself aside. Public headers are for everyone.
PUBLIC = ("include/minrnn.h", "include/minrnn_experimental.h")
ARROWS = {
    "include": [],
    "src/core": [],
    "src/ops": ["src/core"],
    "src/model": ["src/ops", "src/core"],
    "src/api": ["src/model", "src/ops", "src/core"],
    "app/plot": ["src/core"],
    "app/tasks": ["src/core"],
    "app/train": ["app/tasks", "app/plot", "src/core"],
    "app/paper": ["app/train", "app/tasks", "app/plot", "src/core"],
    "app/commands": ["app/paper", "app/train", "app/tasks", "app/plot", "src/core", "app/bench/experiments.h"],
    "app/bench": ["app", "src/model", "src/ops", "src/core"],
    "examples": [],
}
# The one room of the program that may look into the library; all others see public headers and src/core, however they
# come by them.
INSIDERS = "app/bench"
# A backend is a closed room: no other backend looks in, and neither does anyone outside src/ops.
BACKENDS = ["src/ops/ref", "src/ops/cpu", "src/ops/cuda"]
# Every line of code, scripts and build files has at most COLUMNS columns; recorded data in tests and fuzz is not code.
NARROW = ("src", "include", "app", "examples", "tests", "scripts", "fuzz", "CMakeLists.txt", "Makefile")
NARROW_TYPES = (*SOURCES, ".py", ".sh", ".bash", ".cmake", ".cmake.in", "CMakeLists.txt", "Makefile")
MEASURED = ["src", "include", "app", "examples", "tests"]
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")


def within(path, folder):
    return path == folder or path.startswith(folder + "/")


def longest(path, folders):
    fitting = [folder for folder in folders if within(path, folder)]
    return max(fitting, key=len) if fitting else None


def include_target(root, path, name):
    """The file of ours that an #include names, or None."""
    for folder in (os.path.dirname(path), "src", "app", "include", "."):
        candidate = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def check_includes(root, path, lines):
    source = longest(path, ARROWS)
    if source is None:
        return
    room = longest(path, BACKENDS)
    for number, line in enumerate(lines, 1):
        match = re.match(r"\s*#\s*include\b\s*(\S+)", line)
        if not match:
            continue
        quoted = re.match(r'"([^"]+)"|<([^>]+)>', match.group(1))
        if not quoted:
            yield f"{path}:{number}: #include {match.group(1)}: name the file, so that its arrow can be seen"
            continue
        target = include_target(root, path, quoted.group(1) or quoted.group(2))
        if target is None:
            if quoted.group(1):
                yield f"{path}:{number}: #include \"{quoted.group(1)}\": there is no such file"
            continue
        allowed = [source, *ARROWS[source]]
        other_room = longest(target, BACKENDS)
        if target not in PUBLIC and not any(within(target, folder) for folder in allowed):
            yield f"{path}:{number}: {source} may not include {target}"
        elif other_room and room != other_room and (room or not within(path, "src/ops")):
            yield f"{path}:{number}: {target} belongs to its backend alone"


def included(root, path, seen):
    """Every file of ours that one includes, directly or through others."""
    for match in re.finditer(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', read(root, path), re.M):
        target = include_target(root, path, match.group(1))
        if target and target not in seen:
            seen.add(target)
            included(root, target, seen)
    return seen


def check_reach(root, path):
    """The program sees only what the library publishes, even through headers of the one room that sees more."""
    if not within(path, "app") or within(path, INSIDERS):
        return
    for target in sorted(included(root, path, set())):
        if any(within(target, folder) for folder in ("src/ops", "src/model", "src/api")):
            yield f"{path}: reaches {target}, which is the library's own"


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def branches(lines):
    """For each line, the (group, branch) pairs of the #if groups around it; and how many branches each group has."""
    places, counts, stack, directive = [], [], [], False
    for line in lines:
        starts = None if directive else re.match(r"\s*#\s*(\w*)", line)
        word = starts.group(1) if starts else ""
        if word.startswith("if"):
            stack.append((len(counts), 0))
            counts.append(1)
        elif word in ("else", "elif") and stack:
            group, branch = stack[-1]
            stack[-1] = (group, branch + 1)
            counts[group] += 1
        elif word == "endif" and stack:
            stack.pop()
        inside = directive or bool(starts)
        directive = inside and line.rstrip().endswith("\\")
        places.append((inside, list(stack)))
    return places, counts


def blank(text, branch):
    """The code with comments, literals and the inside of directives blanked, every line kept in its place. Of the
    branches of an #if one is kept, this one or the last: braces that two of them open must not count twice."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    lines = pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text).split("\n")
    places, counts = branches(lines)
    kept = []
    for line, (inside, around) in zip(lines, places):
        here = all(which == min(branch, counts[group] - 1) for group, which in around)
        kept.append(line if here and not inside else "")
    return "\n".join(kept)


def functions(text):
    """(first line, last line) of every function body with its head, in whichever branch of an #if it lies."""
    return sorted({span for branch in range(3) for span in functions_of(blank(text, branch))})


def functions_of(code):
    """The same for code without directives, found by its braces."""
    depth = start = 0
    head = ""
    head_line = line = 1
    for char in code:
        if char == "\n":
            line += 1
        if depth == 0:
            if char == "{":
                if re.search(r"\bextern\s*$", head):  # extern "C" opens no scope
                    head = ""
                    continue
                depth, start, is_function = 1, head_line, head.rstrip().endswith(")")
            elif char in ";}":
                head = ""
            elif head.strip() or not char.isspace():
                head_line = head_line if head.strip() else line
                head += char
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                if is_function:
                    yield start, line
                head = ""


def macros(lines):
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"\s*#\s*define\b", line):
            start = number
        if start is not None and not line.rstrip().endswith("\\"):
            yield start, number
            start = None


def check_sizes(path, text, lines):
    if len(lines) > FILE_LINES:
        yield f"{path}: {len(lines)} lines; {FILE_LINES} at most"
    for what, spans in (("function", functions(text)), ("macro", macros(lines))):
        for first, last in spans:
            if last - first + 1 > FUNCTION_LINES:
                yield f"{path}:{first}: a {what} of {last - first + 1} lines; {FUNCTION_LINES} at most"


def narrow_files(root):
    """Files whose lines are measured: those of NARROW_TYPES, without what other programs wrote or read as data."""
    for top in NARROW:
        if os.path.isfile(os.path.join(root, top)):
            yield top
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(name for name in folders if name not in ("expected", "runs", "corpus"))
            for name in sorted(names):
                if name.endswith(NARROW_TYPES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def lines_of(text):
    """Lines as a compiler counts them (splitlines would also cut at characters such as U+2028)."""
    return text.removesuffix("\n").split("\n")


def check_tops(root):
    """Every file of C begins with a comment that says its idea."""
    for top in MEASURED:
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith(SOURCES) and not read(root, path).startswith("/*"):
                    yield f"{path}: has no comment at its top that says its idea"


def check_columns(path, lines):
    for number, line in enumerate(lines, 1):
        if len(line.expandtabs(8)) > COLUMNS:
            yield f"{path}:{number}: {len(line.expandtabs(8))} columns; {COLUMNS} at most"


def check_words(path, lines):
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield f"{path}:{number}: unfinished: {line.strip()}"
        device = re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*(CUDA|NVCC|CUBLAS)", line)
        if device and not any(within(path, folder) for folder in ("src/core", "src/ops", "tests")):
            yield f"{path}:{number}: above src/ops no code knows its device: {line.strip()}"


def violations(root):
    found, files = [], 0
    for top in MEASURED:
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                if not name.endswith(SOURCES):
                    continue
                path = os.path.relpath(os.path.join(folder, name), root)
                text = read(root, path)
                lines = lines_of(text)
                files += 1
                found += check_includes(root, path, lines)
                found += check_reach(root, path)
                found += check_sizes(path, text, lines)
                found += check_words(path, lines)
    for path in narrow_files(root):
        found += check_columns(path, lines_of(read(root, path)))
    return found, files


# ---- symbols: what the program's objects need of the library is public, or of src/core


def declared(root):
    """Functions that the public headers declare."""
    return set(re.findall(r"MR_API [^;]*?\b(mr_\w+)\(", "".join(read(root, path) for path in PUBLIC)))


def wrong_symbols(needed, public, core, own):
    """needed: object → undefined symbols; the others are sets of names that may be needed."""
    for path in sorted(needed):
        for name in sorted(needed[path]):
            if name.startswith("mr_") and name not in public | core | own:
                yield f"{path}: needs {name}, which no public header declares and src/core does not define"


def symbols(paths, which):
    """The symbols of objects by nm: file → names."""
    names = {path: set() for path in paths}
    for path in paths:
        lines = subprocess.run(["nm", which, path], check=True, capture_output=True, text=True).stdout.splitlines()
        names[path] = {line.split()[-1] for line in lines if line.strip()}
    return names


def symbol_violations(root, build):
    app = glob.glob(os.path.join(build, "CMakeFiles/minrnn_app.dir/**/*.o"), recursive=True)
    app += glob.glob(os.path.join(build, "CMakeFiles/minrnn.dir/**/*.o"), recursive=True)
    core = glob.glob(os.path.join(build, "CMakeFiles/minrnn_objects.dir/src/core/*.o"))
    if not app or not core:
        return [f"{build}: there are no objects of the program or of src/core"], 0
    outside = [path for path in app if f"/{INSIDERS}/" not in path]
    union = lambda table: set().union(*table.values())
    needed = {os.path.relpath(path, build): names for path, names in symbols(outside, "-u").items()}
    defined = [union(symbols(objects, "--defined-only")) for objects in (core, app)]
    return list(wrong_symbols(needed, declared(root), *defined)), len(outside)


# ---- self-test: a house in order, and the same house with one thing wrong

CLEAN = {
    "include/minrnn.h": "int api(void);\n",
    "include/minrnn_experimental.h": '#include "minrnn.h"\n',
    "src/core/mem.h": '#include "minrnn.h"\n#include <stddef.h>\n',
    "src/ops/ops.h": '#include "core/mem.h"\n',
    "src/ops/device.c": '#include "ops/ops.h"\n#include "cpu/kernel.h"\n',
    "src/ops/cpu/kernel.h": '#include "ops/ops.h"\n#include "ops/cpu/tile.inc"\n',
    "src/ops/cpu/tile.inc": "#ifdef __CUDA_ARCH__\n#endif\n",
    "src/ops/ref/plain.h": "",
    "src/model/model.h": '#include "ops/ops.h"\n',
    "src/api/api.h": '#include "model/model.h"\n#include "minrnn_experimental.h"\n',
    "app/tasks/task.h": '#include "core/mem.h"\n#include "minrnn.h"\n',
    "app/plot/chart.h": '#include "core/mem.h"\n',
    "app/train/train.h": '#include "tasks/task.h"\n#include "plot/chart.h"\n',
    "app/paper/tables.h": '#include "train/train.h"\n',
    "app/bench/experiments.h": '#include "paper/tables.h"\n',
    "app/bench/timed.h": '#include "model/model.h"\n#include "bench/experiments.h"\n',
    "app/bench/cmd_check.c": '#include "ops/ops.h"\n#include "commands/args.h"\n',
    "app/commands/args.h": '#include "train/train.h"\n',
    "app/commands/cmd_paper.c": '#include "args.h"\n#include "bench/experiments.h"\n',
    "examples/tiny.c": '#include <minrnn.h>\n#include <minrnn_experimental.h>\n',
    "src/core/long.c": "int a(void)\n{\n" + "    ;\n" * (FUNCTION_LINES - 3) + "}\n"  # just allowed
                       + "#ifdef X\nint b(int x) {\n#else\nint b(void) {\n#endif\n"
                       + "    return \"}\"[0] == '}'; /* } */\n}\n"
                       + "static const int table[] = {\n" + "    1,\n" * 200 + "};\n",
    "tests/wide.py": "é" * COLUMNS + "\n",  # just allowed
    "tests/compat/expected/long.sh": "x" * 1000 + "\n",
    "tests/golden/data.txt": "x" * 1000 + "\n",
}

PLANTED = [
    ("src/core/bad.h", '#include "ops/ops.h"\n', "src/core may not include src/ops/ops.h"),
    ("src/core/bad.h", '#  include <ops/ops.h>\n', "src/core may not include src/ops/ops.h"),
    ("src/core/bad.h", '#include"ops/ops.h"\n', "src/core may not include src/ops/ops.h"),
    ("src/core/bad.c", "#ifdef X\nint a;\n#else\nint a(void)\n{\n" + "    ;\n" * (FUNCTION_LINES - 2) + "}\n#endif\n",
     f"bad.c:4: a function of {FUNCTION_LINES + 1} lines"),
    ("tests/bad.py", "x" * COLUMNS + "\u2028y\n", f"{COLUMNS + 2} columns"),
    ("src/ops/bad.c", '#include "../model/model.h"\n', "src/ops may not include src/model/model.h"),
    ("src/model/bad.c", '#include "api/api.h"\n', "src/model may not include src/api/api.h"),
    ("src/api/bad.c", '#include "train/train.h"\n', "src/api may not include app/train/train.h"),
    ("src/core/bad.c", '#include "plot/chart.h"\n', "src/core may not include app/plot/chart.h"),
    ("app/tasks/bad.c", '#include "train/train.h"\n', "app/tasks may not include app/train/train.h"),
    ("app/plot/bad.c", '#include "tasks/task.h"\n', "app/plot may not include app/tasks/task.h"),
    ("app/train/bad.c", '#include "commands/args.h"\n', "app/train may not include app/commands/args.h"),
    ("examples/bad.c", '#include "core/mem.h"\n', "examples may not include src/core/mem.h"),
    ("src/ops/ref/bad.c", '#include "ops/cpu/kernel.h"\n', "belongs to its backend alone"),
    ("src/ops/cpu/bad.inc", '#include "../ref/plain.h"\n', "belongs to its backend alone"),
    ("src/model/bad.c", '#include "ops/cpu/kernel.h"\n', "belongs to its backend alone"),
    ("src/core/bad.c", "#include KERNEL\n", "name the file"),
    ("src/core/bad.c", '#include "core/gone.h"\n', "there is no such file"),
    ("src/model/bad.cu", "#if defined(USE_CUDA)\n#endif\n", "no code knows its device"),
    ("app/train/bad.c", "/* TO" "DO: later */\n", "unfinished"),
    ("src/core/bad.c", "int x;\n" * (FILE_LINES + 1), f"{FILE_LINES + 1} lines"),
    ("src/core/bad.c", "int a(void)\n{\n" + "    ;\n" * (FUNCTION_LINES - 2) + "}\n",
     f"bad.c:1: a function of {FUNCTION_LINES + 1} lines"),
    ("src/core/bad.c", "int t[] = {1};\n\nint\na(int (*f)(void),\n  int b) {\n"
     + "    if (b) { b = '{'; }\n" * (FUNCTION_LINES - 3) + "}\n",
     f"bad.c:3: a function of {FUNCTION_LINES + 1} lines"),
    ("src/core/bad.h", '#ifdef __cplusplus\nextern "C" {\n#endif\nint a(void) {\n' + "    ;\n" * (FUNCTION_LINES - 1)
     + "}\n",
     f"bad.h:4: a function of {FUNCTION_LINES + 1} lines"),
    ("src/core/bad.c", "#define LONG \\\n" + "    ; \\\n" * FUNCTION_LINES + "\n",
     f"a macro of {FUNCTION_LINES + 2} lines"),
    *((path, "\n" + "#" * (COLUMNS + 1) + "\n", f"{path}:2: {COLUMNS + 1} columns")
      for path in ("src/ops/ops.def", "tests/cli_x.sh", "tests/cli_support.bash", "scripts/x.py", "scripts/x.cmake",
                   "fuzz/CMakeLists.txt", "CMakeLists.txt", "Makefile")),
    ("app/train/bad.c", "/*" + "*" * COLUMNS + "*/\n", f"{COLUMNS + 4} columns"),
    ("Makefile", "x:\n\t" + "y" * (COLUMNS - 7) + "\n", f"{COLUMNS + 1} columns"),  # a tab is eight
]

# What the program may not see is named where it is included, and where it is reached.
REACHED = [
    ("app/train/bad.c", '#include "ops/ops.h"\n', ["app/train may not include src/ops/ops.h", "reaches src/ops/ops.h"]),
    ("app/commands/bad.c", '#include "bench/timed.h"\n',
     ["app/commands may not include app/bench/timed.h", "reaches src/model/model.h", "reaches src/ops/ops.h"]),
    ("app/bench/experiments.h", '#include "ops/ops.h"\n', ["cmd_paper.c: reaches src/ops/ops.h"]),
]

SYMBOLS = [
    ({"train.o": {"mr_net_train", "mr_alloc", "mr_task_open", "malloc"}}, []),
    ({"train.o": {"mr_net_train", "mr_model_learn"}}, ["train.o: needs mr_model_learn"]),
    ({"a.o": {"mr_dev_open"}, "b.o": {"mr_dev_open"}}, ["a.o: needs mr_dev_open", "b.o: needs mr_dev_open"]),
]


def plant(root, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)


def judge(path, text, expected):
    """1: the house with that file in it is not found wrong in the way expected."""
    with tempfile.TemporaryDirectory() as root:
        plant(root, CLEAN)
        if path:
            plant(root, {path: text})
        found, _ = violations(root)
    good = len(found) == len(expected) and all(any(part in line for line in found) for part in expected)
    if not good:
        print(f"self-test: expected {expected!r} from {path}, found {found}")
    return not good


def self_test():
    houses = [(None, "", []), *((path, text, [expected]) for path, text, expected in PLANTED), *REACHED]
    failures = sum(judge(*house) for house in houses)
    for needed, expected in SYMBOLS:
        found = list(wrong_symbols(needed, {"mr_net_train"}, {"mr_alloc"}, {"mr_task_open"}))
        if len(found) != len(expected) or not all(line.startswith(part) for line, part in zip(found, expected)):
            failures += 1
            print(f"self-test: expected {expected!r} from {needed}, found {found}")
    total = len(houses) + len(SYMBOLS)
    print(f"self-test: {total - failures} of {total} houses judged rightly")
    return failures


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--symbols":
        found, files = symbol_violations(sys.argv[2], sys.argv[3])
    elif len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    elif sys.argv[1] == "--self-test":
        return 1 if self_test() else 0
    else:
        found, files = violations(sys.argv[1])
        found += check_tops(sys.argv[1])
    print("\n".join([*found, f"{files} files, {len(found)} violations"]))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
