"""python -m minrnn: the command. It is in the package, or else on the PATH."""
import os
import shutil
import sys


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "minrnn")
    command = here if os.access(here, os.X_OK) else None
    if not command:
        found = shutil.which("minrnn")
        # the script that pip makes calls this function: it is not the command
        command = found if found and os.path.realpath(found) != os.path.realpath(sys.argv[0]) else None
    if not command:
        sys.exit("minrnn: the command is not in this installation; build it with `make` and put it on the PATH")
    os.execv(command, ["minrnn", *sys.argv[1:]])


if __name__ == "__main__":
    main()
