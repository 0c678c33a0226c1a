"""Contexts: a device and its threads. Most programs never make one; each device's is made when it is first needed."""
import os
import threading

from . import _core, errors
from .arrays import count, flag

_lock = threading.Lock()
_shared = {}


def context(device="cpu", threads=0, bf16=False, exact=False):
    """The context of a device, shared by all that ask for the same.

    >>> context("cpu", threads=1).describe()["threads"]
    1
    """
    if not isinstance(device, str):
        raise errors.InvalidArgument(f"device: must be a text such as \"cpu\" or \"cuda\", not {device!r}")
    wanted = (device, count(threads, "threads", 0, 4096), flag(bf16, "bf16"), flag(exact, "exact"))
    found = _shared.get(wanted)
    if found is None:
        with _lock:
            found = _shared.get(wanted)
            if found is None:
                found = _shared[wanted] = _core.context_new(*wanted)
    return found


def _forget_gpus():
    """After a fork a CPU's threads start anew by themselves, but a GPU cannot be used by the child."""
    global _lock
    _lock = threading.Lock()
    for wanted in [wanted for wanted in _shared if wanted[0].startswith(("cuda", "auto"))]:
        _lost.append(_shared.pop(wanted))  # never freed: the child may not touch the GPU


_lost = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_gpus)
