"""What can be read of a suite or a family from its source, without running it."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def literal_entries(tree: ast.Module, name: str) -> dict[str, ast.expr] | None:
    """Entries of the dict literal that is assigned to ``name`` at the top level; None if there is no such literal."""
    # Backwards: as in Python, the last assignment counts.
    for node in reversed(tree.body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id == name and isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            named = [(k.value, v) for k, v in pairs if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            return dict(named) if len(named) == len(value.keys) else None
    return None


def code_of(function: Callable[..., Any], seen: set[str]) -> list[str]:
    """Source of a suite's function without comments, docstrings and layout, and of what it uses of its module.

    Helpers and constants of the same module count: editing ``sizes()`` changes what is measured.
    """
    module = inspect.getmodule(function)
    functions = _functions(inspect.getsource(module)) if module else {}
    own = [_undocumented(node) for node in functions.get(function.__code__.co_firstlineno, ())]
    parts = [ast.unparse(node) for node in own]
    # From the source and in its order: bytecode keeps the names of a comprehension apart, or not, as Python's
    # version has it.
    names = [name for node in own for name in ast.walk(node) if isinstance(name, ast.Name)]
    for name in sorted(names, key=lambda name: (name.lineno, name.col_offset)):
        used = function.__globals__.get(name.id)
        if name.id in seen:
            continue
        seen.add(name.id)
        if inspect.isfunction(used) and used.__module__ == function.__module__:
            parts += code_of(used, seen)
        elif isinstance(used, int | float | str | tuple):
            parts.append(f"{name.id}={used!r}")
    return parts


@functools.cache
def _functions(source: str) -> Mapping[int, Sequence[ast.FunctionDef | ast.Lambda]]:
    """The functions of a module by their first lines. Kept: a suite asks for a dozen, and parsing takes 10 ms."""
    found: dict[int, list[ast.FunctionDef | ast.Lambda]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            found.setdefault(_first_line(node), []).append(node)
    return found


def _undocumented(node: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef | ast.Lambda:
    if isinstance(node, ast.Lambda) or ast.get_docstring(node) is None:
        return node
    bare = copy.copy(node)
    bare.body = node.body[1:] or [ast.Pass()]
    return bare


def _first_line(node: ast.FunctionDef | ast.Lambda) -> int:
    """Where Python says the function begins: at its first decorator."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
