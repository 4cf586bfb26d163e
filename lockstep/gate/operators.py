"""Give base and head operators of their own: torch has one registry, in which a name replaces an earlier equal one.

Base's operators are registered under another namespace. ``torch.ops`` finds them by their own name while base's code is
active.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lockstep.gate.extensions import keep_extensions_apart
from lockstep.gate.namespaces import Sides

#: Added to the namespaces of a side, before its name.
_APART = "_lockstep_"

#: Namespaces of torch itself, whose operators packages extend.
_OF_TORCH = frozenset({"aten", "prims", "prim", "quantized", "_", "higher_order"})

#: Functions of ``torch.library`` whose first argument names an operator.
_BY_NAME = (
    *("custom_op", "triton_op", "define", "impl", "register_kernel", "register_fake", "register_autograd"),
    *("register_autocast", "register_vmap", "register_torch_dispatch"),
)


def keep_apart(sides: Sides, *apart: str) -> Callable[[str], None]:
    """Let the packages of some sides register operators and build extensions apart from now on.

    Returns:
        Takes back what the packages of a side have registered with ``torch.library.Library``: two versions cannot both
        replace an operator of torch itself, whose name they share.

    ``apart`` are all sides but one, which keeps the names: "base" is apart, "head" is not.
    """

    under_test = {*sides.packages, *sides.definitions}
    libraries: list[tuple[str | None, weakref.ref[torch.library.Library]]] = []

    def own(name: Any, caller: str) -> Any:
        if not isinstance(name, str) or sides.side not in apart or caller.partition(".")[0] not in under_test:
            return name
        namespace, colons, operator = name.partition("::")
        if namespace in _OF_TORCH or _APART in namespace:
            return name
        if not isinstance(vars(torch.ops).get(namespace), _Namespaces):
            setattr(torch.ops, namespace, _Namespaces(namespace, sides, apart))
        return f"{namespace}{_APART}{sides.side}{colons}{operator}"

    for function in _BY_NAME:
        if hasattr(torch.library, function):
            setattr(torch.library, function, _renaming(getattr(torch.library, function), own))
    original: Any = torch.library.Library.__init__

    @functools.wraps(original)
    def make(library: torch.library.Library, ns: str, *args: Any, **kwargs: Any) -> None:
        caller = _caller()
        if caller.partition(".")[0] in under_test:
            libraries.append((sides.side, weakref.ref(library)))
        original(library, own(ns, caller), *args, **kwargs)

    torch.library.Library.__init__ = make  # type: ignore[assignment, method-assign]
    keep_extensions_apart(own)

    def take_back(side: str) -> None:
        for of_side, reference in libraries:
            if of_side == side and (library := reference()) is not None:
                library._destroy()

    return take_back


def _caller() -> str:
    """Return the name of the module that called the function that called this one."""
    return str(sys._getframe(2).f_globals.get("__name__", ""))


def _renaming(original: Callable[..., Any], own: Callable[[Any, str], Any]) -> Any:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        caller = _caller()
        positional = [own(value, caller) if number == 0 else value for number, value in enumerate(args)]
        named = {key: own(value, caller) if key in _NAMES else value for key, value in kwargs.items()}
        return original(*positional, **named)

    return function


#: Keywords of the argument that names an operator or a namespace.
_NAMES = frozenset({"name", "qualname", "op", "ns"})


class _Namespaces:
    """Finds the operators of a namespace: base's while base's code is active, or else head's."""

    def __init__(self, name: str, sides: Sides, apart: Sequence[str]) -> None:
        self._sides = sides
        before = vars(torch.ops).get(name)
        kind = type(torch.ops.aten)
        self._head = before if before is not None else kind(name)
        self._apart = {side: kind(f"{name}{_APART}{side}") for side in apart}

    def __getattr__(self, operator: str) -> Any:
        if (apart := self._apart.get(self._sides.side or "")) is None:
            return getattr(self._head, operator)
        try:
            return getattr(apart, operator)
        except AttributeError:
            return getattr(self._head, operator)  # registered by a compiled library, which all sides share
