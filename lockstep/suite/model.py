"""What a benchmark suite says about a family of kernels: shapes, inputs, reference, costs, baseline.

A suite is data and a few small functions. It never touches a clock and never imports torch at its
top level: asv discovers suites in a process that must start fast and must not initialise CUDA.
Every function of a suite is called with keyword arguments and gets only those that it names.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.suite.definition import Reader
from lockstep.suite.source import literal_entries, repo_subdir

#: Raised by one whenever measuring changes so that old and new numbers no longer compare.
#: A new version starts a new series (it is part of the asv benchmark version).
PROTOCOL_VERSION = 6

#: Cache states of a series: cold rotates every tensor through twice the L2, warm replays one set.
CACHE_STATES = ("cold", "warm")

Axis = int | float | str | bool


class SuiteError(ValueError):
    """A suite or a family module is not what the harness needs; the message says where and why."""


class Case(Mapping[str, Axis]):
    """One shape: axis name to value, e.g. ``Case(M=8, K=4096, N=2048)``. Immutable and hashable."""

    __slots__ = ("_axes",)

    def __init__(self, **axes: Axis) -> None:
        self._axes = tuple(axes.items())

    @property
    def label(self) -> str:
        """The case's one spelling everywhere: ``M=8,K=4096,N=2048``; a true flag is its name alone."""
        return ",".join(
            name if value is True else f"{name}={value}" for name, value in self._axes if value is not False
        )

    def __getitem__(self, name: str) -> Axis:
        for axis, value in self._axes:
            if axis == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._axes)

    def __len__(self) -> int:
        return len(self._axes)

    def __hash__(self) -> int:
        return hash(self._axes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self._axes == other._axes

    def __repr__(self) -> str:
        return f"Case({self.label})"


def cases(**axes: Axis | list[Any] | tuple[Any, ...]) -> tuple[Case, ...]:
    """Every combination of the axes, first axis slowest: ``cases(K=4096, N=2048, M=[1, 2, 4])``."""
    values = [value if isinstance(value, list | tuple) else [value] for value in axes.values()]
    return tuple(Case(**dict(zip(axes, combination, strict=True))) for combination in itertools.product(*values))


@dataclass(frozen=True)
class Limit:
    """Cases that a variant is not measured at although it could run there, and why (say, compile time)."""

    reason: str
    allows: Callable[..., bool]


@dataclass(frozen=True, eq=False)
class Suite:
    """A family of kernels as the ruler sees it.

    Attributes:
        family: module under ``package`` that holds the variants.
        cases: every shape that is measured on a GPU.
        quick: shapes small enough for a CPU, measured where there is no GPU; among ``cases`` or their own.
        inputs: ``(draw, **axes) -> dict`` of named tensors and numbers, drawn at random
            (``lockstep.suite.inputs.Draw``). A variant receives those that its signature names.
        reference: ``(**inputs) -> tensor or tuple`` in float32 or float64: what every variant is checked against.
        outputs: ``(draw, **axes) -> tensor or tuple``, the buffers handed to variants that take
            ``out=``; all arms of a comparison overwrite the same ones.
        flops: ``(**axes)`` to floating-point operations of the task, independent of the variant.
        bytes: ``(**axes)`` to the fewest bytes the task must move: each input read once, each output written once.
        baseline: the variant that speedup is measured against.
        tolerance: largest accepted ``‖out − ref‖ / ‖ref‖``, for each output.
        op: where a family module holds several operations, the prefix of its variants: op "mlp" owns "mlp.bmm".
        limits: variants measured at some cases only.
        ladder: ``(**axes) -> bool``: at which cases a history follows every variant, cold; at all others it follows the
            baseline and ``always``, so that each series gets the time that it needs. Without it, a history follows
            every variant everywhere, cold and warm. ``lockstep measure`` and the gate take all of them in any case.
        warm: ``(**axes) -> bool``: at which cases a history with a ladder follows the baseline and ``always`` warm as
            well; none without it.
        always: variants that a history follows beside the baseline wherever it follows anything.
        package: the package under test, dotted if ``family`` lies deeper; asv.conf.json names its top level.
        home: folder of the module that made the suite; found by itself, and kept by ``dataclasses.replace``.
    """

    family: str
    cases: tuple[Case, ...]
    quick: tuple[Case, ...]
    inputs: Callable[..., dict[str, Any]]
    reference: Callable[..., Any]
    flops: Callable[..., float]
    bytes: Callable[..., float]
    baseline: str
    outputs: Callable[..., Any] | None = None
    tolerance: float = 1e-2
    op: str = ""
    limits: Mapping[str, Limit] = field(default_factory=dict)
    ladder: Callable[..., bool] | None = None
    warm: Callable[..., bool] | None = None
    always: tuple[str, ...] = ("best",)
    package: str = "kernels"
    home: Path = field(default=Path(), repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.home == Path():
            # The folder of the module that makes the suite (frame 1 is the generated __init__): the
            # packages that stand beside it are today's.
            object.__setattr__(self, "home", Path(sys._getframe(2).f_globals.get("__file__", "")).resolve().parent)
        for listed in (self.cases, self.quick):
            twice = [case.label for case in listed if listed.count(case) > 1]
            if twice:
                raise SuiteError(f"suite {self.name}: case {twice[0]} is listed twice")

    @property
    def name(self) -> str:
        """``family`` or ``family.op``."""
        return f"{self.family}.{self.op}" if self.op else self.family

    @property
    def all_cases(self) -> tuple[Case, ...]:
        """``cases`` and what ``quick`` has beyond them."""
        return tuple(dict.fromkeys(self.cases + self.quick))

    def case(self, label: str) -> Case:
        """The case with this label.

        Raises:
            SuiteError: there is none; the message lists the labels.
        """
        for case in self.all_cases:
            if case.label == label:
                return case
        known = "\n  ".join(case.label for case in self.all_cases)
        raise SuiteError(f"suite {self.name} has no case {label!r}; it has\n  {known}")

    def follows(self, variant: str, case: Case, l2: str) -> bool:
        """Whether a history measures this series; quick cases are few and followed whole."""
        if self.ladder is None or case not in self.cases:
            return True
        if l2 == "cold" and self.ladder(**bind(self.ladder, dict(case))):
            return True
        here = l2 == "cold" or (self.warm is not None and self.warm(**bind(self.warm, dict(case))))
        return here and variant in (self.baseline, *self.always)

    def digest(self) -> str:
        """Identity of the ruler: protocol version and what decides how an existing case is measured.

        The lists of cases and variants are left out: adding a shape or a kernel starts no new series.

        Raises:
            SuiteError: one of the suite's functions is no plain function.
        """
        ruler = [str(PROTOCOL_VERSION), self.name, self.baseline, repr(self.tolerance), *self._sources]
        # 64 bits tell rulers of one benchmark apart, and every stored series carries them.
        return hashlib.sha256("\n".join(ruler).encode()).hexdigest()[:16]

    @functools.cached_property
    def _sources(self) -> list[str]:
        """What ``digest`` reads of the suite's module. Kept: every case asks."""
        reader = Reader(self.home.parent)
        sources: list[str] = []
        for name in ("inputs", "reference", "outputs", "flops", "bytes"):
            part = getattr(self, name)
            if part is not None and not inspect.isfunction(part):
                # The text of a partial or an object holds its address: another series in every process.
                raise SuiteError(f"suite {self.name}: {name} must be a plain function, not {type(part).__name__}")
            sources += reader.function(part) if part is not None else ["none"]
        return sources

    def variants(self) -> tuple[str, ...]:
        """Names of the variants, read from the source of today's family module without importing it.

        Importing it would import torch, and asv's discovery must do without.

        Raises:
            SuiteError: no such module, or its ``VARIANTS`` is not a dict literal with string keys.
        """
        prefix = f"{self.op}." if self.op else ""
        return tuple(key.removeprefix(prefix) for key in self._entries if key.startswith(prefix))

    @property
    def functions(self) -> dict[str, str]:
        """Names of the functions that are today's variants, as far as ``VARIANTS`` names them plainly.

        By them a commit can be measured that has the functions and no ``VARIANTS`` yet.
        """
        return {name: entry.id for name, entry in self._entries.items() if isinstance(entry, ast.Name)}

    @functools.cached_property
    def _entries(self) -> dict[str, ast.expr]:
        """Today's ``VARIANTS``. Kept: once a commit is checked out, its module may be found in place of today's."""
        path = self._family_source()
        entries = literal_entries(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)), "VARIANTS")
        if entries is None:
            raise SuiteError(
                f"{path}: needs VARIANTS = {{'name': function, …}} as a literal at the top level, "
                "so that the names can be read without importing torch"
            )
        return entries

    def _family_source(self) -> Path:
        """The family's module: in the package beside the suites, else wherever Python finds the package."""
        top, *deeper = self.package.split(".")
        spec = importlib.util.find_spec(top)
        found = [Path(folder) for folder in spec.submodule_search_locations or []] if spec else []
        beside = [folder / top for parent in self.home.parents for folder in (parent / repo_subdir(parent), parent)]
        for package in [*beside, *found]:
            folder = package.joinpath(*deeper)
            for path in (folder / f"{self.family}.py", folder / self.family / "__init__.py"):
                if path.is_file():
                    return path
        raise SuiteError(
            f"suite {self.name}: there is no module {self.package}.{self.family}. A suite's family is the module that "
            'holds its kernels: Suite(package="your_package", family="module")'
        )

    def series(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """The two asv benchmarks of this suite: latency in seconds, and speedup over the baseline.

        Assign them in the suite's module: ``latency, speedup = SUITE.series()``; with an op,
        ``mlp_latency, mlp_speedup = MLP.series()``. Both are served from one measurement.
        """
        # asv looks for types of benchmarks in its own packages alone; it imports a suite before it asks what is in it.
        # Where asv does not run benchmarks there is nobody to tell, and its packages take longer to import than suites.
        if "asv_runner.benchmarks" in sys.modules:
            from lockstep.asv.benchmark import register

            register()
        caller = sys._getframe(1).f_globals["__name__"]
        return _series(self, "latency", caller), _series(self, "speedup", caller)


def bind(function: Callable[..., Any], available: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of ``available`` that ``function`` names as parameters (all, if it takes ``**kwargs``).

    ``out`` may be missing: output buffers are added by whoever owns them.

    Raises:
        SuiteError: a required parameter is missing.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(available)
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_POSITIONAL
        and parameter.name not in {"out", *available}
    ]
    if missing:
        raise SuiteError(
            f"{function.__module__}.{function.__qualname__} needs {', '.join(missing)}; "
            f"there is {', '.join(available) or 'nothing'}"
        )
    return {parameter.name: available[parameter.name] for parameter in parameters if parameter.name in available}


def _series(suite: Suite, quantity: str, module: str) -> Callable[..., None]:
    """An asv benchmark function; asv reads its attributes, ``lockstep.asv.benchmark`` does the measuring."""

    def series(variant: str, case: str, l2: str) -> None:
        raise RuntimeError("run by asv's lockstep benchmark type, never called itself")

    variants = suite.variants()
    if suite.baseline not in variants:
        raise SuiteError(
            f"suite {suite.name}: its baseline {suite.baseline!r} is not in VARIANTS of "
            f"{suite.package}.{suite.family}, there is {', '.join(variants) or 'nothing'}"
        )
    series.__name__ = series.__qualname__ = f"{suite.op}_{quantity}" if suite.op else quantity
    series.__module__ = module
    series.__doc__ = f"{quantity} of every variant of {suite.name}"
    series.params = [  # type: ignore[attr-defined]
        list(variants),
        [case.label for case in suite.all_cases],
        list(CACHE_STATES),
    ]
    series.param_names = ["variant", "case", "l2"]  # type: ignore[attr-defined]
    series.version = suite.digest()  # type: ignore[attr-defined]
    series._suite = suite  # type: ignore[attr-defined]
    series._quantity = quantity  # type: ignore[attr-defined]
    return series
