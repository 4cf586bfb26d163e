"""Write a timed call as source: a function of tensors, how these are drawn, and how its layers are made.

The closure's own text is copied. Its free names become tensors to draw, imports, constants, or copies of functions.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import importlib
import inspect
import math
import re
import sys
import textwrap
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from lockstep.suite.inputs import Draw

#: The longest sorted list of integers, offsets of sequences for example, that is written value by value.
_MOST_VALUES = 64

#: Attribute of a layer that holds what it was made with.
_MADE_WITH = "_lockstep_made_with"

#: Where functions without a module of their own are looked up.
_HOMES = ("torch", "torch.nn.functional", "math")


class Unwritable(ValueError):
    """A call cannot be written as source; the message says why."""


@dataclass(frozen=True)
class Recipe:
    """How a tensor is drawn: function of ``Draw``, shape and order of the axes in memory, and further arguments."""

    function: str
    shape: tuple[Any, ...]
    order: tuple[int, ...]
    arguments: Mapping[str, Any]

    def drawn(self, name: str, device: torch.device | str) -> torch.Tensor:
        """Return the tensor; equal names and recipes give equal values."""
        new = Draw(device, zlib.crc32(name.encode()))
        tensor: torch.Tensor = getattr(new, self.function)(*self.shape, **self.arguments)
        return tensor.permute(self.order) if self.order else tensor


@dataclass(frozen=True)
class CallSource:
    """A timed call as source.

    Attributes:
        prepare: statements that make its layers and return them by name; "" without layers.
        body: statements of the variant, which return its result, or else gradients.
    """

    prepare: str
    body: str
    layers: tuple[str, ...]
    inputs: Mapping[str, Recipe]

    def result(self, device: torch.device | str) -> tuple[dict[str, torch.Tensor], Any]:
        """Draw the inputs and run the source. Imports find the packages of the active version."""
        names: dict[str, Any] = {}
        inputs = {name: recipe.drawn(name, device) for name, recipe in self.inputs.items()}
        exec(f"def prepare({', '.join(inputs)}):\n{indented(self.prepare or 'return {}')}", names)
        exec(f"def body({', '.join([*inputs, *self.layers])}):\n{indented(self.body)}", names)
        return inputs, names["body"](**inputs, **names["prepare"](**inputs))


def indented(source: str, spaces: int = 4) -> str:
    """Return source with each line moved to the right."""
    return textwrap.indent(source, " " * spaces) + "\n"


def record_layers() -> None:
    """Let each layer that is made from now on keep the arguments that it was made with."""
    original = torch.nn.Module.__init__

    def recorded(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        frame, outer = sys._getframe(1), None
        while frame.f_back and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is module:
            frame, outer = frame.f_back, frame
        object.__setattr__(module, _MADE_WITH, dict(outer.f_locals) if outer else {})
        original(module, *args, **kwargs)

    torch.nn.Module.__init__ = recorded  # type: ignore[method-assign, assignment]


def source_of(function: Callable[[], Any], local: Collection[str]) -> CallSource:
    """Return a closure as source; functions of modules in ``local`` are copied. Raise ``Unwritable`` if a value has
    none.
    """
    writer = _Writer(frozenset({"__main__", *local}))
    return writer.finished(ast.unparse(_simplified(ast.Call(writer.value(function, "call"), [], []))))


@dataclass
class _Writer:
    local: frozenset[str]
    inputs: dict[str, Recipe] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    layers: dict[str, str] = field(default_factory=dict)
    weights: list[str] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    graphs: list[str] = field(default_factory=list)
    _known: dict[int, tuple[ast.expr, Any]] = field(default_factory=dict)

    def finished(self, called: str) -> CallSource:
        text = "\n".join([*self.copies.values(), called])
        if any(re.search(rf"\b{name}\.backward\(|\bgrad\(\(?{name}\b", text) for name in self.graphs):
            raise Unwritable("the backward alone of a graph that the script made before")
        backward, lines = ".backward(" in text or "autograd.grad(" in text, [f"return {called}"]
        if ".backward(" in text:
            grads = [f"{name}.grad" for name in self.leaves]
            grads += [f"*(one.grad for one in {name}.parameters())" for name in self.layers]
            lines = [called, f"return ({', '.join(grads)},)"]
        lines = [*self.weights, *_with(self.copies, lines)]
        if backward:
            lines = [f"{name}.zero_grad(set_to_none=True)" for name in self.layers] + lines
            lines = [f"{name} = {name}.detach().requires_grad_()" for name in self.leaves] + lines
        if backward or self.layers:  # an output of a layer has a graph otherwise, and nobody may write into it
            self.imports["torch"] = "import torch"
            block = indented("\n".join(lines))
            lines = [f"with torch.{'enable_grad' if backward else 'no_grad'}():\n{block}"]
        made = ", ".join(f'"{name}": {name}' for name in self.layers)
        prepare = _with(self.copies, [*self.layers.values(), f"return {{{made}}}"]) if self.layers else []
        prepare, lines = (_with(self.imports, part) for part in (prepare, lines))
        return CallSource("\n".join(prepare), "\n".join(lines), tuple(self.layers), self.inputs)

    def value(self, value: Any, hint: str) -> ast.expr:
        """Return the expression of a value that the script calls ``hint``."""
        if isinstance(value, torch.device) or value in ("cuda", "cpu"):  # the device of an input, not of this machine
            return _parsed(f"{next(iter(self.inputs))}.device" if self.inputs else "'cpu'")
        if value is None or isinstance(value, bool | int | float | str):
            return _parsed(
                repr(value) if value == value and value not in (math.inf, -math.inf) else f"float('{value}')"
            )
        if isinstance(value, torch.dtype):
            self.imports["torch"] = "import torch"
            return _parsed(str(value))
        if isinstance(value, tuple | list):
            parts = [self.value(part, hint) for part in value]
            return ast.List(parts, ast.Load()) if isinstance(value, list) else ast.Tuple(parts, ast.Load())
        if type(value) is dict:
            parts = [self.value(part, str(name)) for name, part in value.items()]
            return ast.Dict([self.value(name, hint) for name in value], parts)
        if id(value) not in self._known:
            self._known[id(value)] = self._object(value, hint), value  # the value is kept, so that its id stays its own
        return self._known[id(value)][0]

    def _object(self, value: Any, hint: str) -> ast.expr:
        if isinstance(value, torch.Tensor):
            name = self._free(hint)
            self.inputs[name] = _recipe(value.detach(), name)
            self.leaves += [name] if value.requires_grad else []
            self.graphs += [name] if value.grad_fn is not None else []
            return ast.Name(name, ast.Load())
        if isinstance(value, torch.nn.Module):
            return self._layer(value, hint)
        if isinstance(value, ModuleType):
            return self._import(f"import {value.__name__}", value.__name__, hint)
        if isinstance(value, functools.partial):
            self.imports["functools"] = "import functools"
            positional = [self.value(part, f"{hint}_{number}") for number, part in enumerate(value.args)]
            keywords = [ast.keyword(name, self.value(part, name)) for name, part in value.keywords.items()]
            return ast.Call(_parsed("functools.partial"), [self.value(value.func, hint), *positional], keywords)
        if isinstance(value, MethodType):
            return ast.Attribute(self.value(value.__self__, hint), value.__name__, ast.Load())
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._made(
                type(value), {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
            )
        if not isinstance(value, type) and hasattr(value, "to_diff_dict"):  # a configuration of transformers
            return self._made(type(value), value.to_diff_dict())
        name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
        for module in filter(None, [getattr(value, "__module__", None), *_HOMES]):
            if module.partition(".")[0] in self.local or not name.isidentifier():
                continue
            try:
                home = importlib.import_module(module)
            except ImportError:  # a part of an extension, which has no name of its own
                continue
            if getattr(home, name, None) is value:
                return self._import(f"from {module} import {name}", name, name)
        if isinstance(value, FunctionType | type):
            return self._copy(value)
        raise Unwritable(f"{hint} is a {type(value).__module__}.{type(value).__qualname__}, which has no source")

    def _import(self, line: str, name: str, hint: str) -> ast.expr:
        if line.split()[1].partition(".")[0] in self.local:
            raise Unwritable(f"{name} is a module beside the script")
        shown = self._free(hint)
        self.imports[shown] = line if shown == name else f"{line} as {shown}"
        return ast.Name(shown, ast.Load())

    def _free(self, name: str) -> str:
        """Return the name, or one like it that is not in use."""
        name = re.sub(r"\W+", "_", name).strip("_") or "value"
        taken = {*self.inputs, *self.layers, *self.copies, *self.imports, *vars(builtins), "self", "new"} - {"torch"}
        return next(one for one in [name, *(f"{name}_{number}" for number in range(2, 999))] if one not in taken)

    def _layer(self, layer: torch.nn.Module, hint: str) -> ast.expr:
        if (given := getattr(layer, _MADE_WITH, None)) is None:
            raise Unwritable(f"the layer {hint} was made before the script ran")
        made = ast.unparse(self._made(type(layer), given))
        name = self._free(hint if hint not in self.inputs else type(layer).__name__.lower())
        self.layers[name] = f"{name} = {made}"
        for number, (path, weight) in enumerate(layer.named_parameters()):
            shown = self._free(path.replace(".", "_"))
            self.inputs[shown] = _recipe(weight.detach(), path)
            self.layers[name] += "" if number else f".to({shown}.device)"
            # The buffers of an input differ from call to call, and from round to round.
            self.weights.append(f'{name}.get_parameter("{path}").data = {shown}')
        self.layers[name] += "" if layer.training else f"\n{name}.eval()"
        return ast.Name(name, ast.Load())

    def _made(self, kind: type, given: Mapping[str, Any]) -> ast.expr:
        """Return the call that makes an object, without arguments that have their default."""
        positional, keywords = list[ast.expr](), list[ast.keyword]()
        for name, parameter in inspect.signature(kind).parameters.items():
            value, default = given.get(name, parameter.default), parameter.default
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional = [*(one.value for one in keywords), *(self.value(part, name) for part in value)]
                keywords = []
            elif parameter.kind is parameter.VAR_KEYWORD:
                keywords += [ast.keyword(key, self.value(part, key)) for key, part in given.get(name, {}).items()]
            elif value is not default and not (isinstance(value, int | float | str) and value == default):
                keywords.append(ast.keyword(name, self.value(value, name)))
        return ast.Call(self.value(kind, kind.__name__), positional, keywords)

    def _copy(self, value: FunctionType | type) -> ast.expr:
        """Return a lambda with its free names replaced, or the name of such a copy of a function or class."""
        node = _syntax(value)
        if not isinstance(value, FunctionType):
            scope = dict(vars(sys.modules[value.__module__]))
        else:
            scope = dict(value.__globals__)
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                scope[name] = cell.cell_contents
            # A parameter with a default holds a value of the loop around the function.
            defaults = dict(
                zip(
                    reversed(value.__code__.co_varnames[: value.__code__.co_argcount]),
                    reversed(value.__defaults__ or ()),
                    strict=False,
                )
            )
            node.args.defaults = [
                self.value(defaults[one.arg], one.arg) for one in node.args.args if one.arg in defaults
            ]
        if not isinstance(node, ast.Lambda):
            node.name, node.decorator_list = self._free(node.name), []
            self._known[id(value)] = ast.Name(node.name, ast.Load()), value  # it may name itself
        copy = _simplified(_Substitution(self, scope, node).visit(node))
        if isinstance(node, ast.Lambda):
            return copy  # type: ignore[no-any-return]
        self.copies[node.name] = ast.unparse(copy)
        return ast.Name(node.name, ast.Load())


class _Substitution(ast.NodeTransformer):
    """Replaces the free names of a copied function by the expressions of their values, and drops its annotations."""

    def __init__(self, writer: _Writer, scope: Mapping[str, Any], node: ast.AST) -> None:
        self._writer, self._scope = writer, scope
        self._bound = {"super", *(one.arg for one in ast.walk(node) if isinstance(one, ast.arg))}
        for one in ast.walk(node):
            match one:
                case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) if one is not node:
                    self._bound.add(name)
                case ast.alias(name=name, asname=shown):
                    self._bound.add(shown or name.partition(".")[0])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._bound or (node.id not in self._scope and hasattr(builtins, node.id)):
            return node
        if node.id in self._scope:
            return self._writer.value(self._scope[node.id], node.id)
        raise Unwritable(f"{node.id} is not set")

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


class _Simplify(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Write ``f(*(x, y))`` as ``f(x, y)``, and a call of a lambda or a partial function as its body or function."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "backward" and node.args:
            # A random upstream gradient would let the result change from call to call.
            node.args[0] = _parsed(ast.unparse(node.args[0]).replace("torch.randn_like(", "torch.ones_like("))
        starred = [
            one.value.elts if isinstance(one, ast.Starred) and isinstance(one.value, ast.Tuple) else [one]
            for one in node.args
        ]
        node.args = [part for some in starred for part in some]
        if isinstance(node.func, ast.Lambda) and not node.args and not node.keywords and not node.func.args.args:
            return node.func.body
        if isinstance(node.func, ast.Call) and ast.unparse(node.func.func) == "functools.partial":
            inner = node.func
            return ast.Call(inner.args[0], [*inner.args[1:], *node.args], [*inner.keywords, *node.keywords])
        return node


def _simplified(node: Any) -> Any:
    return ast.fix_missing_locations(_Simplify().visit(node))


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _with(named: Mapping[str, str], lines: Sequence[str]) -> list[str]:
    """Return lines below the imports, or copies of functions, that they need."""
    found = list(lines)
    for name, text in reversed(list(named.items())):
        found = [text, *found] if any(re.search(rf"\b{name}\b", line) for line in found) else found
    return found


def _syntax(value: FunctionType | type) -> Any:
    """Return the syntax of a function, lambda or class."""
    try:
        if value.__name__ != "<lambda>":
            return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
        code: CodeType = value.__code__  # type: ignore[union-attr]
        first = min((line, column) for line, _, column, end in code.co_positions() if end)
        lambdas = (
            one for one in ast.walk(ast.parse(Path(code.co_filename).read_bytes())) if isinstance(one, ast.Lambda)
        )
        return next(one for one in lambdas if (one.body.lineno, one.body.col_offset) == first)
    except (OSError, TypeError, SyntaxError, StopIteration) as error:
        raise Unwritable(f"{value.__name__} has no source") from error


def _recipe(tensor: torch.Tensor, name: str) -> Recipe:
    """Return how to draw a tensor like this one."""
    if tensor.dtype.is_complex or tensor.layout != torch.strided or not tensor.numel():
        raise Unwritable(f"{name} is an empty, complex or sparse tensor")
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    back = () if order == sorted(order) else tuple(order.index(axis) for axis in range(tensor.dim()))
    shape, dtype = tuple(tensor.shape[axis] for axis in order), {"dtype": str(tensor.dtype).removeprefix("torch.")}
    sample = tensor.flatten()[: 1 << 20]
    if not tensor.dtype.is_floating_point:
        numbers = sample.long()
        if tensor.dim() == 1 and len(numbers) <= _MOST_VALUES and bool((numbers.diff() >= 0).all()):
            return Recipe("tensor", (numbers.tolist(),), (), dtype)
        limits = {"low": int(numbers.min()), "high": int(numbers.max()) + 1}
        return Recipe("integers", shape, back, {**limits, **dtype})
    low, high, spread = (
        _rounded(one) for one in (sample.float().min(), sample.float().max(), sample.float().std(correction=0))
    )
    if low < 0 < high:
        return Recipe("normal", shape, back, {**dtype, "scale": 1.0 if 0.8 < spread < 1.25 else spread})
    return Recipe("uniform", shape, back, {"low": low, "high": high, **dtype})


def _rounded(value: torch.Tensor) -> float:
    return float(f"{float(value):.3g}")
