"""Where the command `minrnn` is: in the package, or else on the PATH."""
import os
import shutil


def _is_script(path):
    """Whether a file is the script that pip makes, which calls this package."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def command():
    """The path of the command, or None."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "minrnn")
    if os.access(here, os.X_OK):
        return here
    found = shutil.which("minrnn")
    return None if not found or _is_script(found) else found
