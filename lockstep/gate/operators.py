"""Give base and head operators of their own: torch has one registry, in which a name replaces an earlier equal one.

Base's operators are registered under another namespace. ``torch.ops`` finds them by their own name while base's code is
active.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from lockstep.gate.extensions import keep_extensions_apart
from lockstep.gate.namespaces import Sides

#: Added to the namespaces of base.
_OF_BASE = "_lockstep_base"

#: Namespaces of torch itself, whose operators packages extend.
_OF_TORCH = frozenset({"aten", "prims", "prim", "quantized", "_", "higher_order"})

#: Functions of ``torch.library`` whose first argument names an operator.
_BY_NAME = (
    *("custom_op", "triton_op", "define", "impl", "register_kernel", "register_fake", "register_autograd"),
    *("register_autocast", "register_vmap", "register_torch_dispatch"),
)


def keep_apart(sides: Sides, base: str) -> None:
    """Let the packages of base register operators and build extensions apart from now on.

    ``base`` is the name of that side.
    """

    under_test = {*sides.packages, *sides.definitions}

    def own(name: Any, caller: str) -> Any:
        if not isinstance(name, str) or sides.side != base or caller.partition(".")[0] not in under_test:
            return name
        namespace, colons, operator = name.partition("::")
        if namespace in _OF_TORCH or namespace.endswith(_OF_BASE):
            return name
        if not isinstance(vars(torch.ops).get(namespace), _Namespaces):
            setattr(torch.ops, namespace, _Namespaces(namespace, lambda: sides.side == base))
        return f"{namespace}{_OF_BASE}{colons}{operator}"

    for function in _BY_NAME:
        if hasattr(torch.library, function):
            setattr(torch.library, function, _renaming(getattr(torch.library, function), own))
    torch.library.Library.__init__ = _renaming(torch.library.Library.__init__, own, at=1)  # type: ignore[method-assign]
    keep_extensions_apart(own)


def _renaming(original: Callable[..., Any], own: Callable[[Any, str], Any], at: int = 0) -> Any:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        positional = [own(value, caller) if number == at else value for number, value in enumerate(args)]
        named = {key: own(value, caller) if key in _NAMES else value for key, value in kwargs.items()}
        return original(*positional, **named)

    return function


#: Keywords of the argument that names an operator or a namespace.
_NAMES = frozenset({"name", "qualname", "op", "ns"})


class _Namespaces:
    """Finds the operators of a namespace: base's while base's code is active, or else head's."""

    def __init__(self, name: str, of_base: Callable[[], bool]) -> None:
        self._name = name
        self._of_base = of_base
        before = vars(torch.ops).get(name)
        self._head = before if before is not None else type(torch.ops.aten)(name)
        self._base = type(torch.ops.aten)(name + _OF_BASE)

    def __getattr__(self, operator: str) -> Any:
        if not self._of_base():
            return getattr(self._head, operator)
        try:
            return getattr(self._base, operator)
        except AttributeError:
            return getattr(self._head, operator)  # registered by a compiled library, which both sides share
