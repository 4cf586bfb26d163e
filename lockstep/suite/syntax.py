"""Read pieces of Python source: functions by their lines, and names that a statement binds."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence

Definition = ast.FunctionDef | ast.Lambda


def bound_names(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds or changes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return set()
    # Also ``TABLE["a"] = 1``, ``SHAPES.append(2)``, and names bound within an if, for or with.
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & _targets(node)


def _targets(node: ast.stmt) -> set[str]:
    def base(target: ast.expr) -> Iterator[str]:
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                yield from base(part)
            return
        while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
            target = target.value
        if isinstance(target, ast.Name):
            yield target.id

    names: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Assign):
            names.update(name for target in part.targets for name in base(target))
        elif isinstance(part, ast.AnnAssign | ast.AugAssign | ast.For):
            names.update(base(part.target))
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            names.update(base(part.func))
        elif isinstance(part, ast.withitem) and part.optional_vars is not None:
            names.update(base(part.optional_vars))
    return names


@functools.cache
def parsed_code(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a module without docstrings, parsed once a process."""
    return without_docstrings(ast.parse(source))


def without_docstrings(tree: ast.Module) -> ast.Module:
    """Remove every docstring of a module's syntax tree, in place, and return the tree."""
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if ast.get_docstring(node, clean=False) is not None:
                    node.body = node.body[1:] or [ast.Pass()]
    return tree


@functools.cache
def functions_by_line(source: str) -> Mapping[int, Sequence[Definition]]:
    """Return the functions of a module by first line. Cached: a suite needs a dozen, and a walk takes 10 ms."""
    functions: dict[int, list[Definition]] = {}
    for node in ast.walk(parsed_code(source)):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            functions.setdefault(_first_line(node), []).append(node)
    return functions


def _first_line(node: Definition) -> int:
    """Return the line at which Python reports that the function begins: that of its first decorator."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
