"""python -m minrnn: the command."""
import os
import sys

from .command import command


def main():
    program = command()
    if not program:
        sys.exit("minrnn: the command is not in this installation; build it with `make` and put it on the PATH")
    os.execv(program, ["minrnn", *sys.argv[1:]])


if __name__ == "__main__":
    main()
