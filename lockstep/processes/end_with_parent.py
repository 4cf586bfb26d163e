"""Start child processes that end, with all their own children, as soon as their parent ends in any way.

No single mechanism covers every case, so three are combined:

- The kernel kills the child when its parent ends (``PR_SET_PDEATHSIG`` of prctl(2)), even by SIGKILL. A Python child
  requests that signal itself with ``end_with_parent``; other programs are started by setpriv(1), which requests it.
- The signal comes when the *thread* that forked the child ends, not when its process ends. ``start`` therefore forks in
  a thread that lives as long as the process. ``run`` waits in the thread that forks.
- Each process leads its own process group. ``reap`` and a time-out kill the whole group, for example a compiler that
  the child started. A Python child forks a guard process, which kills the group if the child ends in any other way.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
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
from typing import Any

#: Environment variable that holds the process id of a child's parent.
PARENT = "LOCKSTEP_PARENT"

_PR_SET_PDEATHSIG = 1  # prctl(2)

#: Seconds between two checks that the parent still runs, on kernels that send no signal when the parent ends.
_LOOK_S = 0.5


def end_with_parent(parent: int | None = None) -> None:
    """Make the kernel kill this process when its parent ends.

    Call it first in a process that ``start``, ``run`` or ``pool`` started, before slow imports. If the parent has ended
    already, this process exits with status 1. ``parent``: process id of the parent; by default the id that ``start`` or
    ``run`` passed, or else the present parent.
    """
    # Removed, so that grandchildren, whose parent is another process, do not inherit the variable.
    given = os.environ.pop(PARENT, "")
    expected = parent or int(given or os.getppid())
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None or prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        threading.Thread(target=_watch, args=(expected,), daemon=True).start()
    if os.getppid() != expected:
        os._exit(1)
    if prctl is not None and os.getpgrp() == os.getpid():
        _guard(os.getpid(), prctl)


def start(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that leads a session of its own; end it with ``reap``. Raise ``OSError`` if it cannot be started.

    A Python program must call ``end_with_parent`` first.
    """
    process: subprocess.Popen[bytes] = _starter(functools.partial(_popen, command, **options))
    return process


def run(
    command: Sequence[str | Path], *, given: Any = None, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a process to its end and return its output; kill its whole process group if this call is interrupted.

    Args:
        given: the program's standard input, empty by default; text if ``options`` request text mode.
        timeout: seconds; ``None`` waits without limit.

    Raises:
        OSError: the program cannot be started.
        subprocess.TimeoutExpired: the process took longer than ``timeout``; its group has been killed.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with _popen(command, stdin=subprocess.DEVNULL if given is None else subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(given, timeout)
        except BaseException:
            # Killing the process closes its pipes, so leaving the block does not wait for them.
            kill_group(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def reap(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
    """Wait until a process of ``start`` ends, kill the remaining processes of its group, and return its exit status.

    ``timeout``: seconds after which the leader is killed too; ``None`` waits without limit.
    """
    pause, deadline = 0.001, math.inf if timeout is None else time.monotonic() + timeout
    while process.returncode is None and not ended(process) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    kill_group(process)
    return process.wait()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process of ``start`` or ``run`` and its whole group, unless the process was already reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def tied(command: Sequence[str]) -> list[str]:
    """Wrap a command so that the kernel kills its process when the thread that starts the process ends.

    This is for programs that cannot call ``end_with_parent``. The command is returned unchanged if its program does not
    exist, or if util-linux's setpriv(1) is missing.
    """
    if _setpriv() is None or shutil.which(command[0]) is None:
        return list(command)
    return [str(_setpriv()), "--pdeathsig", "KILL", "--", *command]


def pool(processes: int) -> ProcessPoolExecutor:
    """Return an executor whose worker processes end when this process ends.

    The workers are copies of this process, which must have a single thread.

    Create the executor, use it and wait for its results in one thread: its processes end with the thread that uses it.
    """
    context = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(processes, mp_context=context, initializer=_begin)


def _begin() -> None:
    creator = multiprocessing.parent_process()
    end_with_parent(creator.pid if creator else None)


def _popen(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    environment = options.pop("env", None)
    inherited = dict(os.environ if environment is None else environment) | {PARENT: str(os.getpid())}
    words = [str(word) for word in command]
    words = words if words[0] == sys.executable else tied(words)
    return subprocess.Popen(words, env=inherited, start_new_session=True, **options)


@functools.cache
def _setpriv() -> str | None:
    path = shutil.which("setpriv")
    if path is None or subprocess.run([path, "--pdeathsig", "KILL", "true"], capture_output=True).returncode:
        return None  # BusyBox has a different setpriv
    return path


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended. The process is not reaped, so that its process id is not reused yet."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def _guard(leader: int, prctl: Callable[..., int]) -> None:
    """Fork a process that waits for this process to end and then kills the process group."""
    # Block the signal before it can arrive; the parent's own mask is restored afterwards.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if os.fork():
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    # An inherited pipe would hide the leader's end from its reader, and an inherited file would hold its lock.
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed already
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
    """Calls functions in one thread that never ends, because a child ends with the thread that forked it."""

    def __init__(self) -> None:
        self.renew()
        # A forked process has only the thread that forked, so it needs a new thread.
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        """Forget the thread that forks children, so that the next call starts a new one: a fork copies no threads."""
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, function: Callable[[], Any]) -> Any:
        with self._lock:
            if self._thread is None:
                # A daemon thread: Python would end an executor's threads, and so the child processes, before it runs
                # ``atexit`` functions.
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
# A forked process must not collect its parent's garbage: a database connection would wait for threads that a fork does
# not copy.
os.register_at_fork(after_in_child=gc.freeze)
