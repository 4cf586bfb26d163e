"""Start the process of a worker with its pipes, or take one that has imported torch already."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

from lockstep.processes.end_with_parent import ended, reap, start

#: Program of the processes that have imported torch.
WARM = "lockstep.processes.warm_process"

#: Variable with the modules that these processes import besides torch and Triton.
PRELOAD = "LOCKSTEP_PRELOAD"

#: The folder from which Lockstep is imported, for ``PYTHONPATH`` of workers.
HOME = Path(__file__).parents[2]

#: Seconds that a killed process may take to end: the driver may block it for a while.
LOST_S = 30.0

#: Maximum number of processes that wait for their next worker. Each holds about 0.2 GB of memory for torch.
MOST_IDLE = min(16, len(os.sched_getaffinity(0)))

#: Beginnings of the names of variables that nothing reads before a worker's own code runs. Processes that have imported
#: torch with other values of all other variables are not used again.
_READ_LATE = ("LOCKSTEP_", "CUDA_VISIBLE_DEVICES", "TRITON_CACHE_DIR", "PYTEST_")


class Started:
    """A process with its pipes.

    Args:
        arguments: its arguments; the file descriptor on which it sends events precedes them, after ``--reply``.
        pass_fds: further file descriptors that it inherits.
        folders: folders of packages that precede all others on its path.

    Attributes:
        process: the process; requests go to its standard input.
        log: file that holds what the process prints.
        events: file descriptor from which to read the events that it sends.
        reply: the descriptor on which the process sends them.
        path: its ``PYTHONPATH``.
    """

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        folders: Sequence[Path] = (),
    ) -> None:
        self.environment = dict(environment)
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the process
        self.events, write_end = os.pipe()
        self.reply = write_end
        parts = [*map(str, folders), str(HOME), environment.get("PYTHONPATH", "")]
        self.path = os.pathsep.join(part for part in parts if part)
        self.process = start(
            [*command, "--reply", str(write_end), *arguments],
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end, *pass_fds),
            env={**environment, "PYTHONPATH": self.path, "PYTHONSAFEPATH": "1"},
        )
        os.close(write_end)

    def send(self, request: Mapping[str, object]) -> None:
        """Send a request; ``BrokenPipeError`` if the process has ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def end(self, patience_s: float) -> None:
        """Close the pipes; kill the process if it does not end within ``patience_s`` seconds."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended
            self.process.stdin.close()
        reap(self.process, patience_s)
        self.drain()
        os.close(self.events)
        self.log.close()

    def drain(self) -> None:
        """Read what is left of the events until the last process that may send any has ended, a fork for example."""
        deadline = monotonic() + LOST_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.events, selectors.EVENT_READ)
            while selector.select(deadline - monotonic()) and os.read(self.events, 1 << 16):
                pass


class WarmProcesses:
    """The idle processes of ``lockstep.processes.warm_process`` that this process has started."""

    def __init__(self) -> None:
        self._idle: list[Started] = []
        self._lock = threading.Lock()
        # A forked process inherits the pipes, but the processes are not its children.
        os.register_at_fork(after_in_child=self._forget)

    def become(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Started:
        """Let an idle process, or a new one, become a worker."""
        with self._lock:
            early = _read_early(environment)
            fitting = [one for one in self._idle if _read_early(one.environment) == early and not ended(one.process)]
            if fitting:
                self._idle.remove(fitting[-1])
        started = fitting[-1] if fitting else Started([sys.executable, "-m", WARM], [], environment)
        variables = {**environment, "PYTHONPATH": started.path, "PYTHONSAFEPATH": "1"}
        words = ["--reply", str(started.reply), *arguments]
        # If the process has ended, the caller notices when it waits for an event.
        with contextlib.suppress(BrokenPipeError):
            started.send({"module": module, "arguments": words, "environment": variables, "folder": str(Path.cwd())})
        return started

    def keep(self, started: Started) -> None:
        """Keep a process whose worker has ended, for the next worker."""
        with self._lock:
            self._idle.append(started)
            surplus = self._idle[:-MOST_IDLE]
            del self._idle[:-MOST_IDLE]
        for one in surplus:
            one.end(0.0)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._idle = []


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_READ_LATE)}
