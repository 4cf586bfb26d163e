"""The thing measured: a family module of the package under test, loaded by name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lockstep.suite.model import Suite, SuiteError, bind

if TYPE_CHECKING:
    import torch

Variant = Callable[..., Any]


@dataclass(frozen=True)
class Family:
    """Variants of one family (or of one op in it) and how their weights are prepared offline.

    Attributes:
        variants: name to function of tensors.
        prepare: name to a function from the suite's inputs to extra named arguments (packed
            weights, say). It runs before timing, never inside it.
        note: what a reader of any of its results must know, told by the module's ``TABLE`` if it has one: that
            nothing was tuned for this GPU, say.
        scratch: device buffers that the variants keep between calls (zeroed counters, say), by any name, as the
            module's ``SCRATCH`` has them. The harness lays them elsewhere by putting others in their place.
    """

    variants: Mapping[str, Variant]
    prepare: Mapping[str, Callable[..., dict[str, Any]]]
    note: str = ""
    scratch: MutableMapping[Any, torch.Tensor] = field(default_factory=dict)

    def prepared(self, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What variant ``name`` prepares offline from the suite's inputs; nothing for most variants."""
        prepare = self.prepare.get(name)
        return prepare(**bind(prepare, inputs)) if prepare else {}

    def arguments(self, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of variant ``name``, ``out`` left out."""
        return bind(self.variants[name], {**inputs, **self.prepared(name, inputs)})


def takes_out(variant: Variant) -> bool:
    """Whether the variant writes into buffers it is given (``out=``) instead of allocating its own."""
    return "out" in inspect.signature(variant).parameters


def load_family(suite: Suite) -> Family:
    """Import ``package.family`` and pick the suite's variants.

    A module without ``VARIANTS``, of a commit from before there were any, is asked for the functions of today's.

    Raises:
        ModuleNotFoundError: the package or the module is absent (an old commit, say).
        SuiteError: the module has no usable VARIANTS.
    """
    module = importlib.import_module(f"{suite.package}.{suite.family}")
    variants = getattr(module, "VARIANTS", None)
    if variants is None:
        variants = {name: getattr(module, code) for name, code in suite.functions.items() if hasattr(module, code)}
    if not isinstance(variants, Mapping):
        raise SuiteError(f"{module.__file__}: VARIANTS must be a dict of name to function")
    prefix = f"{suite.op}." if suite.op else ""
    prepare = getattr(module, "PREPARE", {})
    table = getattr(module, "TABLE", None)
    return Family(
        variants={n.removeprefix(prefix): f for n, f in variants.items() if n.startswith(prefix)},
        prepare={n.removeprefix(prefix): f for n, f in prepare.items() if n.startswith(prefix)},
        note=table.note() if table is not None else "",
        scratch=getattr(module, "SCRATCH", {}),
    )
