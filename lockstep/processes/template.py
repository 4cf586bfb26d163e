"""Start Python processes quickly by forking one process, the template, that has already imported the slow modules.

The template imports modules of the harness and nothing else: no code under test, and no code that starts threads or
opens a GPU. So each fork begins like a new process after its imports, and knows nothing of earlier forks. A third
process, the minder, stands between the template and each fork. The minder is the fork's parent and does not reap the
fork until the caller has received its exit status, so that the process id is not reused.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from lockstep.processes.end_with_parent import PARENT, end_with_parent, reap, start
from lockstep.processes.forked import NUMBER, Forked

#: The folder from which Lockstep is imported, for ``PYTHONPATH`` of the template.
_HOME = Path(__file__).parents[2]

#: Maximum number of file descriptors that a fork inherits besides its standard input and its log.
_MOST_FDS = 16


class Template:
    """A running process that has imported slow modules and forks processes on request. Call ``close`` at the end.

    The constructor returns at once; the template imports its modules while this process continues. The template also
    ends when this process ends.

    Args:
        modules: modules that the template imports. A module that cannot be imported is skipped.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the template
        self._socket, child_end = socket.socketpair()
        self._lock = threading.Lock()
        path = os.pathsep.join(filter(None, [str(_HOME), os.environ.get("PYTHONPATH", "")]))
        with child_end:
            self._process = start(
                [sys.executable, "-m", "lockstep.processes.template", str(child_end.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=(child_end.fileno(),),
                env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            )

    def fork(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes], fds: Sequence[int]
    ) -> Forked:
        """Fork the template and call ``main()`` of a module in the fork.

        Args:
            module: the module; the result of ``main`` is the exit status.
            environment: all variables of the fork. ``PYTHONPATH`` has no effect, because Python already runs.
            log: the fork's standard output and standard error.
            fds: further file descriptors that the fork inherits, under the same numbers.

        Raises:
            ConnectionError: the template has ended.
            subprocess.TimeoutExpired: the template does not answer.
        """
        request = {"module": module, "arguments": list(arguments), "environment": dict(environment), "fds": list(fds)}
        own_end, child_end = socket.socketpair()
        reads, writes = os.pipe()
        try:
            with child_end:
                line = json.dumps(request).encode() + b"\n"
                with self._lock:
                    sent = socket.send_fds(self._socket, [line], [child_end.fileno(), reads, log.fileno(), *fds])
                    self._socket.sendall(line[sent:])
            return Forked(os.fdopen(writes, "wb"), own_end)
        except BaseException as error:
            own_end.close()
            if isinstance(error, BrokenPipeError):
                raise ConnectionError("the template process, which forks workers, has ended") from error
            raise
        finally:
            os.close(reads)

    def close(self) -> None:
        """End the template process and all processes that it forked."""
        if self._log.closed:
            return
        self._socket.close()
        reap(self._process, 0.0)
        self._log.close()


def main() -> int:
    """Import the modules that the command line names, then fork for each request until the socket closes."""
    end_with_parent()
    requests = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()  # see lockstep.processes.import_torch
    for module in sys.argv[2:]:
        # A fork that needs the module reports why it cannot be imported.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.freeze()  # a collection in a fork would copy the pages of these objects
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that minders that end do not become zombies
    template = os.getpid()
    while line := _received(requests):
        request, fds = line
        if os.fork() == 0:
            requests.close()
            _mind(template, request, fds)
        for fd in fds:
            os.close(fd)
    return 0


def _received(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    text, fds, _, _ = socket.recv_fds(requests, 1 << 16, _MOST_FDS + 3)
    while text and not text.endswith(b"\n"):
        text += requests.recv(1 << 16)
    return (json.loads(text), list(fds)) if text else None


def _mind(template: int, request: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    """Run the minder: fork the requested process and send its process id and exit status through the socket ``fds[0]``.

    The minder reaps the process when the caller closes the socket.
    """
    try:
        end_with_parent(template)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        minder, lifeline = os.getpid(), socket.socket(fileno=fds[0])
        pid = os.fork()
        if pid == 0:
            _become(minder, request, fds[1:])
        for fd in fds[1:]:
            os.close(fd)
        lifeline.sendall(NUMBER.pack(pid))
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None, "waitid without WNOHANG waits"
        exited = ended.si_code == os.CLD_EXITED
        with contextlib.suppress(BrokenPipeError):
            lifeline.sendall(NUMBER.pack(ended.si_status << 8 if exited else ended.si_status))
        lifeline.recv(1)  # until the other side closes
    finally:
        os._exit(0)


def _become(minder: int, request: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    """Take on the session, files, variables and arguments of the requested process, then call its ``main``."""
    status = 1
    try:
        os.setsid()
        _take(dict(zip([0, 1, *request["fds"]], fds, strict=True)))
        os.environ.clear()
        os.environ.update(request["environment"], **{PARENT: str(minder)})
        tempfile.tempdir = None  # computed again, because it depends on the environment variables
        module = importlib.import_module(request["module"])
        sys.argv = [str(module.__file__), *request["arguments"]]
        status = module.main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _take(files: Mapping[int, int]) -> None:
    """Give each open descriptor in ``files`` the number that is its key, and close all other descriptors.

    Standard error becomes a copy of standard output.
    """
    above = max(files) + 1
    copies = {number: fcntl.fcntl(fd, fcntl.F_DUPFD, above) for number, fd in files.items()}
    for name in list(Path("/proc/self/fd").iterdir()):
        if int(name.name) > 2 and int(name.name) not in copies.values():
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed already
                os.close(int(name.name))
    for number, fd in copies.items():
        os.dup2(fd, number)
        os.close(fd)
    os.dup2(1, 2)


if __name__ == "__main__":
    sys.exit(main())
