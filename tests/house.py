#!/usr/bin/env python3
"""The shape of the house: who may include whom, and how long files and functions may be (CONTRIBUTING.md).

usage: house.py ROOT | --self-test      prints each violation; exit 1 if there is one
"""
import os
import re
import sys
import tempfile

FILE_LINES, FUNCTION_LINES = 600, 80
SOURCES = (".c", ".h", ".inc", ".def", ".cu", ".cuh")

# Arrows: the longest prefix that fits a file says what it may include, itself aside.
ARROWS = {
    "include": [],
    "src/core": [],
    "src/ops": ["src/core"],
    "src/model": ["src/ops", "src/core"],
    "src/api": ["src/model", "src/ops", "src/core"],
    "app": ["app", "src"],
    "examples": [],
    "python": [],
}
EVERYONE = ("include/minrnn.h", "include/minrnn_experimental.h")
# A backend is a closed room: no other backend looks in, and neither does anyone outside src/ops.
BACKENDS = ["src/ops/ref", "src/ops/cpu", "src/ops/cuda"]
MEASURED = ["src", "include", "app", "examples", "python", "tests"]
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
        match = re.match(r"\s*#\s*include\s+(\S+)", line)
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
        if target not in EVERYONE and not any(within(target, folder) for folder in allowed):
            yield f"{path}:{number}: {source} may not include {target}"
        elif other_room and room != other_room and (room or not within(path, "src/ops")):
            yield f"{path}:{number}: {target} belongs to its backend alone"


def blank(text):
    """The code with comments, literals and the inside of directives blanked, every line kept in its place."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    text = pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    out, depth, skipping, directive = [], 0, [], False
    for line in text.split("\n"):
        starts = re.match(r"\s*#\s*(\w*)", line)
        if not directive and starts:
            word = starts.group(1)
            depth += word.startswith("if")
            # Of the branches of an #if only the first is read: braces that both open must not count twice.
            if word in ("else", "elif") and depth not in skipping:
                skipping.append(depth)
            if word == "endif":
                if depth in skipping:
                    skipping.remove(depth)
                depth -= 1
        inside = directive or bool(starts)
        directive = inside and line.rstrip().endswith("\\")
        out.append("" if inside or skipping else line)
    return "\n".join(out)


def functions(text):
    """(first line, last line) of every function body with its head, found by its braces."""
    code = blank(text)
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
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    text = file.read()
                lines = text.splitlines()
                files += 1
                found += check_includes(root, path, lines)
                found += check_sizes(path, text, lines)
                found += check_words(path, lines)
    return found, files


# ---- self-test: a house in order, and the same house with one thing wrong

CLEAN = {
    "include/minrnn.h": "int api(void);\n",
    "src/core/mem.h": '#include "minrnn.h"\n#include <stddef.h>\n',
    "src/ops/ops.h": '#include "core/mem.h"\n',
    "src/ops/device.c": '#include "ops/ops.h"\n#include "cpu/kernel.h"\n',
    "src/ops/cpu/kernel.h": '#include "ops/ops.h"\n#include "ops/cpu/tile.inc"\n',
    "src/ops/cpu/tile.inc": "#ifdef __CUDA_ARCH__\n#endif\n",
    "src/ops/ref/plain.h": "",
    "src/model/model.h": '#include "ops/ops.h"\n',
    "src/tasks/task.h": '#include "core/mem.h"\n',
    "src/run/train.h": '#include "model/model.h"\n#include "tasks/task.h"\n',
    "tools/cli.h": '#include "run/train.h"\n',
    "tools/cmd_check.c": '#include "ops/ops.h"\n#include "cli.h"\n',
    "bench/gemm.c": '#include "ops/ops.h"\n',
    "examples/tiny.c": '#include <minrnn.h>\n',
    "src/core/long.c": "int a(void)\n{\n" + "    ;\n" * 77 + "}\n"                            # 80 lines: just allowed
                       + '#ifdef X\nint b(int x) {\n#else\nint b(void) {\n#endif\n    return "}"[0] == \'}\'; /* } */\n}\n'
                       + "static const int table[] = {\n" + "    1,\n" * 200 + "};\n",
}

PLANTED = [
    ("src/core/bad.h", '#include "ops/ops.h"\n', "src/core may not include src/ops/ops.h"),
    ("src/core/bad.h", '#  include <ops/ops.h>\n', "src/core may not include src/ops/ops.h"),
    ("src/ops/bad.c", '#include "../model/model.h"\n', "src/ops may not include src/model/model.h"),
    ("src/model/bad.c", '#include "tasks/task.h"\n', "src/model may not include src/tasks/task.h"),
    ("src/tasks/bad.c", '#include "ops/ops.h"\n', "src/tasks may not include src/ops/ops.h"),
    ("src/run/bad.c", '#include "tools/cli.h"\n', "src/run may not include tools/cli.h"),
    ("tools/bad.c", '#include "ops/ops.h"\n', "tools may not include src/ops/ops.h"),
    ("examples/bad.c", '#include "core/mem.h"\n', "examples may not include src/core/mem.h"),
    ("src/ops/ref/bad.c", '#include "ops/cpu/kernel.h"\n', "belongs to its backend alone"),
    ("src/ops/cpu/bad.inc", '#include "../ref/plain.h"\n', "belongs to its backend alone"),
    ("src/model/bad.c", '#include "ops/cpu/kernel.h"\n', "belongs to its backend alone"),
    ("src/core/bad.c", "#include KERNEL\n", "name the file"),
    ("src/core/bad.c", '#include "core/gone.h"\n', "there is no such file"),
    ("src/model/bad.cu", "#if defined(USE_CUDA)\n#endif\n", "no code knows its device"),
    ("tools/bad.c", "/* TO" "DO: later */\n", "unfinished"),
    ("src/core/bad.c", "int x;\n" * 601, "601 lines"),
    ("src/core/bad.c", "int a(void)\n{\n" + "    ;\n" * 78 + "}\n", "bad.c:1: a function of 81 lines"),
    ("src/core/bad.c", "int t[] = {1};\n\nint\na(int (*f)(void),\n  int b) {\n" + "    if (b) { b = '{'; }\n" * 77 + "}\n",
     "bad.c:3: a function of 81 lines"),
    ("src/core/bad.h", '#ifdef __cplusplus\nextern "C" {\n#endif\nint a(void) {\n' + "    ;\n" * 79 + "}\n",
     "bad.h:4: a function of 81 lines"),
    ("src/core/bad.c", "#define LONG \\\n" + "    ; \\\n" * 80 + "\n", "a macro of 82 lines"),
]


def plant(root, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)


def self_test():
    failures = 0
    for path, text, expected in [(None, "", None), *PLANTED]:
        with tempfile.TemporaryDirectory() as root:
            plant(root, CLEAN)
            if path:
                plant(root, {path: text})
            found, _ = violations(root)
        good = not found if expected is None else len(found) == 1 and expected in found[0]
        if not good:
            failures += 1
            print(f"self-test: expected {expected!r} from {path}, found {found}")
    print(f"self-test: {len(PLANTED) + 1 - failures} of {len(PLANTED) + 1} houses judged rightly")
    return failures


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if sys.argv[1] == "--self-test":
        return 1 if self_test() else 0
    found, files = violations(sys.argv[1])
    print("\n".join([*found, f"{files} files, {len(found)} violations"]))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
