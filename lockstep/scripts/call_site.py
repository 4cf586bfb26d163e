"""Read in a script's text what a call is given: the functions by which its calls differ."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType


def given_names(frame: FrameType) -> Iterator[tuple[str, str]]:
    """Yield position and name of each argument of the call at which a frame is; a lambda has the name that it calls."""
    call = _call_at(frame.f_code, frame.f_lasti)
    if call is not None:
        keywords = [(keyword.arg or "**", keyword.value) for keyword in call.keywords]
        for position, argument in [*((str(at), one) for at, one in enumerate(call.args)), *keywords]:
            if name := _name_of(argument):
                yield position, name


def _name_of(node: ast.expr) -> str:
    """Return the name of a function in an expression: ``norm`` for ``lambda: ops.norm(x)``; "" if there is none."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Lambda(body=inner) | ast.Subscript(value=inner):
            return _name_of(inner)
        case ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial"), args=[inner, *_]):
            return _name_of(inner)
        case ast.Call(func=inner):
            return _name_of(inner)
    return ""


@functools.cache
def _call_at(code: CodeType, instruction: int) -> ast.Call | None:
    """Return the call that an instruction makes; ``None`` if Python does not know its place."""
    place = next(itertools.islice(code.co_positions(), instruction // 2, None), None)
    return _calls(code.co_filename).get((place[1], place[3])) if place else None


@functools.cache
def _calls(file: str) -> dict[tuple[int | None, int | None], ast.Call]:
    """Return the calls of a file by the line and column at which each ends, which no two calls share."""
    tree = parsed(file)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree else ()
    return {(node.end_lineno, node.end_col_offset): node for node in calls}


@functools.cache
def parsed(file: str) -> ast.Module | None:
    """Return the tree of a file; ``None`` for code that was made at run time."""
    try:
        return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
