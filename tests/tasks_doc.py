#!/usr/bin/env python3
"""Compiles the whole task of docs/first-task.md against the headers that a task sees.

usage: tasks_doc.py SOURCE COMPILER
"""
import os
import re
import subprocess
import sys
import tempfile


def main():
    source, compiler = sys.argv[1], sys.argv[2]
    with open(os.path.join(source, "docs/first-task.md"), encoding="utf-8") as page:
        tasks = re.findall(r"^```c\n(/\*.*?)^```", page.read(), re.M | re.S)
    if len(tasks) != 1:
        print(f"docs/first-task.md has {len(tasks)} whole tasks, not one")
        return 1
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "task.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(tasks[0])
        folders = ["-I" + os.path.join(source, folder) for folder in ("include", "src", "app")]
        done = subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *folders, path],
                              check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
