"""Where mutants are built: a snapshot of the tree, two builds of it and a folder for every worker."""
import hashlib
import json
import shlex
import shutil
import subprocess
from pathlib import Path

from mutants import harness

PARTS = ("app", "src", "include", "tests", "recipes", "data", "scripts", "examples", "CMakeLists.txt")
OPTIONS = ("-DMINRNN_ONE_LIBRARY=ON", "-DMINRNN_CUDA=OFF", "-DMINRNN_WERROR=OFF",
           "-DCMAKE_SKIP_BUILD_RPATH=ON")
LIBRARY = "libminrnn_app.so"


def files_of(tree):
    for part in PARTS:
        top = tree / part
        for path in sorted([top] if top.is_file() else top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(tree)


def digest_of(tree):
    """A hash of all that decides a verdict: what the builds and the tests read."""
    total = hashlib.sha256()
    for name in files_of(tree):
        if not str(name).startswith(("tests/mutants", "tests/mutate.py")):
            total.update(f"{name}\0".encode() + hashlib.sha256((tree / name).read_bytes()).digest())
    return total.hexdigest()[:16]


def snapshot(tree, copy):
    """Makes `copy` the same as the tree. Files that are the same already keep their times: little is built again."""
    names = set(files_of(tree))
    for name in names:
        source, target = tree / name, copy / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for name in set(files_of(copy)) - names if copy.exists() else ():
        (copy / name).unlink()


def build(copy, folder, jobs, *options):
    configure = ["cmake", "-S", str(copy), "-B", str(folder), "-G", "Unix Makefiles", "--log-level=WARNING"]
    configure += [*OPTIONS, *options]
    make = ["cmake", "--build", str(folder), "--parallel", str(jobs), "--target", "minrnn", "tests"]
    for command in (configure, make):
        status, output = harness.run_tool(command)
        if status:
            raise SystemExit(f"mutants: {' '.join(command)}:\n{output[-6000:]}")


class Builder:
    """How the program's build compiles a file and links; read from CMake's own files."""

    def __init__(self, copy, folder):
        self.copy, self.folder = copy, folder
        self.compile = {}
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            source = Path(entry["file"])
            if source.is_relative_to(copy) and not source.is_relative_to(copy / "tests"):
                self.compile[str(source.relative_to(copy))] = shlex.split(entry["command"])
        self.link = {}
        for name in ("minrnn_app", "minrnn"):
            self.link[name] = shlex.split((folder / f"CMakeFiles/{name}.dir/link.txt").read_text())

    def object_of(self, name):
        command = self.compile[name]
        return command[command.index("-o") + 1]


class Worker:
    """One worker's copy of the sources, and what it builds from them."""

    def __init__(self, number, folder, builder):
        self.number, self.folder, self.builder = number, folder, builder
        self.tree, self.out = folder / "tree", folder / "out"
        for part in ("app", "src", "include"):
            snapshot_part(builder.copy / part, self.tree / part)
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)

    def compile(self, name, whole, target):
        """Compiles a file with this text; None, or the path of its object."""
        (self.tree / name).write_text(whole)
        command = self.builder.compile[name]
        command = command[next(i for i, word in enumerate(command) if not word.endswith("ccache")):]
        own = [word.replace(str(self.builder.copy), str(self.tree)) for word in command if word not in ("-g", "-O3")]
        own[own.index("-o") + 1] = str(target)
        done = subprocess.run([*own, "-O1", "-w"], cwd=self.builder.folder, capture_output=True, timeout=300)
        return target if done.returncode == 0 else None

    def link(self, name, changed):
        """Links the library (or, for main(), the command) with one object changed; whether it could be."""
        target = "minrnn" if name == "app/commands/main.c" else "minrnn_app"
        result = self.out / (LIBRARY if target == "minrnn_app" else "minrnn")
        command, replaced = [], self.builder.object_of(name)
        for word in self.builder.link[target]:
            command.append(str(changed) if word == replaced else word)
        command[command.index("-o") + 1] = str(result)
        if target == "minrnn":
            shutil.copy(self.builder.folder / LIBRARY, self.out / LIBRARY)
        else:
            shutil.copy(self.builder.folder / "minrnn", self.out / "minrnn")
        done = subprocess.run([*command, "-Wl,--strip-debug"], cwd=self.builder.folder, capture_output=True)
        return done.returncode == 0


def snapshot_part(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
