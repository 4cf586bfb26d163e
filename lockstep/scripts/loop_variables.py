"""Name a timed call by the variables of the loops around it, as a script without arguments has them."""

from __future__ import annotations

import ast
import functools
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from lockstep.scripts.call_site import parsed

#: Folders of installed code, whose loops are not the script's.
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def loop_variables(caller: FrameType, script: Path) -> dict[str, Any]:
    """Return the variables of the loops around a call, the outermost first; a function stands for its name.

    The frames are those from ``caller`` to the outermost one of the script, without installed code. Variables that
    begin with "_" are left out.
    """
    frames: list[FrameType] = []
    script_ends = 0
    frame: FrameType | None = caller
    while frame is not None:
        frames.append(frame)
        if Path(frame.f_code.co_filename) == script:
            script_ends = len(frames)
        frame = frame.f_back
    found: dict[str, Any] = {}
    for one in reversed(frames[:script_ends]):
        if not one.f_code.co_filename.startswith(_INSTALLED):
            names = _targets(one.f_code.co_filename, one.f_lineno)
            found |= {name: named(one.f_locals[name]) for name in names if name in one.f_locals}
    return found


def named(value: Any) -> Any:
    """Return the name of a function, class or kernel; a lambda has none. Return other values as they are."""
    name = getattr(value, "__name__", "") if callable(value) else ""
    return name if isinstance(name, str) and name.isidentifier() else value


@functools.cache
def _targets(file: str, line: int) -> tuple[str, ...]:
    """Return the variables of the loops and comprehensions whose bodies hold this line, the outermost first."""
    return tuple(
        name.id
        for first, last, targets in _loops(file)
        if first <= line <= last
        for target in targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and not name.id.startswith("_")
    )


@functools.cache
def _loops(file: str) -> tuple[tuple[int, int, list[ast.expr]], ...]:
    """Return first and last line of the body of each loop, and what it assigns to, in the order of the file."""
    tree = parsed(file)
    return tuple(_loops_below(tree)) if tree else ()


def _loops_below(node: ast.AST) -> Iterator[tuple[int, int, list[ast.expr]]]:
    match node:
        case ast.For() | ast.AsyncFor():
            yield node.body[0].lineno, node.body[-1].end_lineno or 0, [_named_target(node)]
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            yield node.lineno, node.end_lineno or 0, [*map(_named_target, node.generators)]
    for below in ast.iter_child_nodes(node):
        yield from _loops_below(below)


def _named_target(loop: ast.For | ast.AsyncFor | ast.comprehension) -> ast.expr:
    """Return what a loop assigns to, without the count of ``enumerate``, which moves when a value is added."""
    match loop.iter, loop.target:
        case ast.Call(func=ast.Name(id="enumerate")), ast.Tuple(elts=[_, value]):
            return value
    return loop.target
