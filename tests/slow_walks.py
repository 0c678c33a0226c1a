#!/usr/bin/env python3
"""Carries out docs/first-op.md and docs/first-task.md word for word on a copy of the tree. The new ops must pass the
check, the new task must be learnt, and a broken kernel must fail the check.

usage: slow_walks.py SOURCE COMPILER
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

APPEND = re.compile(r"^In `([^`]+)`, at the end:\n\n```\w+\n(.*?)^```", re.M | re.S)
AFTER = re.compile(r"^In `([^`]+)`, after `([^`]+)`:\n\n```\w+\n(.*?)^```", re.M | re.S)
CREATE = re.compile(r"^The new file `([^`]+)`[^\n]*:\n\n```\w+\n(.*?)^```", re.M | re.S)
KEPT = ("src", "app", "include", "recipes", "data", "scripts", "examples", "CMakeLists.txt")


def copy_tree(source, tree):
    for name in KEPT:
        path = os.path.join(source, name)
        copy = shutil.copytree if os.path.isdir(path) else shutil.copy
        copy(path, os.path.join(tree, name))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def carry_out(source, page_name, tree, expected):
    """Every edit of a page."""
    page = read(os.path.join(source, "docs", page_name))
    edits = 0
    for name, text in APPEND.findall(page):
        path = os.path.join(tree, name)
        write(path, read(path).rstrip("\n") + "\n" + text)
        edits += 1
    for name, place, text in AFTER.findall(page):
        path = os.path.join(tree, name)
        lines = read(path).split("\n")
        found = [i for i, line in enumerate(lines) if line.strip() == place.strip()]
        if len(found) != 1:
            sys.exit(f"docs/{page_name}: `{place}` is {len(found)} lines of {name}, not one")
        lines.insert(found[0] + 1, text.rstrip("\n"))
        write(path, "\n".join(lines))
        edits += 1
    for name, text in CREATE.findall(page):
        write(os.path.join(tree, name), text)
        edits += 1
    if edits != expected:
        sys.exit(f"docs/{page_name} has {edits} edits, not {expected}: the walk or this test has changed")


def run(*command):
    print("+", " ".join(command), flush=True)
    return subprocess.run(command, check=False).returncode


def build(tree):
    jobs = str(os.cpu_count() or 1)
    return run("cmake", "--build", os.path.join(tree, "build"), "--parallel", jobs, "--target", "minrnn")


def learn_maximum(command, tree):
    run_folder = os.path.join(tree, "run")
    if run(command, "train", "maximum", "--out", run_folder, "--quiet"):
        sys.exit("train maximum fails")
    model = os.path.join(run_folder, "model.safetensors")
    scored = subprocess.run([command, "eval", model, "--json"], check=True, capture_output=True, text=True).stdout
    accuracy = json.loads(scored)["accuracy"]
    if not accuracy > 0.9:
        sys.exit(f"the walk's model is right in {accuracy} of the cases; docs/first-task.md promises nearly all")


def main():
    source, compiler = sys.argv[1], sys.argv[2]
    with tempfile.TemporaryDirectory() as tree:
        copy_tree(source, tree)
        carry_out(source, "first-op.md", tree, 7)
        carry_out(source, "first-task.md", tree, 3)
        if run("cmake", "-S", tree, "-B", os.path.join(tree, "build"), "--log-level=WARNING", "-DMINRNN_CUDA=OFF",
               "-DMINRNN_CURL=OFF", "-DMINRNN_TESTS=OFF", "-DCMAKE_C_COMPILER=" + compiler) or build(tree):
            sys.exit("the tree of the pages does not build")
        command = os.path.join(tree, "build", "minrnn")
        for arguments in (("--op", "square_fwd"), ("--op", "square_bwd"), ("--mutate", "--op", "square_bwd")):
            if run(command, "check", *arguments):
                sys.exit(f"check {' '.join(arguments)} fails")
        learn_maximum(command, tree)
        kernel = os.path.join(tree, "src/ops/cpu/op_square.c")
        write(kernel, read(kernel).replace("2 * job->x[i]", "3 * job->x[i]"))
        if build(tree) or run(command, "check", "--quick", "--op", "square_bwd") != 1:
            sys.exit("a broken kernel passes the check")
    print("docs/first-op.md and docs/first-task.md work as written")


if __name__ == "__main__":
    main()
