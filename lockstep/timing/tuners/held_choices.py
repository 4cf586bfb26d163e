"""Let Triton's tuners take stored choices, and choose by this project's replays where nothing is stored.

``Autotuner._bench`` is the only place where a tuner measures, so it is replaced, and Triton's cache of choices too.
Subclasses with a ``run`` of their own, Gluon's kernels, and heuristics beside a tuner end there.
"""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.machine_code.tracing.recorded_launches import settings
from lockstep.machine_code.tracing.tuner_runs import runs_replaced
from lockstep.timing.device import Call, Device
from lockstep.timing.graph_capture import CaptureError
from lockstep.timing.rules.rule import Disqualified
from lockstep.timing.tuners.choices import Choice, Choices, digest
from lockstep.timing.tuners.fastest import fastest
from lockstep.timing.tuners.kernel_source import source_of

#: Seconds between two looks at a lock, and between two reports of progress.
_LOOK_S, _TELL_S = 0.05, 5.0

#: The byte of the file of locks that stands for the GPU. All other bytes stand for kernels.
_GPU = 0


class NoStoredChoice(RuntimeError):
    """A tuner needs a choice, and the process may not tune."""


@dataclass
class Tuners:
    """Holds the choices of all tuners of this process.

    Attributes:
        retune: whether tuners choose for themselves: nothing is read or stored.
        stored: whether only stored choices are taken, because other processes use the GPU.
        tell: called with a line of progress, also while a kernel compiles or another process tunes it, so that this
            process does not count as hung.
        apart: returns a context in which launches are not recorded as launches of the variant.
    """

    choices: Choices
    device: Device
    where: str
    retune: bool = False
    stored: bool = False
    tell: Callable[[str], None] = lambda line: None
    apart: Callable[[], AbstractContextManager[Any]] = nullcontext
    _chosen: dict[tuple[str, ...], str] = field(default_factory=dict)
    _sources: dict[Any, str] = field(default_factory=dict)
    _locks: int = -1

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Answer all tuners within the block."""
        if (Autotuner := _autotuner()) is None:
            yield
            return
        bench = Autotuner._bench

        def answer(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
            asked = self._asked(tuner, args, meta)
            if asked.identity not in self._chosen:
                self._chosen[asked.identity] = self._choose(_Tuning(tuner, args, meta, bench), asked)
            # A tuner takes the configuration with the least time.
            return [0.0 if settings(config) == self._chosen[asked.identity] else 1.0] * 3

        def uncached(tuner: Any, key: Any, configs: Any, benchmark: Callable[[], Any]) -> bool:
            benchmark()
            return False

        # Triton's own cache of choices counts line numbers, and must not receive held choices.
        cached = Autotuner.check_disk_cache
        Autotuner._bench, Autotuner.check_disk_cache = bench if self.retune else answer, uncached
        try:
            yield
        finally:
            Autotuner._bench, Autotuner.check_disk_cache = bench, cached

    @contextlib.contextmanager
    def noted(self) -> Iterator[list[Choice]]:
        """Add to the returned list the choice of each tuner that runs within the block."""
        choices: list[Choice] = []
        if _autotuner() is None:
            yield choices
            return
        within: list[Any] = []

        def noting(kind: type[Any], run: Any) -> Any:
            def note(tuner: Any, *args: Any, **kwargs: Any) -> Any:
                if tuner in within:  # a subclass calls the run that it replaces
                    return run(tuner, *args, **kwargs)
                within.append(tuner)
                try:
                    result = run(tuner, *args, **kwargs)
                finally:
                    within.remove(tuner)
                if len(tuner.configs) > 1:
                    choices.append(replace(self._asked(tuner, args, kwargs), chosen=settings(tuner.best_config)))
                return result

            return note

        with runs_replaced(noting):
            yield choices

    def _asked(self, tuner: Any, args: Sequence[Any], meta: Mapping[str, Any]) -> Choice:
        """Return what a call asks of a tuner. The key has values of arguments and dtypes, as Triton's own key has."""
        if tuner not in self._sources:
            try:
                self._sources[tuner] = source_of(tuner)
            except Exception:
                # A kernel whose source cannot be read runs all the same. Nothing is equal to it.
                self._sources[tuner] = ""
        named = {**dict(zip(tuner.arg_names, args, strict=False)), **meta}
        named = {name: value for name, value in named.items() if name in tuner.arg_names}
        key = [named[name] for name in tuner.keys if name in named]
        key += [value.dtype for value in named.values() if hasattr(value, "dtype")]
        kernel = f"{tuner.base_fn.__module__}.{tuner.base_fn.__qualname__}"
        listed = tuple(dict.fromkeys(map(settings, tuner.configs)))
        return Choice(kernel, self._sources[tuner], listed, ", ".join(map(str, key)), self.where)

    def _choose(self, tuning: _Tuning, asked: Choice) -> str:
        """Return what the chosen configuration sets: the stored choice, else the fastest, which is then stored."""
        if chosen := self.choices.of(asked):
            return chosen
        if self.stored:
            raise NoStoredChoice(f"{asked.name} has no stored choice, and this process may not use the GPU to tune it")
        with self._locked(int(digest(*asked.identity), 16) % 2**30 + 1, f"another process tunes {asked.name}"):
            if chosen := self.choices.of(asked):
                return chosen
            with self.apart():
                tuning.compile(asked.name, self.tell)
                with self._locked(_GPU, f"another process tunes on the GPU, then {asked.name}"):
                    self.tell(f"tuning {asked.name}: {len(tuning.configurations)} configurations, key {asked.key}")
                    chosen, works = tuning.fastest(self.device, self.choices.last(asked))
                    if works and asked.source:
                        self.choices.add(replace(asked, chosen=chosen))
        return chosen

    @contextlib.contextmanager
    def _locked(self, byte: int, waiting: str) -> Iterator[None]:
        """Keep other processes of this machine from locking the same byte within the block."""
        if self._locks < 0:
            # The file stays open: to close it would give up all locks of this process.
            path = Path(tempfile.gettempdir(), f"lockstep-tuning-{os.getuid()}.lock")
            self._locks = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        told = time.monotonic()
        while True:
            try:
                fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                break
            except OSError:
                time.sleep(_LOOK_S)
            if time.monotonic() > told + _TELL_S:
                told = time.monotonic()
                self.tell(waiting)
        try:
            yield
        finally:
            fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, byte)


