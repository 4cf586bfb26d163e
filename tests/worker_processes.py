"""The processes of workers that commands in a folder have started."""

import contextlib
import time
from pathlib import Path


def worker_processes(folder):
    """Folders in /proc of the processes that are, or may become, workers of a command in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if b"lockstep.processes.warm_process" in (process / "cmdline").read_bytes():
                found += [process] if (process / "cwd").resolve() == folder.resolve() else []
    return found


def wait_until(true, seconds=120):
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
