"""The variants of a suite at a commit: the variants of its module, and the suite's own."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lockstep.suite.checkout import forget_failed_import, frames_under_test, under_test
from lockstep.suite.definition import Suite, SuiteError
from lockstep.suite.evaluate import bind

if TYPE_CHECKING:
    import torch

Variant = Callable[..., Any]


class NotInCommit(NotImplementedError):
    """The commit lacks the module of a suite, or a name that a variant imports; the message says which.

    ``lacks``: the missing module or name: "toy.product", or "such module or name: …".
    """

    def __init__(self, lacks: str) -> None:
        super().__init__(f"this commit has no {lacks}")
        self.lacks = lacks


@dataclass(frozen=True)
class Family:
    """The variants of one suite, and how their weights are prepared offline.

    Attributes:
        variants: functions of tensors, by name.
        prepare: functions that return further named arguments (packed weights, for example) from the suite's inputs,
            by variant name. They run before timing, never in the timed part.
        note: text for readers of every result, from the module's ``TABLE`` if it has one, for example that nothing was
            tuned for this GPU.
        scratch: device buffers that the variants store between calls (zeroed counters, for example), with any keys:
            the module's ``SCRATCH``. The harness moves them by replacing the entries with other buffers.
    """

    variants: Mapping[str, Variant]
    prepare: Mapping[str, Callable[..., dict[str, Any]]]
    note: str = ""
    scratch: MutableMapping[Any, torch.Tensor] = field(default_factory=dict)
    activations: tuple[str, ...] = ()

    def prepared(self, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that variant ``name`` prepares offline from the suite's inputs; {} for most variants.

        Activations are passed in shuffled order: the preparation sees their layout but cannot compute the result.
        """
        prepare = self.prepare.get(name)
        if prepare is None:
            return {}
        # Deferred: suites and families are also read in processes that must not import torch.
        from lockstep.suite.inputs import shuffled

        arguments = bind(prepare, inputs)
        return prepare(
            **arguments | {name: shuffled(arguments[name]) for name in self.activations if name in arguments}
        )

    def arguments(self, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of variant ``name`` from inputs and offline preparation, except ``out``."""
        return bind(self.variants[name], {**inputs, **self.prepared(name, inputs)})


def takes_out(variant: Variant) -> bool:
    """Return whether the variant writes into given buffers (``out=``) instead of allocating its own."""
    return "out" in inspect.signature(variant).parameters


def load_family(suite: Suite) -> Family:
    """Import the suite's module, and return its variants and the suite's own.

    If the module of an old commit has no ``VARIANTS``, the functions that the current ``VARIANTS`` lists are used.

    Raises:
        NotInCommit: the module is absent (from an old commit, for example) and the suite has no variants of its own.
        ImportError: the module exists but cannot be imported.
        SuiteError: the module has no usable VARIANTS.
    """
    late = functools.cache(_late)  # variants with the same preparation function are prepared once
    own_variants = {name: late(getattr(suite, name)) for name in suite.adapters}
    prepare = {name: late(adapter.prepare) for name, adapter in suite.adapters.items() if adapter.prepare}
    try:
        module = import_module(suite)
    except NotInCommit:
        if not own_variants:
            raise
        module = None
    if module is None:
        return Family(own_variants, prepare, activations=suite.activations)
    prefix = f"{suite.op}." if suite.op else ""
    listed = {n.removeprefix(prefix): _late(f) for n, f in _variants(suite, module).items() if n.startswith(prefix)}
    prepares = getattr(module, "PREPARE", {})
    table = getattr(module, "TABLE", None)
    return Family(
        variants=listed | own_variants,
        prepare={n.removeprefix(prefix): late(f) for n, f in prepares.items() if n.startswith(prefix)} | prepare,
        note=table.note() if table is not None else "",
        scratch=getattr(module, "SCRATCH", {}),
        activations=suite.activations,
    )


def import_module(suite: Suite) -> ModuleType | None:
    """Import the suite's module, if it has one; ``NotInCommit`` if it is absent, ``ImportError`` if it cannot be."""
    if not suite.module:
        return None
    known = len(sys.modules)
    try:
        return importlib.import_module(suite.module)
    except BaseException as error:
        forget_failed_import(error, known)
        if isinstance(error, ModuleNotFoundError) and f"{suite.module}.".startswith(f"{error.name}."):
            raise NotInCommit(suite.module) from error
        raise


def _variants(suite: Suite, module: ModuleType) -> Mapping[str, Variant]:
    variants = getattr(module, "VARIANTS", None)
    if variants is None:
        return {name: getattr(module, code) for name, code in suite.functions.items() if hasattr(module, code)}
    if not isinstance(variants, Mapping):
        raise SuiteError(f"{module.__file__}: VARIANTS must be a dict of name to function")
    return variants


def _late(function: Variant) -> Variant:
    """Return a function that may import modules when called. It raises the errors of ``import_module``."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        known = len(sys.modules)
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            forget_failed_import(error, known)
            # If code under test raised the error, the package is broken, not absent.
            absent = isinstance(error, ImportError) and under_test(error.name or "")
            if absent and not any(frames_under_test(error)):
                lacks = str(error).partition(" (")[0]  # the rest is the path of a temporary folder
                raise NotInCommit(f"such module or name: {lacks}") from error
            raise

    return call
