"""What a function of the code under test mentions and may not use, read from its bytecode before it runs.

Only what calls do not show is looked for here: values, and functions and types written in C, which other C code may
call unseen. Python functions are seen when they run (``lockstep.machine_code.watch``).
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, BuiltinMethodType, CodeType, FunctionType, ModuleType
from typing import Any

from lockstep.machine_code.purity import (
    HIDING_ATTRIBUTES,
    allowed,
    is_foreign,
    may_be_held,
    refused_call,
    spell,
    top,
)

_MISSING = object()
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_FAST = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST_CHECK")
_NOISE = ("CACHE", "PRECALL", "EXTENDED_ARG", "PUSH_NULL", "RESUME", "COPY_FREE_VARS", "MAKE_CELL")


def refused_mentions(
    code: CodeType, scope: Mapping[str, Any], own: frozenset[str], caches: list[Any] | None = None
) -> list[str]:
    """Values that a function of the code under test mentions and may not use; a sentence each.

    Args:
        code: of the function.
        scope: its globals.
        own: top-level packages under test, and those that they may call.
        caches: gets the cached functions of other packages that are mentioned: they run unseen if they remember.
    """
    texts = [one for one in code.co_consts if isinstance(one, str)]
    found = [f"uses {name}" for name in (*code.co_names, *texts) if name in HIDING_ATTRIBUTES]
    for owner, name, value in _mentions(code, scope):
        if value is _MISSING or _seen_when_called(value):
            continue
        foreign = owner is not None and top(owner.__name__) not in own
        if isinstance(value, functools._lru_cache_wrapper):
            inner = inspect.unwrap(value)
            home = str(getattr(inner, "__module__", ""))
            if is_foreign(top(home)):
                if caches is not None and top(home) not in own:
                    caches.append(value)
            elif not allowed(home, getattr(inner, "__qualname__", name)):
                found.append(f"asks {home}.{name}")
            continue
        if isinstance(value, BuiltinFunctionType | BuiltinMethodType):
            found += [reason] if (reason := refused_call(value)) else []
        elif owner is not None and foreign and not isinstance(value, ModuleType | type):
            found += [] if allowed(owner.__name__, name) else [f"asks {owner.__name__}.{name}"]
        elif not may_be_held(value, own):
            found.append(f"uses {spell(value, name)}")
    return found


def _mentions(code: CodeType, scope: Mapping[str, Any]) -> Iterator[tuple[ModuleType | None, str, Any]]:
    """Owner, name and value at the end of each dotted name, as far as it leads through modules."""
    imported: dict[str, Any] = {}  # names of the function that are bound by its imports
    chain: tuple[ModuleType | None, str, Any] | None = None
    module: ModuleType | None = None
    bound: Any = _MISSING
    constants: list[Any] = [None, None]
    for step in dis.get_instructions(code):
        operation, argument = step.opname, step.argval
        if operation in _NOISE:
            continue
        if chain and operation in _ATTRIBUTES and isinstance(chain[2], ModuleType):
            chain = _attribute(chain[2], argument)
            continue
        if chain:
            yield chain
            chain = None
        if operation == "LOAD_CONST":
            constants = [constants[1], argument]
        elif operation == "IMPORT_NAME":
            module = _imported(argument, constants[0], constants[1], scope)
            bound = module
        elif operation == "IMPORT_FROM" and module is not None:
            found = _attribute(module, argument)
            bound = found[2]
            yield found
        elif operation.startswith("STORE_"):
            if bound is not _MISSING:
                imported[str(argument)] = bound
            bound = _MISSING
        elif operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            chain = (None, argument, scope.get(argument, vars(builtins).get(argument, _MISSING)))
        elif operation in _FAST and isinstance(imported.get(argument), ModuleType):
            chain = (None, argument, imported[argument])
    if chain:
        yield chain


def _attribute(owner: ModuleType, name: str) -> tuple[ModuleType, str, Any]:
    return owner, name, vars(owner).get(name, sys.modules.get(f"{owner.__name__}.{name}", _MISSING))


def _imported(name: str, level: Any, names: Any, scope: Mapping[str, Any]) -> ModuleType | None:
    """The module that an import statement has at hand; None where it is not imported."""
    if isinstance(level, int) and level:
        with contextlib.suppress(ImportError, ValueError):
            name = importlib.util.resolve_name("." * level + name, str(scope.get("__package__") or ""))
    return sys.modules.get(name if names else top(name))


def _seen_when_called(value: Any) -> bool:
    """Whether its use runs a Python function, which the watch sees."""
    if isinstance(value, type):
        return any(isinstance(vars(value).get(name), FunctionType) for name in ("__init__", "__new__", "__call__"))
    return isinstance(value, FunctionType)
