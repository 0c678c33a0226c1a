#!/usr/bin/env python3
"""Tests house.py: a small tree in order, and the same tree with one thing wrong at a time.

usage: house_test.py      exit 1 if a tree is judged wrongly
"""
import os
import sys
import tempfile

import house
from house import COLUMNS, FILE_LINES, FUNCTION_LINES

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
    "tests/wide.py": "#" + "é" * (COLUMNS - 1) + "\n",  # just allowed, as is the length of the next ones
    "tests/long.py": "\n" * (FILE_LINES - FUNCTION_LINES) + "def a():\n" + "    pass\n" * (FUNCTION_LINES - 1),
    "src/ops/cuda/members.cuh": "namespace n {\nstruct __align__(16) s {\n" + "    int x;\n" * 100
                                + "    static const int t[2] = {\n" + "1,\n" * 100 + "};\n    int a() const {\n"
                                + "        ;\n" * (FUNCTION_LINES - 2) + "    }\n};\n}\n",
    "src/core/attribute.h": "struct __attribute__((aligned(8), packed)) s {\n" + "    int x;\n" * 100 + "};\n"
                            + "enum {\n" + "    A,\n" * 100 + "};\n",
    "src/core/pointers.c": "static int (*const f[])(int) = {\n" + "    0,\n" * 100 + "};\n",
    "fuzz/corpus/data.c": "x" * 1000 + "\n" * 1000,
    "tests/compat/expected/long.sh": "x" * 1000 + "\n",
    "tests/golden/data.txt": "x" * 1000 + "\n",
}

PLANTED = [
    ("src/core/bad.h", '#include "ops/ops.h"\n', "src/core may not include src/ops/ops.h"),
    ("src/core/bad.h", '#  include <ops/ops.h>\n', "src/core may not include src/ops/ops.h"),
    ("src/core/bad.h", '#include"ops/ops.h"\n', "src/core may not include src/ops/ops.h"),
    ("src/core/bad.c", "#ifdef X\nint a;\n#else\nint a(void)\n{\n" + "    ;\n" * (FUNCTION_LINES - 2) + "}\n#endif\n",
     f"bad.c:4: a function of {FUNCTION_LINES + 1} lines"),
    ("tests/bad.py", "#" * COLUMNS + "\u2028y\n", f"{COLUMNS + 2} columns"),
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
    *((path, f"\n{head}" + "    ;\n" * (FUNCTION_LINES - head.count("\n")) + "}\n",
       f"{path}:2: a function of {FUNCTION_LINES + 1} lines")
      for path, head in (("src/core/bad.c", "int a(void) MACRO\n{\n"), ("src/core/bad.c", "int a(void) M(1) N {\n"),
                         ("src/core/bad.c", "int a(b, c)\nint b;\nchar c;\n{\n"),
                         ("src/core/bad.c", "struct s a(struct s b)\n{\n"), ("fuzz/bad.c", "int a(void) {\n"),
                         ("src/ops/cuda/bad.cuh", "bool operator==(s b) {\n"))),
    *(("src/ops/cuda/bad.cuh", f"{scope} {{\nint x = 1;\nint a(int b = 2) const {{\n"
       + "    ;\n" * (FUNCTION_LINES - 1) + "}\n}\n", f"bad.cuh:3: a function of {FUNCTION_LINES + 1} lines")
      for scope in ("namespace n", "namespace", "template <typename T> struct s", "class c", "union")),
    ("tests/bad.py", "x = 1\n" * (FILE_LINES + 1), f"{FILE_LINES + 1} lines"),
    ("scripts/bad.py", "class a:\n    def b(self):\n" + "        pass\n" * FUNCTION_LINES,
     f"bad.py:2: a function of {FUNCTION_LINES + 1} lines"),
    ("scripts/bad.py", "def a(:\n", "is not Python"),
    ("tests/cli_bad.sh", ":\n" * (FILE_LINES + 1), f"{FILE_LINES + 1} lines"),
    ("src/core/bad.cpp", "int x;\n" * (FILE_LINES + 1), f"{FILE_LINES + 1} lines"),
    *((path, "# TO" "DO: later\n", f"{path}:1: unfinished")
      for path in ("scripts/bad.py", "tests/cli_bad.sh", "tests/CMakeLists.txt")),
    (".ci/run", "#!/bin/sh\n" + "#" * (COLUMNS + 1) + "\n", f".ci/run:2: {COLUMNS + 1} columns"),
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

# Top comments: (file, text, is it found wrong?).
TOPS = [
    ("src/core/a.c", "/* Its idea. */\n", False),
    ("src/core/a.h", "/*\n * Its idea.\n */\n", False),
    ("src/core/a.c", "int a; /* Its idea. */\n", True),
    ("src/core/a.c", "", True),
    ("tests/a.c", "/* */\n/* Its idea. */\n", True),
    ("src/ops/cuda/a.cu", "/* ---- 1 ----\n */\n", True),
    ("fuzz/a.c", "#include <stdio.h>\n", True),
    ("fuzz/corpus/a.c", "", False),
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
    """1: the tree with that file in it is not found wrong in the way expected."""
    with tempfile.TemporaryDirectory() as root:
        plant(root, CLEAN)
        if path:
            plant(root, {path: text})
        found, _ = house.violations(root)
    good = len(found) == len(expected) and all(any(part in line for line in found) for part in expected)
    if not good:
        print(f"expected {expected!r} from {path}, found {found}")
    return not good


def judge_top(path, text, wrong):
    """1: its top comment is judged wrongly."""
    with tempfile.TemporaryDirectory() as root:
        plant(root, {path: text})
        found = list(house.check_tops(root))
    good = found == ([f"{path}: has no comment at its top that says its idea"] if wrong else [])
    if not good:
        print(f"expected {wrong} from {text!r} in {path}, found {found}")
    return not good


def self_test():
    trees = [(None, "", []), *((path, text, [expected]) for path, text, expected in PLANTED), *REACHED]
    failures = sum(judge(*tree) for tree in trees) + sum(judge_top(*top) for top in TOPS)
    for needed, expected in SYMBOLS:
        found = list(house.wrong_symbols(needed, {"mr_net_train"}, {"mr_alloc"}, {"mr_task_open"}))
        if len(found) != len(expected) or not all(line.startswith(part) for line, part in zip(found, expected)):
            failures += 1
            print(f"expected {expected!r} from {needed}, found {found}")
    total = len(trees) + len(TOPS) + len(SYMBOLS)
    print(f"{total - failures} of {total} trees judged rightly")
    return failures


if __name__ == "__main__":
    sys.exit(1 if self_test() else 0)
