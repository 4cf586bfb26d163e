"""What can be read of a suite or a family from its source, without running it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any


def literal_keys(tree: ast.Module, name: str) -> list[str] | None:
    """Keys of the dict literal that is assigned to ``name`` at the top level; None if there is no such literal."""
    # Backwards: as in Python, the last assignment counts.
    for node in reversed(tree.body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id == name and isinstance(value, ast.Dict):
            keys = [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            return keys if len(keys) == len(value.keys) else None
    return None


def code_of(function: Callable[..., Any], seen: set[str]) -> list[str]:
    """Source of a suite's function without comments, docstrings and layout, and of what it uses of its module.

    Helpers and constants of the same module count: editing ``sizes()`` changes what is measured.
    """
    module = inspect.getmodule(function)
    tree = ast.parse(inspect.getsource(module)) if module else ast.Module([], [])
    own = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.Lambda) and _first_line(node) == function.__code__.co_firstlineno
    ]
    for node in own:
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
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


def _first_line(node: ast.FunctionDef | ast.Lambda) -> int:
    """Where Python says the function begins: at its first decorator."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
