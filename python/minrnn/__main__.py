"""python -m minrnn: the command. It is in the package, or else on the PATH."""
import os
import shutil
import sys


def _is_script(path):
    """Whether a file is the script that pip makes, which calls this module."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def command():
    """The path of the command, or None."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "minrnn")
    if os.access(here, os.X_OK):
        return here
    found = shutil.which("minrnn")
    return None if not found or _is_script(found) else found


def main():
    program = command()
    if not program:
        sys.exit("minrnn: the command is not in this installation; build it with `make` and put it on the PATH")
    os.execv(program, ["minrnn", *sys.argv[1:]])


if __name__ == "__main__":
    main()
