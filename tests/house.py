#!/usr/bin/env python3
"""Checks the architecture: who may include whom, and how long files, functions and lines may be (CONTRIBUTING.md).

usage: house.py ROOT | --symbols ROOT BUILD      prints each violation; exit 1 if there is one

--symbols looks at what the program's objects in a build folder need of the library. house_test.py tests this program.
"""
import ast
import glob
import os
import re
import subprocess
import sys

FILE_LINES, FUNCTION_LINES, COLUMNS = 500, 60, 120
SOURCES = (".c", ".h", ".inc", ".def", ".cu", ".cuh", ".cpp", ".hpp", ".cc")

# Arrows: the longest prefix that fits a file says what it may include, itself aside. Public headers are for everyone.
PUBLIC = ("include/minrnn.h", "include/minrnn_experimental.h")
ARROWS = {
    "include": [],
    "src/core": [],
    "src/ops": ["src/core"],
    "src/comm": ["src/core"],
    "src/model": ["src/ops", "src/comm", "src/core"],
    "src/api": ["src/model", "src/ops", "src/comm", "src/core"],
    "app/plot": ["src/core"],
    "app/control": ["app/plot", "src/core"],
    "app/tasks": ["app/control", "src/core"],
    "app/weights": ["src/core"],
    "app/train": ["app/tasks", "app/control", "app/plot", "src/core"],
    "app/paper": ["app/train", "app/tasks", "app/control", "app/plot", "src/core"],
    "app/commands": ["app/paper", "app/train", "app/tasks", "app/weights", "app/control", "app/plot", "src/core",
                     "app/bench/experiments.h"],
    "app/bench": ["app", "src/model", "src/ops", "src/comm", "src/core"],
    "examples": [],
    "python": [],
}
# The one folder of the program that may look into the library; all others see public headers and src/core only, also
# through other headers.
INSIDERS = "app/bench"
# A backend's folder is closed: no other backend includes its files, and neither does anyone outside src/ops.
BACKENDS = ["src/ops/ref", "src/ops/cpu", "src/ops/cuda"]
# Every line of code, scripts and build files has at most COLUMNS columns; recorded data in tests and fuzz is not code.
NARROW = ("src", "include", "app", "examples", "python", "tests", "scripts", "fuzz", ".ci", "CMakeLists.txt",
          "Makefile")
NARROW_TYPES = (*SOURCES, ".py", ".sh", ".bash", ".cmake", ".cmake.in", "CMakeLists.txt", "Makefile")
MEASURED = ["src", "include", "app", "examples", "python", "tests", "fuzz"]
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
    backend = longest(path, BACKENDS)
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
        other_backend = longest(target, BACKENDS)
        if target not in PUBLIC and not any(within(target, folder) for folder in allowed):
            yield f"{path}:{number}: {source} may not include {target}"
        elif other_backend and backend != other_backend and (backend or not within(path, "src/ops")):
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
    """The program sees only what the library publishes, even through headers of the one folder that sees more."""
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
    """(first line, last line) of every function body with its head, in the first three branches of an #if. A function
    whose head is a macro is not seen."""
    return sorted({span for branch in range(3) for span in functions_of(blank(text, branch))})


def without_groups(head):
    """A head less what is in parentheses (`()` is left of each), and less alignments and attributes."""
    before = None
    while before != head:
        before, head = head, re.sub(r"\(\s*[^()\s][^()]*\)", "()", head)
        head = re.sub(r"\b(\w*(align|attribute)\w*)\s*\((\s*\(\s*\))*\s*\)", "", head)
    return head


def opened(head):
    """What the brace after this text opens: "function", "scope" (its members are looked at) or "other"."""
    head = without_groups(re.sub(r"\boperator\s*[^\s\w(]+", "operator", head))
    if "=" in head:
        return "other"
    if "(" in head or not head.strip():  # nothing: the declarations of a K&R head ended with a semicolon
        return "function"
    return "scope" if re.search(r"\b(extern|namespace|struct|class|union)\b", head) else "other"


