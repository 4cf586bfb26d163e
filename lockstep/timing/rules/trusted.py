"""Detect whether code under test replaced a function that a measurement trusts.

Code under test runs in the process that times and checks it. So the originals are saved before a variant is imported,
and compared after each variant has run. The comparison finds the replacements of careless or unsophisticated variants.
It is not a sandbox: code that knows this module can deceive it (``docs/measuring.md``).
"""

from __future__ import annotations

import builtins
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import torch

from lockstep.timing.rules.own_code import places_of
from lockstep.timing.rules.persisting_cache import persisting_bytes, reset_persisting
from lockstep.timing.rules.rule import Disqualified, Rule

T = TypeVar("T")

#: Functions that read a clock, wait for the device, or run a graph.
_CLOCKS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        time,
        ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time", "sleep"),
    ),
    (
        torch.cuda,
        ("Event", "Stream", "CUDAGraph", "graph", "synchronize", "current_stream", "is_current_stream_capturing"),
    ),
    (torch.cuda.Event, ("__new__", "record", "elapsed_time", "synchronize", "query", "wait")),
    (torch.cuda.CUDAGraph, ("__new__", "replay", "capture_begin", "capture_end", "instantiate", "raw_cuda_graph")),
    (torch.cuda.graph, ("__init__", "__enter__", "__exit__")),
    (torch.cuda.Stream, ("synchronize", "wait_stream", "wait_event", "query")),
)

#: Functions that checks and statistics use. Adding a method to ``torch.Tensor`` replaces an inherited method.
_ARITHMETIC: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (builtins, ("abs", "all", "any", "float", "isinstance", "len", "max", "min", "sorted", "sum", "type", "zip")),
    (math, ("ceil", "exp", "fsum", "isfinite", "isnan", "log", "sqrt")),
    (statistics, ("median", "median_low", "fmean", "stdev")),
    (
        torch.Tensor,
        (
            *("__add__", "__eq__", "__float__", "__mul__", "__sub__", "__truediv__", "abs", "all", "any", "clone"),
            *("copy_", "data_ptr", "double", "equal", "fill_", "float", "isfinite", "item", "max", "mean", "norm"),
            *("reshape", "split", "square", "sub", "sum", "to", "tolist", "untyped_storage", "view"),
        ),
    ),
)


#: Settings of torch that affect all arms: how to read each setting and how to restore it.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the precision of float32 products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
}

#: How to count the active modes that intercept torch's operations (``torch.overrides.TorchFunctionMode``,
#: ``torch.utils._python_dispatch.TorchDispatchMode``), and how to switch the innermost mode off.
_MODES: dict[str, tuple[Callable[[], int], Callable[[], Any]]] = {
    "function": (torch._C._len_torch_function_stack, torch.overrides._pop_mode),
    "dispatch": (torch._C._len_torch_dispatch_stack, torch.utils._python_dispatch._pop_mode),
}


@dataclass(frozen=True)
class _Saved:
    """The saved value of a name in a module or class (its owner), by which a replacement is noticed.

    Attributes:
        rule: the rule that code under test breaks if it replaces the value.
        owner, name: the module or class, and the name in it.
        names: the owner's namespace.
        value: the owner's own entry; ``None`` if the owner inherits the name.
        effective: the value of the name, inherited or not. An own entry with the inherited value replaces nothing: code
            that saves a method of ``torch.Tensor`` and restores it leaves such an entry.
        function, code: the Python function behind the value, and the function's code and defaults.
    """

    rule: Rule
    owner: Any
    names: Mapping[str, Any]
    name: str
    value: Any
    effective: Any
    function: FunctionType | None
    code: tuple[Any, ...]

    @property
    def changed(self) -> bool:
        # Compare by identity alone, because code under test can define ``==``.
        entry = self.names.get(self.name)
        if entry is not self.value and entry is not self.effective:
            return True
        function = self.function
        if function is None:
            return False
        code, defaults, kwdefaults = self.code
        return (
            function.__code__ is not code
            or function.__defaults__ is not defaults
            or function.__kwdefaults__ is not kwdefaults
        )

    def restore(self) -> None:
        if self.value is None:
            delattr(self.owner, self.name)
            return
        if self.function is not None:
            self.function.__code__, self.function.__defaults__, self.function.__kwdefaults__ = self.code
        setattr(self.owner, self.name, self.value)

    def __str__(self) -> str:
        if isinstance(self.owner, type):
            return f"{_path(self.owner)}.{self.name}"
        if self.name == "function" and isinstance(self.value, FunctionType):
            return f"the code of {self.owner.__name__}"
        return f"{self.owner.__name__}.{self.name}"


class _SetAside(Disqualified):
    """Code under test set a part of the L2 aside for persisting accesses, in which inputs of cold calls could stay."""


