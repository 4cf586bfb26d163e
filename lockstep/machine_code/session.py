"""The parent's side of ``lockstep.machine_code.worker``: start it, ask it, get over a variant that kills it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lockstep
from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode, environment_from, kernel_code_from
from lockstep.machine_code.targets import Target
from lockstep.processes.children import kill_group, reap, start
from lockstep.processes.watched import LOST_S

#: Seconds without any event after which a worker counts as hung. Compiling one batch takes less than one of them.
SILENCE = 300.0


class TracingFailed(RuntimeError):
    """The worker does not start, or dies whatever it does; the message ends with what it printed last."""


class TooSlow(RuntimeError):
    """Tracing and compiling took longer than they may."""


@dataclass(frozen=True)
class Tree:
    """Sources of the packages under test.

    Attributes:
        name: as the user called it: "HEAD~1", "."; for messages.
        root: folder that holds the packages.
        packages: top-level packages under test.
        trusted: further packages that they may call without leaving what is traced.
    """

    name: str
    root: Path
    packages: tuple[str, ...]
    trusted: tuple[str, ...] = ()


class Session:
    """Traces and compiles one tree. The process starts when it is needed; ``close`` ends it."""

    def __init__(self, tree: Tree, benchmark_dir: Path, processes: int) -> None:
        """Args: the tree; today's suites; processes that compiling may use at once."""
        self.tree = tree
        self._benchmark_dir = benchmark_dir
        self._processes = processes
        self._process: subprocess.Popen[bytes] | None = None
        self._skip: dict[str, str] = {}
        self._traced: list[dict[str, Any]] = []
        self._stopped = False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trace(self, suites: Iterable[str], target: Target) -> dict[CaseKey, CaseCode]:
        """Code of every case of these suites, nothing compiled.

        Raises:
            TracingFailed: the worker does not come up.
        """
        asked = {"suites": list(suites), "target": target.spell()}
        if any(former["target"] != asked["target"] for former in self._traced):
            self.close()  # what a module asked while it was imported was another target's answer
        while True:
            try:
                event = self._ask({"trace": {**asked, "skip": self._skip}}, "traced")
            except _Died as died:
                self.close()
                if not died.at:
                    raise TracingFailed(f"{self.tree.name}: {died}") from died
                self._skip[died.at] = f"cannot be followed without a GPU ({died})"
                continue
            self._traced.append(asked)
            kernels = {row["identity"]: kernel_code_from(row) for row in event["kernels"]}
            return {
                CaseKey(suite, variant, case): CaseCode(
                    tuple(kernels[one] for one in identities),
                    tuple(host),
                    unknown,
                    environment_from(event["environment"]),
                )
                for suite, variant, case, identities, host, unknown in event["cases"]
            }

    def build(self, identities: Iterable[str], suites: Iterable[str], target: Target) -> dict[str, KernelCode]:
        """Kernels with their machine code, by identity.

        Args:
            identities: of kernels that these suites launch.
            suites: traced first, if this process has not yet.
            target: that they were traced for.

        Raises:
            TracingFailed: the worker does not come up, or dies.
        """
        asked = {"suites": list(suites), "target": target.spell()}
        if asked not in self._traced:
            self.trace(suites, target)
        try:
            event = self._ask({"build": {"target": asked["target"], "identities": list(identities)}}, "built")
        except _Died as died:
            self.close()
            raise TracingFailed(f"{self.tree.name}: {died}") from died
        return {row["identity"]: kernel_code_from(row) for row in event["kernels"]}

    def stop(self) -> None:
        """Have another thread's request fail at once, and every further one; ``close`` still has to be called."""
        self._stopped = True
        process = self._process  # the other thread may close it meanwhile
        if process is not None:
            kill_group(process)

    def close(self) -> None:
        """End the process, if there is one, and whatever its compilers started."""
        process, self._process = self._process, None
        self._traced.clear()
        if process is None:
            return
        reap(process, 0.0)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        self._events.close()
        self._log.close()

    def _start(self) -> subprocess.Popen[bytes]:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the process
        ours, theirs = os.pipe()
        arguments = [sys.executable, "-m", "lockstep.machine_code.worker", "--reply", str(theirs)]
        arguments += ["--benchmarks", str(self._benchmark_dir), "--tree", str(self.tree.root)]
        arguments += ["--processes", str(self._processes), "--packages", *self.tree.packages]
        arguments += ["--trusted", *self.tree.trusted]
        home = str(Path(lockstep.__file__).parents[1])
        path = os.pathsep.join(part for part in (home, os.environ.get("PYTHONPATH", "")) if part)
        # No interpreter, which compiles nothing, and no GPU, which a CUDA context would take memory of.
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "CUDA_VISIBLE_DEVICES": ""}
        process = start(
            arguments,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs,),
            env=environment,
        )
        os.close(theirs)
        self._events = os.fdopen(ours, "rb", buffering=0)
        self._buffer = b""
        return process

    def _ask(self, request: Mapping[str, Any], answer: str) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            _Died: the worker ended or hung.
        """
        at = ""
        if self._process is None:
            self._process = self._start()
            if not self._stopped:
                self._next(at)  # ready
        if self._stopped:
            raise _Died("stopped", "")
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        while (event := self._next(at))["event"] != answer:
            at = f"{event['suite']} {event['variant']}"
        return event

    def _next(self, at: str) -> dict[str, Any]:
        assert self._process is not None
        while b"\n" not in self._buffer:
            if not select.select([self._events], [], [], SILENCE)[0]:
                raise _Died(f"hung for {SILENCE:g} s", at)
            chunk = self._events.read(1 << 20)
            if not chunk:
                code = reap(self._process, LOST_S)
                how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
                last = self._last_words()
                raise _Died(f"{how}: {last}" if last else how, at)
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        event: dict[str, Any] = json.loads(line)
        return event

    def _last_words(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4096))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


class _Died(RuntimeError):
    """The worker is gone; ``at`` is the "suite variant" that it was tracing, or ""."""

    def __init__(self, how: str, at: str) -> None:
        super().__init__(how)
        self.at = at