def functions_of(code):
    """The same for code without directives, found by its braces."""
    depth = start = 0
    head = ""
    head_line = line = declared_at = 1
    for char in code:
        if char == "\n":
            line += 1
        if depth == 0:
            if char == "{":
                what = opened(head)
                depth, start = int(what != "scope"), head_line if head.strip() else declared_at
                head = ""
            elif char in ";}":
                if "(" in head:
                    declared_at = head_line
                head = ""
            elif head.strip() or not char.isspace():
                head_line = head_line if head.strip() else line
                head += char
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                if what == "function":
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
        yield from check_spans(path, what, spans)


def check_spans(path, what, spans):
    for first, last in spans:
        if last - first + 1 > FUNCTION_LINES:
            yield f"{path}:{first}: a {what} of {last - first + 1} lines; {FUNCTION_LINES} at most"


def check_script(path, text, lines):
    """Python, shell, CMake and make: files and marks of what is unfinished; functions of Python."""
    if len(lines) > FILE_LINES:
        yield f"{path}: {len(lines)} lines; {FILE_LINES} at most"
    yield from check_unfinished(path, lines)
    if path.endswith(".py"):
        yield from check_python(path, text)


def check_python(path, text):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    try:
        spans = [(node.lineno, node.end_lineno) for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    except SyntaxError as error:
        spans = []
        yield f"{path}: is not Python: {error}"
    yield from check_spans(path, "function", spans)


def narrow_files(root):
    """Files whose lines are measured: those of NARROW_TYPES and scripts without a type, but no recorded data."""
    for top in NARROW:
        if os.path.isfile(os.path.join(root, top)):
            yield top
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(name for name in folders if name not in ("expected", "runs", "corpus"))
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith(NARROW_TYPES) or ("." not in name and is_script(root, path)):
                    yield path


def is_script(root, path):
    with open(os.path.join(root, path), "rb") as file:
        return file.read(2) == b"#!"


def lines_of(text):
    """Lines as a compiler counts them (splitlines would also cut at characters such as U+2028)."""
    return text.removesuffix("\n").split("\n")


def sources(root):
    """Every file of C, C++ and CUDA, except recorded data."""
    for top in MEASURED:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(name for name in folders if name != "corpus")
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def check_tops(root):
    """Every file of C begins with a comment that says its idea."""
    for path in sources(root):
        top = re.match(r"/\*(.*?)\*/", read(root, path), re.S)
        if not top or not re.search(r"[^\W\d_]", top.group(1)):
            yield f"{path}: has no comment at its top that says its idea"


def check_columns(path, lines):
    for number, line in enumerate(lines, 1):
        if len(line.expandtabs(8)) > COLUMNS:
            yield f"{path}:{number}: {len(line.expandtabs(8))} columns; {COLUMNS} at most"


def check_unfinished(path, lines):
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield f"{path}:{number}: unfinished: {line.strip()}"


def check_words(path, lines):
    yield from check_unfinished(path, lines)
    for number, line in enumerate(lines, 1):
        device = re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*(CUDA|NVCC|CUBLAS)", line)
        if device and not any(within(path, folder) for folder in ("src/core", "src/ops", "tests")):
            yield f"{path}:{number}: above src/ops no code knows its device: {line.strip()}"


def violations(root):
    found, files = [], 0
    for path in sources(root):
        text = read(root, path)
        lines = lines_of(text)
        files += 1
        found += check_includes(root, path, lines)
        found += check_reach(root, path)
        found += check_sizes(path, text, lines)
        found += check_words(path, lines)
    for path in narrow_files(root):
        text = read(root, path)
        found += check_columns(path, lines_of(text))
        if not path.endswith(SOURCES):
            found += check_script(path, text, lines_of(text))
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


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--symbols":
        found, files = symbol_violations(sys.argv[2], sys.argv[3])
    elif len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    else:
        found, files = violations(sys.argv[1])
        found += check_tops(sys.argv[1])
    print("\n".join([*found, f"{files} files, {len(found)} violations"]))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
