"""The benchmark definition of a family of kernels: shapes, inputs, reference, costs, baseline, variants.

A suite never touches a clock and never imports torch at its top level: asv discovers suites in a process that must
start fast and must not initialise CUDA.
"""

from __future__ import annotations

import ast
import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from lockstep.processes.exit_status import UsageError
from lockstep.record.quantity import COSTS
from lockstep.suite.case import Case
from lockstep.suite.own_variants import Adapter
from lockstep.suite.variants_in_source import module_path, variant_entries

if TYPE_CHECKING:
    from lockstep.suite.inputs import Draw

#: Raised by one whenever a change of the measurement makes old and new numbers incomparable. A new version starts a new
#: series, because the version is part of the asv benchmark version.
PROTOCOL_VERSION = 6

#: Assumed number of summands if a suite does not state it.
MANY_SUMMANDS = 1 << 16

#: Cache states of a series: cold rotates every tensor through twice the L2, warm replays one set.
CACHE_STATES = ("cold", "warm")


class SuiteError(UsageError):
    """A suite or a family's module cannot be used; the message says where and why."""


class Cost(NamedTuple):
    """The work of a task, the same for every variant.

    Attributes:
        flops: floating-point operations.
        bytes: minimum bytes to move: each input is read once, each output written once.
    """

    flops: float
    bytes: float


