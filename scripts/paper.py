#!/usr/bin/env python3
"""The whole comparison with the paper, cell by cell, from the results of `minrnn reproduce`.

RESULTS: folders with NAME.json, divided by colons. OUT (docs/results) gets paper.json, with every cell of the paper's
tables, and paper.md, where the cells that can be run have a line and all others of a table share one.
"""
import argparse
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True  # the source tree may be read-only
from paper_cells import compare
from paper_measured import Measured
from paper_page import page
from paper_readme import claims, with_claims
from paper_rows import groups_of, read_results
from paper_text import command

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def write(path, text):
    """In one step: a reader finds the old file or the new one."""
    folder, name = os.path.split(path)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder or ".", prefix=name, delete=False) as file:
        try:
            file.write(text)
            file.close()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise


def as_json(cell):
    return dict(cell, command=command(cell["ours"]).replace("`", ""))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="RESULTS[:MORE…]")
    parser.add_argument("out", metavar="OUT", nargs="?", default=os.path.join(ROOT, "docs", "results"))
    parser.add_argument("--readme", metavar="FILE", help="write the claims in this page again, between its two marks")
    return parser.parse_args()


def main():
    asked = arguments()
    folders, out = asked.results.split(":"), asked.out
    for folder in folders:
        if not os.path.isdir(folder):
            sys.exit(f"paper.py: {folder}: is no folder of results")
    with open(os.path.join(ROOT, "data", "paper-tables.json"), encoding="utf-8") as file:
        tables = json.load(file)
    results = read_results(folders)
    groups, measured = groups_of(results.rows), Measured(results.rows)
    found = compare(groups, measured, tables, results.tried)
    cells, added, _ = found
    target = asked.readme
    try:
        if target:
            with open(target, encoding="utf-8") as file:
                readme = with_claims(file.read(), target, claims(cells, measured))
        target = out
        os.makedirs(out, exist_ok=True)
        data = {"cells": [as_json(c) for c in cells], "added": [as_json(c) for c in added], "groups": groups}
        write(os.path.join(out, "paper.json"), json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        write(os.path.join(out, "paper.md"), page(found, results, groups, tables, folders, out))
        if asked.readme:
            target = asked.readme
            write(target, readme)
    except OSError as error:
        sys.exit(f"paper.py: {target}: cannot be read or written ({error.strerror})")


if __name__ == "__main__":
    main()
