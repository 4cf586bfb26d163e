"""Find the functions that a variant runs, so that no other variant can replace them.

Variants of a family share one process and often one module. A variant that slows the baseline would win every
comparison.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

#: An object whose ``__dict__`` holds a function (a module or a stand-in for one), and the function's name in it.
Place = tuple[Any, str]


def places_of(variants: Mapping[str, Any]) -> Iterator[Place]:
    """Yield the places (owner and name) of all functions that the variants run: the variants themselves, and functions
    of the variants' packages that they mention, directly or through other functions.

    Of other packages, such as torch, only the names that a variant itself mentions are yielded. Other objects, such as
    a cache or a counter of a module, are left out, because they may change.
    """
    packages = {_package(function) for function in map(_plain, variants.values()) if function is not None}
    checked: set[int] = set()
    for name, variant in variants.items():
        pending: list[Place] = [(_holder(name, variant), "function")]
        direct = True
        while pending:
            owner, attribute = pending.pop()
            yield owner, attribute
            function = _plain(vars(owner)[attribute])
            if function is None or id(function) in checked or not (direct or _package(function) in packages):
                continue
            direct = False
            checked.add(id(function))
            yield _holder(function.__name__, function), "function"
            pending += _named_by(function)


class _Holder:
    """Stands in for a module as the owner in a ``Place``: it holds a single function, or the globals of a function."""


def _holder(name: str, function: Any) -> _Holder:
    holder = _Holder()
    holder.__dict__ = {"__name__": name, "function": function}
    return holder


def _named_by(function: FunctionType) -> list[Place]:
    """Return the places (owner and name) of callables that a function mentions: globals, of modules, of its closure."""
    places: list[Place] = []
    names, stored = _names(function.__code__)
    module_globals = _Holder()
    module_globals.__dict__ = function.__globals__
    for name in sorted(names - stored):
        value = function.__globals__.get(name, sys.modules.get(name))
        if isinstance(value, ModuleType):
            # Triton's interpreter replaces functions of Triton's language while a kernel runs.
            if value.__name__.partition(".")[0] != "triton":
                places += [(value, mentioned) for mentioned in names if callable(vars(value).get(mentioned))]
        elif callable(value):
            places.append((module_globals, name))
    for cell in function.__closure__ or ():
        value = _content(cell)
        if _plain(value) is not None:
            places.append((_holder(getattr(value, "__name__", "a closure"), value), "function"))
    return places


@functools.lru_cache(maxsize=4096)  # called again for every case
def _names(code: CodeType) -> tuple[set[str], set[str]]:
    """Return the names that code and its inner functions mention, and the globals that they assign."""
    names = set(code.co_names)
    stored = {
        str(instruction.argval) for instruction in dis.get_instructions(code) if instruction.opname == "STORE_GLOBAL"
    }
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more, more_stored = _names(inner)
            names, stored = names | more, stored | more_stored
    return names, stored


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _plain(value: Any) -> FunctionType | None:
    """Return the Python function of a partial, a method or a jitted kernel; None for any other callable."""
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, MethodType):
        value = value.__func__
    value = value if isinstance(value, FunctionType) else vars(value).get("fn") if hasattr(value, "__dict__") else None
    return value if isinstance(value, FunctionType) else None


def _package(function: FunctionType) -> str:
    return function.__module__.partition(".")[0]
