"""The type stubs are those of the functions: every public name, with the same parameters in the same order."""
import ast
import glob
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

import minrnn


def parameters(function):
    """Names in order, with * where only keywords follow, as a stub has them."""
    a = function.args
    names = [x.arg for x in a.posonlyargs + a.args]
    names += [f"*{a.vararg.arg}"] if a.vararg else ["*"] if a.kwonlyargs else []
    return names + [x.arg for x in a.kwonlyargs] + ([f"**{a.kwarg.arg}"] if a.kwarg else [])


class Stubs(unittest.TestCase):
    def check(self, stub, source, where):
        """Public functions and classes of two syntax trees."""
        kinds = ast.FunctionDef, ast.ClassDef
        theirs, ours = ({node.name: node for node in tree.body if isinstance(node, kinds)} for tree in (source, stub))
        public = {name for name in theirs if not name.startswith("_") or name == "__init__"}
        self.assertEqual(public - ours.keys() - {"__init__"}, set(), f"{where}: not in the stub")
        self.assertEqual(ours.keys() - theirs.keys() - {"__init__", "__call__"}, set(), f"{where}: in the stub alone")
        for name in public & ours.keys():
            if isinstance(theirs[name], ast.ClassDef):
                self.check(ours[name], theirs[name], f"{where}.{name}")
            else:
                got = [p for p in parameters(theirs[name]) if not p.startswith("_")]
                self.assertEqual(parameters(ours[name]), got, f"{where}.{name}")

    def test_every_stub(self):
        folder, seen = os.path.dirname(minrnn.__file__), 0
        for path in glob.glob(os.path.join(folder, "[!_]*.pyi")):
            trees = []
            for name in path, path[:-1]:
                with open(name, encoding="utf-8") as file:
                    trees.append(ast.parse(file.read()))
            self.check(*trees, os.path.basename(path))
            seen += 1
        self.assertGreater(seen, 4)

    def test_the_extension(self):
        core = importlib.import_module("minrnn._core")
        with open(os.path.join(os.path.dirname(minrnn.__file__), "_core.pyi"), encoding="utf-8") as file:
            names = {node.name for node in ast.parse(file.read()).body if hasattr(node, "name")}
        self.assertEqual(names, {name for name in dir(core) if not name.startswith("_")})

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "needs mypy")
    def test_what_mypy_says(self):
        right = """
            import pathlib
            import minrnn
            model = minrnn.Model(vocab="bytes", layers=1, betas=(0.9, 0.99))
            for path in "a", b"a", pathlib.Path("a"):
                model.save(path)
                minrnn.load(path), minrnn.read_log(path), minrnn.from_state_dict(path)
            model.encode(b"a"), model.score([1, 2]), model.stream().feed("a"), model.tensor("a", copy=False)
            model.fit([{"ids": [[1]], "target": [[1]]}], callback=lambda result: result.loss < 1)
        """
        wrong = ["minrnn.load(5)", "model.encode([1])", "model.fit(5)", "model.generate(stop=5)",
                 "minrnn.Model(threads='2')"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(textwrap.dedent(right) + "\n".join(wrong) + "\n")
            done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder, path], text=True,
                                  capture_output=True, cwd=folder,
                                  env={**os.environ, "MYPYPATH": os.path.dirname(os.path.dirname(minrnn.__file__))})
        lines = [int(found) for found in re.findall(r"program.py:(\d+): error", done.stdout)]
        first = right.count("\n") + 1
        self.assertEqual(lines, list(range(first, first + len(wrong))), done.stdout)

    def test_all_that_is_offered_is_documented(self):
        for name in minrnn.__all__:
            self.assertTrue(inspect.getdoc(getattr(minrnn, name)), name)


if __name__ == "__main__":
    unittest.main()