@dataclass
class _Tuning:
    """One tuning: a tuner with the arguments of the call for which it chooses, and Triton's ``Autotuner._bench``."""

    tuner: Any
    args: Sequence[Any]
    meta: Mapping[str, Any]
    bench: Any

    def __post_init__(self) -> None:
        self.configurations: dict[str, Any] = {}
        for config in self.tuner.prune_configs(dict(self.meta)):
            self.configurations.setdefault(settings(config), config)

    def compile(self, name: str, tell: Callable[[str], None]) -> None:
        """Compile all configurations beside each other. What does not compile raises its error when it is called."""
        # A context of its own: some versions of Triton leave a failed compilation mode active.
        contextvars.copy_context().run(self._compile, name, tell)

    def _compile(self, name: str, tell: Callable[[str], None]) -> None:
        from triton import AsyncCompileMode

        started = time.monotonic()
        with (
            ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads,
            contextlib.suppress(Exception),
            AsyncCompileMode(threads) as mode,
        ):
            for config in self.configurations.values():
                with contextlib.suppress(Exception):
                    if config.pre_hook is not None:  # it may change what the kernel is specialised for
                        config.pre_hook({**self.tuner.nargs, **self.meta, **config.all_kwargs()})
                    self.tuner.fn.run(*self.args, **{**self.meta, **config.all_kwargs(), "warmup": True})
            futures = mode.raw_futures
            while len(done := wait(futures, _TELL_S).done) < len(futures):
                spent_s = time.monotonic() - started
                left = f", about {spent_s * (len(futures) / len(done) - 1):.0f} s more" if done else ""
                tell(f"compiling {name}: {len(done)} of {len(futures)} configurations in {spent_s:.0f} s{left}")
            for kernel in mode.future_kernels.values():  # the mode itself stops at the first that does not compile
                with contextlib.suppress(Exception):
                    kernel.result()

    def fastest(self, device: Device, preferred: str) -> tuple[str, bool]:
        """Return what the fastest configuration sets, and whether it works."""
        from triton.compiler.errors import CompileTimeAssertionFailure
        from triton.runtime.errors import OutOfResources, PTXASError

        if self.tuner._do_bench is None:  # else the package measures in its own way
            with contextlib.suppress(CaptureError, Disqualified, NotImplementedError):
                unfit = (OutOfResources, CompileTimeAssertionFailure, PTXASError)
                chosen = fastest(self._calls(), device, preferred, unfit)
                return chosen or next(iter(self.configurations)), bool(chosen)
        times = {
            name: _first(self.bench(self.tuner, *self.args, config=config, **self.meta))
            for name, config in self.configurations.items()
        }
        chosen = min(times, key=lambda name: times[name])
        return chosen, times[chosen] < math.inf

    def _calls(self) -> dict[str, Call]:
        """Return the call of each configuration that the tuner would time, with all hooks."""
        calls: dict[str, Call] = {}
        attributes = vars(self.tuner)
        before = {name: attributes.pop(name) for name in ("do_bench",) if name in attributes}
        try:
            for name, config in self.configurations.items():
                attributes["do_bench"] = lambda call, quantiles, name=name: calls.update({name: call})
                self.bench(self.tuner, *self.args, config=config, **self.meta)
        finally:
            attributes.pop("do_bench", None)
            attributes.update(before)
        return calls


def _autotuner() -> Any:
    """Return Triton's class of tuners; ``None`` without Triton."""
    try:
        from triton.runtime.autotuner import Autotuner
    except ImportError:
        return None
    return Autotuner


def _first(times: Any) -> float:
    return float(times[0] if isinstance(times, Sequence) else times)
