"""Run a script in a thread that stops at each timed call, so that two runs can go through a script call by call.

A script keeps the buffers of one call alive, seldom those of all. So the engine measures a call while the script waits
for its timer, instead of collecting all closures first.
"""

from __future__ import annotations

import ast
import gc
import queue
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from lockstep.scripts.call_names import CallKey
from lockstep.scripts.own_memory import allocated, leave_out
from lockstep.scripts.replace_timers import replace_timers
from lockstep.scripts.taken_calls import NOMINAL_MS, Hook, line_of
from lockstep.scripts.timed_call import TimedCall

#: The seed of base and head, so that both draw the same inputs.
_SEED = 20_240_229


class _Stopped(KeyboardInterrupt):
    """The run is not continued. pytest goes on to the next test after any error of another kind."""


@dataclass
class ScriptRun:
    """One run of a script. Enter the namespace of its side around ``advance`` and ``stop``.

    Attributes:
        file, arguments: the script, and the words after its name on the command line.
        wanted: says of a point whether it is set up and timed (``lockstep.scripts.taken_calls``).
        refused: the points that cannot be taken, with the reason.
        error: why the script ended early; "" if it did not.
    """

    file: Path
    arguments: Sequence[str]
    hook: Hook
    wanted: Callable[[CallKey], bool]
    stream: AbstractContextManager[Any] = field(default_factory=nullcontext)
    refused: dict[CallKey, str] = field(default_factory=dict)
    error: str = ""
    _calls: queue.SimpleQueue[TimedCall | None] = field(default_factory=queue.SimpleQueue)
    _answers: queue.SimpleQueue[float | None] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None
    _module: ModuleType | None = None
    _random: list[tuple[Callable[[Any], None], Any]] = field(default_factory=list)
    _own_bytes: int = 0
    _others: int = 0

    def advance(self, milliseconds: float = NOMINAL_MS) -> TimedCall | None:
        """Answer the last call with its time, and run on to the next; return it, or ``None`` at the end."""
        self._others = allocated() - self._own_bytes
        if self._thread is None:
            self._module = ModuleType("__main__")
            sys.modules["__main__"] = self._module
            self._thread = threading.Thread(target=self._run, daemon=True)
            _seed(_SEED)
            self._thread.start()
        elif not self._thread.is_alive():
            return None
        else:
            for restore, state in self._random:
                restore(state)
            self._answers.put(milliseconds)
        call = self._calls.get()
        self._random = [(restore, get()) for get, restore in _generators()]
        self._own_bytes = allocated() - self._others
        if call is None:
            self._thread.join()
        return call

    def stop(self) -> None:
        """End the script at the call where it waits."""
        if self._thread is not None and self._thread.is_alive():
            self._answers.put(None)
            while self._calls.get() is not None:
                self._answers.put(None)
            self._thread.join()

    def _run(self) -> None:
        try:
            leave_out(self._others)
            with self.hook.serving(self.file, self._taken, self.wanted, self.refused.__setitem__), self.stream:
                self._execute()
        except _Stopped:
            pass
        except SystemExit as ended:
            if ended.code not in (None, 0):
                self.error = f"the script ends with status {ended.code}"
        except BaseException as error:
            self.error = line_of(error, self.file) if isinstance(error, Exception) else repr(error)
        finally:
            if self._module is not None:
                vars(self._module).clear()
            gc.collect()  # the script's buffers, also those of its module
            self._calls.put(None)

    def _execute(self) -> None:
        file = str(self.file)
        assert self._module is not None
        names = vars(self._module)
        names.update(__file__=file, __builtins__=__builtins__)
        sys.argv[:] = [file, *self.arguments]
        source = self.file.read_bytes()
        name = self.file.stem
        if (name.startswith("test_") or name.endswith("_test")) and b"__main__" not in source:
            self._test()
            return
        tree = ast.parse(source)
        if level := max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0):
            # As ``python -m`` does: the packages of relative imports are the folders above.
            names["__package__"] = ".".join(folder.name for folder in reversed(self.file.parents[:level]))
        exec(compile(source, file, "exec", dont_inherit=True), names)
        replace_timers("__main__", self.hook)

    def _test(self) -> None:
        """Run the script by pytest, whose tests set up and time what they parametrize."""
        import pytest  # imported here: few scripts need it

        failures = _Failures()
        # Nothing that belongs to the process: capture, assertions that import otherwise, and the project's own options.
        plain = ["-s", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-o", "addopts="]
        status = pytest.main([str(self.file), *plain, *self.arguments], plugins=[failures])
        if failures.texts:
            self.error = f"{len(failures.texts)} tests failed, the first: {failures.texts[0]}"
        elif status not in (pytest.ExitCode.OK, pytest.ExitCode.INTERRUPTED):
            self.error = f"pytest ends with status {int(status)}; run pytest {self.file.name} to see why"

    def _taken(self, call: TimedCall) -> float:
        self._calls.put(call)
        answer = self._answers.get()
        if answer is None:
            raise _Stopped
        leave_out(self._others)
        return answer


@dataclass(eq=False)  # pytest needs plugins that can be hashed
class _Failures:
    """A plugin of pytest that keeps the first line of each failure."""

    texts: list[str] = field(default_factory=list)

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message.splitlines()[0] if crash else str(report.longrepr).splitlines()[-1]
            self.texts.append(
                f"{report.nodeid.rpartition('::')[2].rpartition('/')[2]}: {message.removeprefix('E  ').strip()[:200]}"
            )


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)


def _generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], None]]]:
    """Yield what returns and what sets the state of each random generator that scripts use."""
    yield random.getstate, random.setstate
    yield torch.get_rng_state, torch.set_rng_state
    if torch.cuda.is_available():
        yield torch.cuda.get_rng_state, torch.cuda.set_rng_state
    if (numpy := sys.modules.get("numpy")) is not None:
        yield numpy.random.get_state, numpy.random.set_state
