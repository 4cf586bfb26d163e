"""Start processes that end when their parent ends, however it ends, and take their own children with them.

Three measures, because none of them covers every way of dying:

- The kernel kills the child when its parent ends (``PR_SET_PDEATHSIG`` of prctl(2)), also by SIGKILL. A Python child
  asks for that itself, with ``end_with_parent``; other programs are started by setpriv(1), which asks for them.
- The signal comes when the parent's *thread* that forked the child ends, not its process. ``start`` therefore forks in
  a thread that lives as long as the process. ``run`` waits in the thread that forks.
- Each process leads a group of its own. ``reap`` and a time-out kill the whole group, for example a compiler that the
  child started. A Python child forks a guard, which kills the group when the child ends in any other way.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

#: Environment variable that holds the process id of a child's parent.
PARENT = "LOCKSTEP_PARENT"

_PR_SET_PDEATHSIG = 1  # prctl(2)

#: Niceness of a process that stands back: it has a tenth of the time of another one that wants the same processor.
_STAND_BACK = 10

#: Seconds between two looks at the parent, where the kernel has no signal for its end.
_LOOK_S = 0.5


def end_with_parent(parent: int | None = None) -> None:
    """Let this process be killed when its parent ends, from now on.

    Call it first in a process that ``start``, ``run`` or ``pool`` started, before slow imports.

    Args:
        parent: process id of the parent; by default what ``start`` and ``run`` say, or the present parent. A process
            whose parent has ended already exits with status 1.
    """
    # Not left to grandchildren, whose parent is another process.
    given = os.environ.pop(PARENT, "")
    expected = parent or int(given or os.getppid())
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None or prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        threading.Thread(target=_watch, args=(expected,), daemon=True).start()
    if os.getppid() != expected:
        os._exit(1)
    if prctl is not None and os.getpgrp() == os.getpid():
        _guard(os.getpid(), prctl)


def stand_back() -> None:
    """Let other processes have the processor before this one and its children, from now on.

    Call it in a process that ``start`` or ``run`` started. Linux schedules the session of such a process as one group
    (sched(7), autogroup) and ignores nice(2) beside other groups, so the group is given the same number.
    """
    os.nice(_STAND_BACK)
    # Not where Linux has no such groups.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_STAND_BACK))


def start(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that leads a session of its own; end it with ``reap``.

    Args:
        command: a Python program calls ``end_with_parent`` first.
        options: of ``subprocess.Popen``.

    Raises:
        OSError: the program cannot be started.
    """
    process: subprocess.Popen[bytes] = _starter(functools.partial(_popen, command, **options))
    return process


def run(
    command: Sequence[str | Path], *, given: Any = None, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a process to its end and capture what it prints; kill its whole group if this call is cut short.

    Args:
        command: a Python program calls ``end_with_parent`` first.
        given: for its standard input, which is empty by default; text if ``options`` say so.
        timeout: seconds; ``None`` waits for ever.
        options: of ``subprocess.Popen``.

    Raises:
        OSError: the program cannot be started.
        subprocess.TimeoutExpired: it took longer; its group is dead.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with _popen(command, stdin=subprocess.DEVNULL if given is None else subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(given, timeout)
        except BaseException:
            # Killed, its pipes close: leaving the block waits for nothing.
            kill_group(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def reap(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
    """Wait for a process of ``start``, kill what is left of its group, and return its exit status.

    Args:
        process: the leader of its group.
        timeout: seconds after which the leader is killed too; ``None`` waits for ever.
    """
    pause, until = 0.001, math.inf if timeout is None else time.monotonic() + timeout
    while process.returncode is None and not ended(process) and time.monotonic() < until:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    kill_group(process)
    return process.wait()


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process of ``start`` or ``run`` and whatever it started, unless it was reaped already."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def tied(command: Sequence[str]) -> list[str]:
    """Return a command that ends with the thread that starts it, for programs and libraries that are not ours.

    It is the command as it is where there is no such program, or no setpriv(1) of util-linux.
    """
    if _setpriv() is None or shutil.which(command[0]) is None:
        return list(command)
    return [str(_setpriv()), "--pdeathsig", "KILL", "--", *command]


def pool(
    processes: int,
    method: Literal["fork", "spawn"] = "fork",
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
) -> ProcessPoolExecutor:
    """Return an executor whose processes end with this one. Use it in one thread, which submits and waits.

    Args:
        processes: how many.
        method: "fork" has all that this process has, and is for processes with one thread; "spawn" begins anew.
        initializer: called in each process with ``initargs``.
        initargs: of the initializer.
    """
    context = multiprocessing.get_context(method)
    return ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(initializer, initargs))


def _begin(initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> None:
    creator = multiprocessing.parent_process()
    end_with_parent(creator.pid if creator else None)
    if initializer is not None:
        initializer(*initargs)


def _popen(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    environment = options.pop("env", None)
    inherited = dict(os.environ if environment is None else environment) | {PARENT: str(os.getpid())}
    words = [str(word) for word in command]
    words = words if words[0] == sys.executable else tied(words)
    return subprocess.Popen(words, env=inherited, start_new_session=True, **options)


@functools.cache
def _setpriv() -> str | None:
    found = shutil.which("setpriv")
    if found is None or subprocess.run([found, "--pdeathsig", "KILL", "true"], capture_output=True).returncode:
        return None  # BusyBox has another one
    return found


def ended(process: subprocess.Popen[Any]) -> bool:
    """Return whether it ended, without reaping it: until then no other process can have its number."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def _guard(leader: int, prctl: Callable[..., int]) -> None:
    """Fork a process that waits for the end of its parent, the leader of its group, and then kills the group."""
    # Blocked already when the signal may come first; the parent's own mask is put back.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if os.fork():
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    # An open pipe would hide the leader's end from whoever reads it, and an open file would hold its lock.
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing
            os.close(int(fd.name))
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGUSR1), 0, 0, 0)
    while os.getppid() == leader:
        signal.sigwait({signal.SIGUSR1})
    os.killpg(leader, signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


class _Starter:
    """Calls functions in one thread, which lives as long as the process."""

    def __init__(self) -> None:
        self.renew()
        # A fork has no thread but its own.
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        """Forget the thread."""
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, function: Callable[[], Any]) -> Any:
        with self._lock:
            if self._thread is None:
                # A daemon: an executor's threads end before functions of ``atexit`` run, and so would the processes.
                self._thread = threading.Thread(target=self._work, name="starter", daemon=True)
                self._thread.start()
        answer: Future[Any] = Future()
        self._jobs.put((function, answer))
        return answer.result()

    def _work(self) -> None:
        while True:
            function, answer = self._jobs.get()
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)


_starter = _Starter()
