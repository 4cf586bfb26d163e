"""Represent a process that the template forked (``lockstep.processes.template``) in the process that requested it."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
from typing import IO

#: Seconds that the template may take to answer. Its imports take long on a busy machine.
_START_S = 120.0

#: A process id or a wait status, as the minder writes them.
NUMBER = struct.Struct("i")


class Forked:
    """A process that a template process forked (``lockstep.processes.template``).

    The class has the part of ``subprocess.Popen`` that ``lockstep.processes.end_with_parent`` needs.

    Attributes:
        pid: id of the process, which leads a session of its own.
        stdin: the pipe to the standard input of the process.
        returncode: as in ``subprocess.Popen``; ``None`` until ``wait`` has returned.
    """

    def __init__(self, stdin: IO[bytes], lifeline: socket.socket) -> None:
        self.stdin, self._lifeline = stdin, lifeline
        self.returncode: int | None = None
        self.pid = self._number(_START_S)

    def ended(self) -> bool:
        """Return whether the process has ended. Its process id is not reused until ``wait`` has returned."""
        return self.returncode is not None or bool(select.select([self._lifeline], [], [], 0)[0])

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process ends, and return its exit status. A negative status is the number of the signal.

        Raises:
            subprocess.TimeoutExpired: the process still runs after ``timeout`` seconds.
        """
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(self._number(timeout))
            except ConnectionError:  # the minder was killed, and the kernel killed the process with it
                self.returncode = -signal.SIGKILL
            self._lifeline.close()  # so that the minder ends
        return self.returncode

    def _number(self, timeout: float | None) -> int:
        if not select.select([self._lifeline], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a fork of the template", timeout or 0.0)
        text = self._lifeline.recv(NUMBER.size)
        if len(text) < NUMBER.size:
            raise ConnectionError("the template process, which forks workers, has ended")
        number: int = NUMBER.unpack(text)[0]
        return number