class Suite(ABC):
    """The benchmark definition of a family of kernels: a subclass at the top level of a module of the benchmark folder.

    The methods are called with the axes of a case by name, and get the axes that they name as parameters. A class whose
    name begins with an underscore is only a base of suites. State the variants by ``module``, by functions marked
    ``@variant``, or by both.

    Attributes:
        family: by default the name of the suite's own module, or the value that a base class sets.
        op: name of this suite within a family of several suites. The suite's name then is ``family.op``; it owns the
            variants of ``module`` that begin with ``op.``: "mlp" owns "mlp.bmm".
        module: dotted name of the module with ``VARIANTS``, in a package under test. The module comes from each commit.
        cases: every shape that is measured on a GPU.
        quick: shapes small enough for a CPU, measured on machines without a GPU; they may be among ``cases``.
        baseline: the variant that speedup is measured against.
        tolerance: largest accepted ``‖out − ref‖ / ‖ref‖``, for each floating-point output. The default depends on the
            output's dtype and ``summands`` (``lockstep.timing.checks.tolerance``). Limits for rows, columns and tiles
            are derived from it. Integers and booleans must be equal.
        centred: largest accepted ``‖out − ref‖ / ‖ref − mean(ref)‖`` where the output's dtype can be as exact. By
            default half.
        activations: names of inputs that differ from call to call in practice; the other inputs are weights. Offline
            preparation (``PREPARE``) may depend on weights only, so it gets activations in shuffled order.
        inout: names of inputs that variants write, for in-place operations. They are restored before each call of a
            check and each timed replay. What a call leaves in them is checked, whether or not it returns them: against
            what the reference writes there, else against what the baseline leaves. Scratch memory does not belong
            here. Such a suite has no warm series on a GPU.
        tracked: variants that a history measures, besides the baseline, at cases without ``full_history``.
        quantities: what a history measures besides latency and speedup: names of ``lockstep.record.quantity.COSTS``.
            Adding one does not split other series.
        version: raise it if the suite changes so that old and new numbers can no longer be compared. A new version
            splits the series. The benchmark version of asv and of the records is ``PROTOCOL_VERSION.version``.
        continues: a benchmark version of this suite ("6.1"), and the recorded one whose series it continues. Only
            suites that were recorded under a digest of their source need it.
    """

    family: ClassVar[str] = ""
    op: ClassVar[str] = ""
    module: ClassVar[str] = ""
    cases: ClassVar[tuple[Case, ...]]
    quick: ClassVar[tuple[Case, ...]]
    baseline: ClassVar[str]
    tolerance: ClassVar[float | None] = None
    centred: ClassVar[float | None] = None
    activations: ClassVar[tuple[str, ...]] = ()
    inout: ClassVar[tuple[str, ...]] = ()
    tracked: ClassVar[tuple[str, ...]] = ("best",)
    quantities: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[str] = "1"
    continues: ClassVar[tuple[str, str]] = ("", "")

    #: Calls the baseline, which stands in for a reference that the suite lacks or that does not write ``inout``. It
    #: returns the outputs, and what the call left in each input ``inout``. A measuring process sets it.
    standard: Callable[[Case, dict[str, Any]], tuple[Any, dict[str, Any]]] | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.family and not cls.__name__.startswith("_"):
            cls.family = cls.__module__.rpartition(".")[2]
        for quantity in (quantity for name in cls.quantities for quantity in COSTS.get(name, ())):
            if hasattr(cls, quantity) and getattr(getattr(cls, quantity), "__module__", "") != __name__:
                raise SuiteError(
                    f"suite {cls.__name__} states the quantity {quantity}, so rename its member {quantity}"
                )
            setattr(cls, quantity, _benchmark_of(quantity))

    def __init__(self) -> None:
        missing = [name for name in ("cases", "quick", "baseline") if not hasattr(self, name)]
        if missing:
            raise SuiteError(f"suite {self.name}: class {type(self).__name__} needs {', '.join(missing)}")
        for name in self.quantities:
            if name not in COSTS:
                raise SuiteError(f"suite {self.name}: there is no quantity {name!r}, only {', '.join(COSTS)}")
        for listed in (self.cases, self.quick):
            twice = [case.label for case in listed if listed.count(case) > 1]
            if twice:
                raise SuiteError(f"suite {self.name}: case {twice[0]} is listed twice")

    @abstractmethod
    def draw(self, new: Draw, /, *args: Any, **axes: Any) -> dict[str, Any]:
        """Return named tensors and numbers, drawn at random by ``new``. A variant gets the inputs that it names."""

    def buffers(self, new: Draw, /, *args: Any, **axes: Any) -> Any:
        """Return the tensor or tuple of tensors that is passed to variants as ``out=``; None for no output buffers.

        All variants of a comparison overwrite the same buffers.
        """
        return None

    def reference(self, *args: Any, **inputs: Any) -> Any:
        """Return the correct result for these inputs in float32 or float64: a tensor or a tuple of tensors.

        Without it results are compared with the baseline's output, in the gate with that of base's baseline.
        """
        raise SuiteError(f"suite {self.name} has no reference: state one, so that results can be checked")

    @abstractmethod
    def cost(self, *args: Any, **axes: Any) -> Cost:
        """Return the operations and bytes of the task."""

    def compare(self, outputs: Sequence[Any], expected: Sequence[Any], inputs: Mapping[str, Any]) -> str | None:
        """Return what is wrong with outputs, as the predicate of a sentence, or "".

        Override it if several results are right: another order of ties, other signs of a factorisation, a random
        sample. By default the result is None: outputs are compared with the reference by tolerance.
        """
        return None

    def summands(self, *args: Any, **axes: Any) -> int:
        """Return the number of terms of the longest sum behind an output element; a product over K has K.

        The number decides the default tolerance if all tensors are float32 or float64. Otherwise rounding to 16 bits
        decides.
        """
        return MANY_SUMMANDS

    def skips(self, variant: str, /, *args: Any, **axes: Any) -> str:
        """Return why a variant is not measured at a case that it supports (its compile time, for example), or ""."""
        return ""

    def full_history(self, *args: Any, **axes: Any) -> bool:
        """Return whether a history measures every variant at this case, with a cold L2.

        At all other cases a history measures only the baseline and the ``tracked`` variants, so that each series gets
        enough time. A suite that does not override this method is measured completely, cold and warm. ``lockstep
        measure`` and the gate use all cases.
        """
        return True

    def warm_history(self, *args: Any, **axes: Any) -> bool:
        """Return whether a history also measures the baseline and the ``tracked`` variants with a warm L2 at this case.

        Only a suite that defines ``full_history`` needs this method.
        """
        return False

    def latency(self, variant: str, case: str, l2: str) -> None:
        """Represent the asv benchmark ``family.latency``, in seconds; ``lockstep.asv.benchmark`` measures it."""
        raise RuntimeError("a suite's benchmark must not be called; asv's benchmark type of Lockstep measures it")

    def speedup(self, variant: str, case: str, l2: str) -> None:
        """Represent the asv benchmark ``family.speedup``, over the baseline; ``lockstep.asv.benchmark`` measures it."""
        raise RuntimeError("a suite's benchmark must not be called; asv's benchmark type of Lockstep measures it")

    @property
    def name(self) -> str:
        """Return ``family`` or ``family.op``."""
        return f"{self.family}.{self.op}" if self.op else self.family

    @property
    def has_reference(self) -> bool:
        """Return whether the suite states a correct result."""
        return type(self).reference is not Suite.reference

    @property
    def home(self) -> Path:
        """Return the folder of the suite's module."""
        return Path(sys.modules[type(self).__module__].__file__ or "").resolve().parent

    @property
    def all_cases(self) -> tuple[Case, ...]:
        """Return ``cases``, followed by the quick cases that are not among them."""
        return tuple(dict.fromkeys(self.cases + self.quick))

    def cases_on(self, device: str) -> tuple[Case, ...]:
        """Return the cases that are measured on a device: ``quick`` on a "cpu", else ``cases``."""
        return self.quick if device == "cpu" else self.cases

    def case(self, label: str) -> Case:
        """Return the case with this label; if there is none, ``SuiteError`` lists the labels."""
        for case in self.all_cases:
            if case.label == label:
                return case
        known = "\n  ".join(case.label for case in self.all_cases)
        raise SuiteError(f"suite {self.name} has no case {label!r}; it has\n  {known}")

    @property
    def benchmark_version(self) -> str:
        """Return the version of the suite's benchmarks: that of recorded series if the suite continues them."""
        own = f"{PROTOCOL_VERSION}.{self.version}"
        stating = next(base for base in type(self).__mro__ if "continues" in vars(base))
        continued, recorded = self.continues
        # A suite of another name, made from this one, has no recorded series.
        same = (getattr(stating, "family", ""), getattr(stating, "op", "")) == (self.family, self.op)
        return recorded if same and continued == own else own

    @functools.cached_property
    def adapters(self) -> Mapping[str, Adapter]:
        """Return the suite's own variants by name; a subclass removes an inherited variant with ``name = None``."""
        members = {name: value for base in reversed(type(self).__mro__) for name, value in vars(base).items()}
        return {name: value for name, value in members.items() if isinstance(value, Adapter)}

    def variants(self) -> tuple[str, ...]:
        """Return the names of the variants; ``VARIANTS`` is read from the current source of ``module``.

        Importing the module would import torch, which asv's discovery must avoid. Raise ``SuiteError`` if there is no
        such module, its ``VARIANTS`` is not a dict literal with string keys, a name occurs twice, or the baseline is
        not among the names.
        """
        prefix = f"{self.op}." if self.op else ""
        listed = [key.removeprefix(prefix) for key in self._entries if key.startswith(prefix)]
        if twice := set(listed) & set(self.adapters):
            raise SuiteError(f"suite {self.name} and {self.module} both have a variant {min(twice)}: rename one")
        names = (*listed, *self.adapters)
        if self.baseline not in names:
            place = f"in VARIANTS of {self.module}" if self.module else f"marked @variant in {type(self).__name__}"
            known = ", ".join(names) or "nothing"
            raise SuiteError(f"suite {self.name}: its baseline {self.baseline!r} is not {place}, which has {known}")
        return names

    @property
    def functions(self) -> dict[str, str]:
        """Return the name of each variant's function, as far as the current ``VARIANTS`` states it as a plain name.

        By these names, an old commit that has the functions but no ``VARIANTS`` can be measured.
        """
        return {name: entry.id for name, entry in self._entries.items() if isinstance(entry, ast.Name)}

    @functools.cached_property
    def _entries(self) -> dict[str, ast.expr]:
        """Return the entries of the working tree's ``VARIANTS``.

        The result is cached, because a later search may find the module of the measured commit instead.
        """
        if not self.module:
            return {}
        path = module_path(self.module, self.home)
        if path is None:
            raise SuiteError(
                f"suite {self.name}: there is no module {self.module}. Name the module that holds the kernels and "
                'their VARIANTS: module = "your_package.module"'
            )
        try:
            entries = variant_entries(path)
        except SyntaxError as error:
            raise SuiteError(f"{path}:{error.lineno}: {error.msg}") from error
        if entries is None:
            raise SuiteError(
                f"{path}: needs VARIANTS = {{'name': function, …}} as a literal at the top level, "
                "so that the names can be read without importing torch"
            )
        return entries


def _benchmark_of(quantity: str) -> Callable[..., None]:
    """Return the method by which asv discovers a benchmark of a cost."""

    def measured(self: Suite, variant: str, case: str, l2: str) -> None:
        raise RuntimeError("a suite's benchmark must not be called; asv's benchmark type of Lockstep measures it")

    measured.__name__ = quantity
    return measured
