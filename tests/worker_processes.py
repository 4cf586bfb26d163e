"""The processes of workers that commands in a folder have started."""

import contextlib
import os
import time
from pathlib import Path


def worker_processes(folder):
    """Folders in /proc of the processes that are, or may become, workers of a command in this folder.

    Those that this process started itself, for verbs that it ran, wait for its next verb and do not count.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if b"lockstep.processes.warm_process" in (process / "cmdline").read_bytes():
                here = (process / "cwd").resolve() == folder.resolve()
                found += [process] if here and not _started_here(process) else []
    return found


def _started_here(process):
    """Return whether this process started the leader of a process's session."""
    with contextlib.suppress(FileNotFoundError):  # the leader ended
        return int(_fields(Path("/proc") / _fields(process)[3])[1]) == os.getpid()
    return False


def _fields(process):
    """Return the fields of a process's ``stat`` behind its name: state, parent, group, session, …"""
    return (process / "stat").read_text().rpartition(")")[2].split()


def wait_until(true, seconds=120):
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
