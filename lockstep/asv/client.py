"""The parent's side of a worker: start it, ask it, notice when it hangs or dies."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lockstep
from lockstep.record import Record, record_from

#: Exit status of a worker whose CUDA context broke. Here, because a module that is run by its name must
#: not have been imported by its package before: Python warns, and the warning is taken for last words.
CONTEXT_LOST = 70


class WorkerDied(RuntimeError):
    """The worker hung, was killed or broke; ``variant`` is what it was checking ("" while timing all).

    Attributes:
        variant: the culprit, if one variant was running alone.
        how: a line for people: "hung for 120 s", "killed by SIGSEGV", …
        at_start: it never came up, so another one would not either.
    """

    def __init__(self, variant: str, how: str, *, at_start: bool = False) -> None:
        super().__init__(f"{variant or 'worker'}: {how}")
        self.variant = variant
        self.how = how
        self.at_start = at_start


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker measures.

    Attributes:
        checkout: tree whose packages are under test.
        packages: top-level packages imported from there.
        benchmark_dir: today's suites.
        quick: one short look only.
    """

    checkout: Path
    packages: tuple[str, ...]
    benchmark_dir: Path
    quick: bool = False


class Worker:
    """A running worker. ``close`` it, or let its standard input end with this process."""

    def __init__(self, spec: WorkerSpec, silence_s: float) -> None:
        """Start it and wait until it is ready.

        Args:
            spec: what to measure.
            silence_s: seconds without any event after which it counts as hung.

        Raises:
            WorkerDied: it did not come up; ``how`` ends with what it printed last.
        """
        self.silence_s = silence_s
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the worker
        ours, theirs = os.pipe()
        arguments = [sys.executable, "-m", "lockstep.asv.worker", "--reply", str(theirs)]
        arguments += ["--benchmarks", str(spec.benchmark_dir), "--checkout", str(spec.checkout)]
        arguments += ["--packages", *spec.packages, *(["--quick"] if spec.quick else [])]
        home = str(Path(lockstep.__file__).parents[1])
        path = os.pathsep.join(part for part in (home, os.environ.get("PYTHONPATH", "")) if part)
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs,),
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            # A group of its own, so that whatever its compilers start dies with it.
            start_new_session=True,
        )
        os.close(theirs)
        self._events = ours
        self._buffer = b""
        self._stage, self._variant = "start", ""
        self.host: dict[str, str] = self._wait("ready")["host"]

    def measure(
        self,
        suite: str,
        case: str,
        l2: str,
        variants: Sequence[str],
        failed: Mapping[str, str],
        twins: Sequence[str] = (),
    ) -> tuple[list[Record], dict[str, dict[str, float | str]]]:
        """Records of one case and the controls so far.

        Raises:
            WorkerDied: it hung, died or lost its CUDA context; start another one.
        """
        asked: dict[str, Any] = {"suite": suite, "case": case, "l2": l2}
        asked |= {"variants": list(variants), "failed": dict(failed), "twins": list(twins)}
        event = self._ask({"measure": asked}, "records")
        return [record_from(row) for row in event["records"]], event["controls"]

    def run(self, arguments: Sequence[str], cwd: str) -> tuple[int, str]:
        """An ordinary asv benchmark: exit code and what it printed.

        Raises:
            WorkerDied: as for ``measure``.
        """
        event = self._ask({"run": list(arguments), "cwd": cwd}, "ran")
        return int(event["code"]), str(event["out"])

    def close(self) -> None:
        """End the worker, by force if it does not end by itself."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._kill()
        os.close(self._events)
        self._log.close()

    def _ask(self, request: dict[str, Any], answer: str) -> dict[str, Any]:
        self._stage, self._variant = "request", ""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._died()
        return self._wait(answer)

    def _wait(self, answer: str) -> dict[str, Any]:
        """The next event of this kind; stages on the way are noted."""
        while True:
            event = self._next()
            if event["event"] == answer:
                return event
            if event["event"] == "stage":
                self._stage, self._variant = event["stage"], event["variant"]
            elif event["event"] == "lost":
                self._process.wait()
                raise WorkerDied(event["variant"], f"broke the CUDA context ({event['reason']})")

    def _next(self) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(self.silence_s):
                    self._kill()
                    how = f"hung for {self.silence_s:g} s {self._doing()}"
                    raise WorkerDied(self._variant, how, at_start=self._stage == "start")
                chunk = os.read(self._events, 1 << 16)
                if not chunk:
                    self._died()
                self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        event: dict[str, Any] = json.loads(line)
        return event

    def _died(self) -> None:
        code = self._process.wait()
        if code == CONTEXT_LOST:
            how = "broke the CUDA context"
        elif code < 0:
            how = f"killed by {signal.Signals(-code).name} {self._doing()}"
        else:
            how = f"ended with exit status {code} {self._doing()}"
        tail = self._tail()
        how = f"{how}: {tail}" if tail else how
        raise WorkerDied(self._variant, how, at_start=self._stage == "start")

    def _doing(self) -> str:
        doing = {"start": "at start", "check": "in its check", "time": "while timing"}
        return doing.get(self._stage, "on a request")

    def _tail(self) -> str:
        """Last line the worker printed."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4096))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
