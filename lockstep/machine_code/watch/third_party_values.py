"""Check values of packages that are not under test, if the code under test calls a function that reads them.

Such a package is imported without being watched. So a value counts as known only if the statements that bind it just
operate on constants and ask what is installed.
"""

from __future__ import annotations

import ast
import dis
import functools
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from lockstep.machine_code.watch.purity import allowed

_FUNCTIONS = (FunctionType, BuiltinFunctionType, ModuleType, type, functools._lru_cache_wrapper)


def unknown_globals(code: CodeType, scope: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each global value that a function reads and that may differ on a GPU.

    Functions, types and modules are left out: they are checked when they are used.
    """
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in scope:
            value = scope[step.argval]
            if isinstance(value, (*_FUNCTIONS, logging.Logger)) or _is_known(step.argval, scope, frozenset()):
                continue
            yield f"reads {scope.get('__name__')}.{step.argval}, which was set while nothing was watched"


def _is_known(name: str, scope: Mapping[str, Any], asking: frozenset[str]) -> bool:
    """Return whether a name's value follows from constants and from what is installed."""
    value = scope.get(name)
    home = getattr(value, "__module__", None)
    if isinstance(value, _FUNCTIONS):
        if isinstance(value, ModuleType):
            return True
        return allowed(str(home), getattr(value, "__qualname__", name))
    if name.startswith("__") and name.endswith("__"):
        return True
    expressions = _bindings(str(scope.get("__file__", ""))).get(name, [])
    if not expressions or name in asking:
        return False
    return all(_is_plain(expression, scope, asking | {name}) for expression in expressions)


def _is_plain(node: ast.AST | None, scope: Mapping[str, Any], asking: frozenset[str]) -> bool:
    if node is None:
        return False
    for part in ast.walk(node):
        match part:
            case ast.Call(func=called) if not _is_allowed(called, scope):
                return False
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if isinstance(scope.get(name), ModuleType):
                if not allowed(scope[name].__name__, attribute) and not isinstance(
                    getattr(scope[name], attribute, None), ModuleType | FunctionType
                ):
                    return False
            case ast.Name(id=name, ctx=ast.Load()):
                if name in scope and not _is_known(name, scope, asking):
                    return False
            case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.Lambda() | ast.NamedExpr():
                return False
    return True


def _is_allowed(called: ast.expr, scope: Mapping[str, Any]) -> bool:
    """Return whether a call is of a module's pure function, or of a method of a known value."""
    if isinstance(called, ast.Name):
        return True  # the name itself is checked elsewhere
    if not isinstance(called, ast.Attribute):
        return False
    root: ast.expr = called
    names: list[str] = []
    while isinstance(root, ast.Attribute):
        names.append(root.attr)
        root = root.value
    value: Any = scope.get(root.id) if isinstance(root, ast.Name) else None
    if not isinstance(value, ModuleType):
        return True  # a method; the value itself is checked separately
    for name in reversed(names):
        home = value
        value = getattr(value, name, None)
    return isinstance(home, ModuleType) and allowed(
        str(getattr(value, "__module__", home.__name__)), getattr(value, "__qualname__", names[0])
    )


@functools.lru_cache(maxsize=256)
def _bindings(file: str) -> Mapping[str, list[ast.expr | None]]:
    """Return the expressions that a module's statements assign to each name; ``None`` for one that cannot be read."""
    try:
        module = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    bindings: dict[str, list[ast.expr | None]] = {}
    plain: set[int] = set()
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                bindings.setdefault(name, []).append(value)
                plain.add(id(target))
            case ast.AnnAssign(target=ast.Name(id=name) as target, value=ast.expr() as value):
                bindings.setdefault(name, []).append(value)
                plain.add(id(target))
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if id(node) not in plain and name in bindings:
                bindings[name].append(None)  # also bound in another scope, for example within a function
            case ast.Global(names=names):
                for name in names:
                    bindings.setdefault(name, []).append(None)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name in bindings:
                bindings[name].append(None)
    return bindings
