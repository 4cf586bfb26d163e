"""Digest what decides a tuned kernel and its list of configurations, besides the arguments of a call."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

from lockstep.timing.tuners.choices import digest


def source_of(tuner: Any) -> str:
    """Return a digest of a tuner's kernel, of all that it calls, of heuristics beside it, and of what prunes its list.

    Comments, formatting and line numbers do not count.
    """
    parts = [str(tuner.configs_top_k)]
    parts += [_code(function) for function in (tuner.early_config_prune, tuner.perf_model) if function is not None]
    kernel, inner = tuner, tuner.fn
    while not inspect.isfunction(inner):
        for name, heuristic in getattr(inner, "values", {}).items():
            parts += [name, _code(heuristic)]
        kernel, inner = inner, inner.fn
    return digest(*parts, *dict.fromkeys(_texts(kernel, set())))


def _texts(kernel: Any, seen: set[int]) -> Iterator[str]:
    """Yield the syntax tree of a kernel and of the functions that it calls, and the constants that they use."""
    seen.add(id(kernel))
    function = kernel.fn
    text = getattr(kernel, "src", None) or inspect.getsource(function)
    text = textwrap.dedent(text)
    begin = re.search(r"^(async\s+)?def\s", text, re.MULTILINE)  # decorators hold the list of configurations
    yield ast.dump(ast.parse(text[begin.start() if begin else 0 :]))
    names = {name for code in _nested(function.__code__) for name in (*code.co_names, *code.co_freevars)}
    closed = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    scope = function.__globals__ | {name: cell.cell_contents for name, cell in closed}
    for name in sorted(names & scope.keys()):
        value = scope[name]
        if isinstance(value, ModuleType):
            found = [vars(value)[part] for part in sorted(names & vars(value).keys())]
        else:
            found = [value]
        for one in found:
            if inspect.isfunction(getattr(one, "fn", None)):
                # Triton's own functions belong to the toolchain.
                if id(one) not in seen and not one.fn.__module__.startswith("triton."):
                    yield from _texts(one, seen)
            elif isinstance(getattr(one, "value", one), int | float | str | bool | tuple):
                yield f"{name}={one}"


def _code(function: Any) -> str:
    """Return the code of a Python function as text, without its lines."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return repr(type(function))
    values = [cell.cell_contents for cell in function.__closure__ or ()]
    constants = [[one for one in part.co_consts if not isinstance(one, CodeType)] for part in _nested(code)]
    simple = [one for one in values if isinstance(one, int | float | str | bool | tuple)]
    return repr(([(part.co_code, part.co_names) for part in _nested(code)], constants, simple))


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
