"""Functions of the kernels' packages have types, apart from kernels, whose types Triton finds at each launch."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Decorators of functions that run on the GPU.
COMPILED = ("jit", "constexpr_function")


def untyped(text):
    """Yield the functions of a module that are not compiled and lack a type."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and not any(is_compiled(one) for one in node.decorator_list):
            arguments = node.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            lacking = [one.arg for one in named if one and one.annotation is None and one.arg not in ("self", "cls")]
            if lacking or (node.returns is None and node.name != "__init__"):
                yield node.name


def is_compiled(decorator):
    return any(isinstance(one, ast.Attribute | ast.Name) and name(one) in COMPILED for one in ast.walk(decorator))


def name(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id


def test_functions_that_are_not_compiled_have_types():
    found = {str(path.relative_to(ROOT)): list(untyped(path.read_text())) for path in ROOT.glob("kernels/**/*.py")}
    assert len(found) > 60
    assert {path: names for path, names in found.items() if names} == {}


def test_a_function_without_types_is_found():
    assert list(untyped("def launch(x): ...")) == ["launch"]
    assert list(untyped("@triton.jit\ndef kernel(x): ...")) == []
    assert list(untyped("@gluon.jit(noinline=True)\ndef kernel(x): ...")) == []
