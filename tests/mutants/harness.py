"""Runs one test of a build as ctest would, with limits on time, memory and file size, and a TMPDIR of its own."""
import atexit
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass

ADDRESSES = 16 << 30  # bytes of addresses a process may have
FILE = 7 << 30  # bytes a file may have: cli_hostile makes one of 6 GB (sparse)
LEAVE_OUT = ("house", "api_doc", "tasks_doc", "cli_install", "cli_examples", "slow_")  # not about the one library
ending = threading.Event()
live = set()  # the processes that run now, each with a group of its own


@dataclass(frozen=True)
class Test:
    name: str
    command: tuple
    environment: dict
    skip: int  # the exit status that means: cannot run here


def tests_of(build):
    """The tests of a build folder, by ctest's own list."""
    command = ["ctest", "--test-dir", str(build), "--show-only=json-v1"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    tests = []
    for entry in json.loads(listed.stdout)["tests"]:
        if entry["name"].startswith(LEAVE_OUT) or "command" not in entry:
            continue
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        environment = dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
        tests.append(Test(entry["name"], tuple(entry["command"]), environment, properties.get("SKIP_RETURN_CODE", -1)))
    return tests


def limits(cpus, addresses):
    def set_them():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        if addresses:
            resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))
        if cpus:
            os.sched_setaffinity(0, cpus)
    return set_them


def run(test, library, timeout, cpus=None, extra=None, addresses=ADDRESSES):
    """(verdict, seconds): passed, failed, skipped or hung. `library` is the folder of the shared library to test."""
    private = tempfile.mkdtemp()
    paths = os.pathsep.join(filter(None, (str(library), os.environ.get("LD_LIBRARY_PATH"))))
    own = {"LD_LIBRARY_PATH": paths, "TMPDIR": private, "HOME": private, **(extra or {})}
    nothing = subprocess.DEVNULL
    began = time.monotonic()
    process = subprocess.Popen(test.command, cwd=private, env={**os.environ, **test.environment, **own},
                               stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True,
                               preexec_fn=limits(cpus, addresses))
    live.add(process)
    if ending.is_set():
        kill_group(process)
    try:
        status = process.wait(timeout)
        verdict = "passed" if status == 0 else "skipped" if status == test.skip else "failed"
    except subprocess.TimeoutExpired:
        verdict = "hung"
    finally:
        end_group(process)
        shutil.rmtree(private, ignore_errors=True)
    return verdict, time.monotonic() - began


def run_tool(command):
    """(exit status, output) of a build step, which ends with us."""
    pipe, same = subprocess.PIPE, subprocess.STDOUT
    process = subprocess.Popen(command, stdout=pipe, stderr=same, text=True, start_new_session=True)
    live.add(process)
    output = process.communicate()[0]
    live.discard(process)
    return process.returncode, output


def kill_group(process):
    """Ends what the test left running, too."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end_group(process):
    kill_group(process)
    process.wait()
    live.discard(process)


def tidy(folder):
    """Temporary folders go below this one, which is emptied now and when the program ends, killed or not."""
    def at_end(number=None, _=None):
        ending.set()
        for process in list(live):
            kill_group(process)
        shutil.rmtree(folder, ignore_errors=True)
        if number:
            os._exit(128 + number)

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tempfile.tempdir = str(folder)
    atexit.register(at_end)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, at_end)