class Trusted:
    """The functions on which measuring relies, saved at creation. Create it before code under test is imported."""

    def __init__(self) -> None:
        listed = ((Rule.CHANGED_CLOCK, _CLOCKS), (Rule.CHANGED_HARNESS, _ARITHMETIC))
        self._saved = [
            _save(rule, owner, name)
            for rule, owners in listed
            for owner, names in owners
            for name in names
            if hasattr(owner, name)
        ]
        others = [*_own_functions(), *_torch_functions()]
        self._saved += [_save(Rule.CHANGED_HARNESS, owner, name) for owner, name in others]
        self._persisting = persisting_bytes()
        self.accept_settings()

    def accept_settings(self) -> None:
        """Accept torch's current settings and modes: an import may choose them, because they affect all arms alike."""
        self._settings = {name: read() for name, (read, _) in _SETTINGS.items()}
        self._modes = {name: count() for name, (count, _) in _MODES.items()}

    def with_variants(self, variants: Mapping[str, Any]) -> Trusted:
        """Return the saved functions together with the variants' current code, which no variant may replace either."""
        more = copy(self)
        more._saved = self._saved + [_save(Rule.CHANGED_BASELINE, owner, name) for owner, name in places_of(variants)]
        return more

    def guarded(self, call: Callable[[], T]) -> T:
        """Call ``call``, which runs code under test; check that it replaced no trusted function; return its result.

        If the call set a part of the L2 aside for persisting accesses, the call is made once more. A library sets the
        part aside at its first use only (torch 2.11 in its first cross entropy over 32,000 classes on an H200). A
        variant that sets a part aside does so in the second call too.

        Raises:
            Disqualified: as by ``require``; for a part of the L2 only if the second call sets it aside too.
        """
        try:
            with self.guarding():
                return call()
        except _SetAside:
            with self.guarding():
                return call()

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Check with ``require``, after a block that runs code under test, that the block replaced no trusted function.

        Changed settings of torch are restored without an error, because a variant's first call may import a module that
        changes them.
        """
        try:
            yield
        finally:
            self._restore_settings()
            self.require()

    def require(self) -> None:
        """Check that code under test left the trusted functions and torch's settings and modes as they were saved.

        Whatever was changed is restored first, so that the next variant runs as usual.

        Raises:
            Disqualified: ``CHANGED_CLOCK``, ``CHANGED_HARNESS`` or ``CHANGED_BASELINE``; names what was changed.
        """
        # Modes are switched off first, because the code below may use torch.
        modes = self._switch_off_modes()
        set_aside = self._restore_cache()
        changed = [entry for entry in self._saved if entry.changed]
        if modes and not changed:
            raise Disqualified(Rule.CHANGED_HARNESS, f"left a torch {modes[0]} mode switched on")
        if not changed:
            if settings := self._restore_settings():
                raise Disqualified(Rule.CHANGED_HARNESS, f"left torch with a changed setting: {', '.join(settings)}")
            if set_aside:
                raise _SetAside(Rule.CHANGED_HARNESS, set_aside)
            return
        for entry in changed:
            entry.restore()
        clocks = [entry for entry in changed if entry.rule is Rule.CHANGED_CLOCK]
        names = ", ".join(str(entry) for entry in (clocks or changed)[:3])
        raise Disqualified((clocks or changed)[0].rule, f"replaced {names}")

    def _switch_off_modes(self) -> list[str]:
        """Switch off modes of torch that code under test left on. Return the kinds of these modes."""
        added = [kind for kind, (count, _) in _MODES.items() if count() > self._modes[kind]]
        for kind in added:
            count, pop = _MODES[kind]
            while count() > self._modes[kind]:
                pop()
        return added

    def _restore_cache(self) -> str:
        """Restore how much of the L2 is set aside for persisting accesses. Return the change as text; "" if none."""
        now = persisting_bytes()
        if now == self._persisting:
            return ""
        reset_persisting(self._persisting)
        return (
            f"set aside {now / 2**20:.3g} MiB of the device's L2 for persisting accesses (was "
            f"{self._persisting / 2**20:.3g}): inputs of cold calls could stay there, and other variants lose that part"
        )

    def _restore_settings(self) -> list[str]:
        """Restore torch's saved settings. Return the names of the settings that had changed."""
        changed = [name for name, (read, _) in _SETTINGS.items() if read() != self._settings[name]]
        for name in changed:
            _SETTINGS[name][1](self._settings[name])
        return changed


def _torch_functions() -> Iterator[tuple[Any, str]]:
    """Yield owner and name of the functions of torch that variants and baselines call."""
    for module in (torch, torch.nn.functional, torch.linalg):
        for name, value in list(vars(module).items()):
            # Only compiled functions: torch.compile itself replaces torch.manual_seed.
            if isinstance(value, BuiltinFunctionType):
                yield module, name


def _own_functions() -> Iterator[tuple[Any, str]]:
    """Yield owner and name of every loaded function and class of Lockstep, and of the classes' functions."""
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "lockstep"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType | type):
                yield module, name
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from (
                    (value, member_name)
                    for member_name, member in list(vars(value).items())
                    if _function(member) is not None
                )


def _save(rule: Rule, owner: Any, name: str) -> _Saved:
    value = vars(owner).get(name)
    function = _function(value)
    effective = getattr(owner, name, None) if value is None else value
    return _Saved(
        rule, owner, vars(owner), name, value, effective, function, _code(function) if function is not None else ()
    )


def _function(value: Any) -> FunctionType | None:
    """Return the Python function behind a function, method or property."""
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    return value if isinstance(value, FunctionType) else None


def _code(function: FunctionType) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _path(owner: type) -> str:
    return f"{owner.__module__}.{owner.__qualname__}"
