"""Stop a process with all its descendants, and prove that none of them ran while they were stopped.

A stopped process can wake itself: a POSIX timer may send SIGCONT. So the processor time of every process is read when
all threads have stopped, and again before they continue.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import clock_gettime, monotonic, sleep

#: Seconds that all threads may take to stop. A thread in a driver's call stops when the call returns.
_STOP_S = 20.0

#: States of a thread that does not run (proc(5)): stopped, traced, zombie, dead.
_STILL = "TtZX"


class Unstoppable(RuntimeError):
    """A process does not stop, or it starts others faster than they can be stopped."""


def stop(root: int) -> dict[int, float]:
    """Stop ``root`` and descendants; return processor seconds by id. Raise ``Unstoppable`` if one runs after
    ``_STOP_S``.
    """
    deadline = monotonic() + _STOP_S
    before: set[int] = set()
    while monotonic() < deadline:
        processes = set(descendants(root))
        moving = [process for process in processes if _moves(process)]
        if not moving and processes == before:
            return processor_s(processes)
        for process in moving:
            _signal(process, signal.SIGSTOP)
        before = processes
        sleep(1e-4)
    raise Unstoppable("its processes do not stop")


def resume(stopped: Iterable[int]) -> None:
    """Let the processes continue that ``stop`` stopped."""
    for process in stopped:
        _signal(process, signal.SIGCONT)


def ran_since(root: int, stopped: dict[int, float]) -> str:
    """Return how ``root`` or a descendant ran since ``stop`` returned ``stopped``, as the end of a sentence, or ""."""
    now = processor_s(set(descendants(root)))
    if more := now.keys() - stopped.keys():
        return f"started {len(more)} processes while it was stopped"
    worked = sum(seconds - stopped[process] for process, seconds in now.items())
    return f"worked for {worked * 1e3:.3g} ms while it was stopped" if worked > 0 else ""


def descendants(root: int) -> list[int]:
    """Return the ids of ``root`` and of all processes below it."""
    children: dict[int, list[int]] = {}
    for process, fields in _processes():
        children.setdefault(int(fields[1]), []).append(process)
    found, pending = [root], [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def resident_bytes(root: int) -> int:
    """Return the memory that ``root`` and its descendants use. Shared memory counts once for each process."""
    pages = 0
    for process in descendants(root):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_s(processes: set[int]) -> dict[int, float]:
    """Return the processor time in seconds of all threads of each process, those that have ended included."""
    seconds = {}
    for process in processes:
        with contextlib.suppress(OSError):
            # A process's clock id is computed from its id: ~id and CPUCLOCK_SCHED (linux/posix-timers.h).
            seconds[process] = clock_gettime((~process << 3) | 2)
    return seconds


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield each process's id, and the fields of its ``stat`` from the state on (proc(5))."""
    for folder in Path("/proc").glob("[0-9]*"):
        if fields := _fields(folder):
            yield int(folder.name), fields


def _fields(folder: Path) -> list[str]:
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _moves(process: int) -> bool:
    """Return whether a thread of the process may run."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return False
    return any(fields[0] not in _STILL for fields in map(_fields, threads) if fields)


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)
