"""Write suites for the calls that a script times: each call as source, and what its cases have in common."""

from __future__ import annotations

import ast
import itertools
import json
import keyword
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import torch

from lockstep.scripts.call_names import CallName
from lockstep.scripts.call_source import CallSource, Recipe, Unwritable, indented, record_layers, source_of
from lockstep.scripts.compare_outputs import wrong_output
from lockstep.scripts.plan import axes_of
from lockstep.scripts.timed_call import TimedCall
from lockstep.suite.definition import Suite
from lockstep.suite.inputs import tensors_of
from lockstep.timing.checks.check import brief

#: Axes of a case.
Axes = Mapping[str, Any]

#: Arguments that ``Draw`` takes if none are given.
_USUAL = {"dtype": "bfloat16", "scale": 1.0}

_HEAD = '''"""Suites for what {script} times, written by ``lockstep adopt``: yours to edit.

State a reference and the operations where you know them. Without a reference the baseline's result is it.
"""

from lockstep import Case, Cost, Suite, variant


'''


@dataclass(frozen=True)
class _Found:
    """A call at a case: its source, and shape and bytes of an element of each input and output."""

    axes: Axes
    source: CallSource
    sizes: Sequence[tuple[Sequence[int], int]]


@dataclass
class _Alike:
    """The variants of a report whose results agree: the result of the first one, at its first case."""

    report: str
    case: str
    outputs: list[torch.Tensor]
    variants: dict[str, list[_Found]] = field(default_factory=dict)


@dataclass
class Adoption:
    """Writes timed calls as source, runs what it wrote, and joins in a suite the variants whose results agree.

    Attributes:
        local: modules beside the script, whose functions are copied; all others are imported.
        device: where inputs are drawn.
        left_out: the variants that could not be written, by the reason.
    """

    local: Collection[str]
    packages: Sequence[str]
    device: torch.device | str
    left_out: dict[str, list[str]] = field(default_factory=dict)
    _suites: list[_Alike] = field(default_factory=list)
    _recipes: dict[tuple[Any, ...], Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        record_layers()

    def add(self, name: CallName, call: TimedCall) -> None:
        """Write a call; run it on inputs that it draws."""
        case, variant = name.labels
        try:
            source = source_of(call.function, self.local)
            source = replace(source, inputs={name: self._alike(case, name, one) for name, one in source.inputs.items()})
            with torch.no_grad():
                (inputs, result), (_, again) = source.result(self.device), source.result(self.device)
            outputs = [one.clone() for one in tensors_of(result)]
            if not outputs or wrong_output(outputs, tensors_of(again)):
                raise Unwritable("it returns no result" if not outputs else "its result changes from call to call")
        except Exception as error:
            why = str(error) if isinstance(error, Unwritable) else brief(error)
            self.left_out.setdefault(why, []).append(variant)
            return
        sizes = [(list(one.shape), one.element_size()) for one in [*inputs.values(), *outputs]]
        own = [suite for suite in self._suites if suite.report == name.report]
        alike = (suite for suite in own if suite.case == case and not wrong_output(suite.outputs, outputs))
        home = next((suite for suite in own if name.own in suite.variants), None) or next(alike, None)
        if home is None:
            home = _Alike(name.report, case, outputs)
            self._suites.append(home)
        like = home.variants.setdefault(name.own, [])
        if not like or _structure(like[0].source) == _structure(source):
            like.append(_Found(axes_of(case), source, sizes))
        else:
            self.left_out.setdefault("its text differs from that of another case", []).append(f"{variant} at {case}")

    def _alike(self, case: str, name: str, recipe: Recipe) -> Recipe:
        """Return the recipe by which an earlier variant draws this input: random weights differ in their limits."""
        key = (case, name, recipe.function, repr(recipe.shape), recipe.arguments["dtype"])
        return replace(recipe, arguments=self._recipes.setdefault(key, recipe.arguments))

    def text(self, script: str, calls: Sequence[CallName]) -> str:
        """Return the source of a module of suites; "" if no call could be written. ``calls`` are all of the script."""
        several, suites = len(self._suites) > 1, []
        for suite in self._suites:
            alone = [one.report for one in self._suites].count(suite.report) == 1
            words = [suite.report] if suite.report and alone else [suite.report, next(iter(suite.variants))]
            own = [(name.labels[0], name.own) for name in calls if name.report == suite.report]
            made = _SuiteText(own, suite.variants, self.packages)
            suites.append(made.text(_method(" ".join(words)), several))
        return _HEAD.format(script=script) + "\n\n".join(suites) if suites else ""


def _structure(source: CallSource) -> Any:
    """Return what the source of a call must have in common at all cases: everything but constants and sizes."""
    text = re.sub(r"Constant\(value=('[^']*'|[^()]*)\)", "", ast.dump(ast.parse(f"{source.prepare}\n{source.body}")))
    return text, [(name, one.function, one.order, len(one.shape)) for name, one in source.inputs.items()]


@dataclass
class _SuiteText:
    calls: Sequence[tuple[str, str]]
    variants: Mapping[str, list[_Found]]
    packages: Sequence[str]
    tables: bool = False
    axes: set[str] = field(default_factory=set)

    def text(self, op: str, has_op: bool) -> str:
        first, draw, prepares, methods = next(iter(self.variants.values())), dict[str, str](), "", ""
        for variant, found in self.variants.items():
            name, mark = _method(variant), "@variant"
            draw |= {one: self._drawn([at.source.inputs[one] for at in found], found) for one in found[0].source.inputs}
            prepare = self._joined([one.source.prepare for one in found], found)
            body = self._joined([one.source.body for one in found], found)
            known = [*found[0].source.inputs, *sorted(self.axes)]
            if prepare:
                mark = f"@variant(prepare=_{name}_layers)"
                prepares += f"def _{name}_layers({_used(known, prepare)}):\n{indented(prepare)}\n\n"
            given = _used([*known, *found[0].source.layers], body)
            methods += f"    {mark}\n    def {name}(self, {given}):\n{indented(body, 8)}\n"
        bytes_ = " + ".join(self._bytes([one.sizes[at] for one in first], first) for at in range(len(first[0].sizes)))
        uses = re.compile(rf"(from|import) ({'|'.join(self.packages) or '-'})\b")
        free = [one for one, of in self.variants.items() if not uses.search(of[0].source.body + of[0].source.prepare)]
        cases, quick = ", ".join(map(_case, self._cases())), _case(first[0].axes)
        axes = ", ".join(first[0].axes)
        drawn = "".join(f'            "{name}": {text},\n' for name, text in draw.items())
        drawn += "".join(f'            "{axis}": {axis},\n' for axis in sorted(self.axes))
        return (
            f"{prepares}class {''.join(part.title() for part in op.split('_'))}(Suite):\n"
            + (f'    op = "{op}"\n' if has_op else "")
            + f'    version = "1"\n    baseline = "{_method((free or list(self.variants))[0])}"\n'
            f"    cases = ({cases},)\n    quick = ({quick},)\n\n"
            f"    def draw(self, new, {axes}):\n        return {{\n{drawn}        }}\n\n"
            f"    def cost(self, {axes}):  # state the operations\n"
            f"        return Cost(flops=0.0, bytes=float({bytes_}))\n\n"
            f"{methods.rstrip()}\n"
        )

    def _cases(self) -> list[Axes]:
        """Return the cases of all variants: the script's; those that were written if a table holds their values."""
        written = [[one.axes for one in found] for found in self.variants.values()]
        every = [[axes_of(case) for case, name in self.calls if name == variant] for variant in self.variants]
        first, *others = written if self.tables else every
        return [axes for axes in first if all(axes in other for other in others)]

    def _drawn(self, recipes: Sequence[Recipe], found: Sequence[_Found]) -> str:
        words = self._sizes([one.shape for one in recipes], found)
        for key, value in recipes[0].arguments.items():
            if value != _USUAL.get(key):
                values = [one.arguments[key] for one in recipes]
                words.append(f"{key}={_product(values, [one.axes for one in found]) or _text(value)}")
        text = f"new.{recipes[0].function}({', '.join(words)})"
        return f"{text}.permute{recipes[0].order}" if recipes[0].order else text

    def _bytes(self, sizes: Sequence[tuple[Sequence[int], int]], found: Sequence[_Found]) -> str:
        return " * ".join([str(sizes[0][1]), *self._sizes([shape for shape, _ in sizes], found)])

    def _sizes(self, shapes: Sequence[Sequence[Any]], found: Sequence[_Found]) -> list[str]:
        words = []
        for values in zip(*shapes, strict=True):
            named = (
                name
                for name in found[0].axes
                if all(one.axes[name] == of for of, one in zip(values, found, strict=True))
            )
            words.append(next(named, "") or self._value(values, found))
        return words

    def _joined(self, texts: Sequence[str], found: Sequence[_Found]) -> str:
        """Return the source of all cases: constants that differ become expressions of the axes."""
        trees = [ast.parse(text) for text in texts]
        nodes = [[node for node in ast.walk(tree) if isinstance(node, ast.Constant)] for tree in trees]
        for same in zip(*nodes, strict=True):
            if len({repr(node.value) for node in same}) > 1:
                expression = self._value([node.value for node in same], found)
                names = (node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name))
                self.axes |= set(names)
                same[0].value = _Expression(expression)
        return ast.unparse(trees[0])

    def _value(self, values: Sequence[Any], found: Sequence[_Found]) -> str:
        """Return a value at all cases: a constant, a product of axes, or a table."""
        axes = [one.axes for one in found]
        if all(value == values[0] for value in values):
            return _text(values[0])
        if text := _product(values, axes):
            return text
        self.tables = True
        differing = [name for name in axes[0] if len({repr(one[name]) for one in axes}) > 1]
        keys = [", ".join(_text(one[name]) for name in differing) for one in axes]
        rows = ", ".join(f"({key}): {_text(value)}" for key, value in zip(keys, values, strict=True))
        return f"{{{rows}}}[{', '.join(differing)}]"


def _product(values: Sequence[Any], axes: Sequence[Axes]) -> str:
    """Return integers as a product of axes and a constant; "" if they are not."""
    names = [name for name in axes[0] if all(type(one.get(name)) is int and one[name] for one in axes)]
    if any(type(value) is not int or not value for value in values) or len(set(values)) == 1:
        return ""
    for some in (some for count in range(1, len(names) + 1) for some in itertools.combinations(names, count)):
        ratio, *others = {
            Fraction(value, math.prod(one[name] for name in some)) for value, one in zip(values, axes, strict=True)
        }
        if not others:
            left = " * ".join([*([str(ratio.numerator)] if ratio.numerator != 1 else []), *some])
            return f"{left} // {ratio.denominator}" if ratio.denominator != 1 else left
    return ""


class _Expression(str):
    """An expression in place of a constant."""

    def __repr__(self) -> str:
        return str(self)


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _method(text: str) -> str:
    """Return the name of the method of a variant."""
    name = re.sub(r"\W+", "_", text).strip("_").lower()
    name = name if name[:1].isalpha() else f"call_{name}"
    return f"{name}_" if keyword.iskeyword(name) or hasattr(Suite, name) else name


def _case(axes: Axes) -> str:
    return f"Case({', '.join(f'{name}={_text(value)}' for name, value in axes.items())})"


def _used(names: Sequence[str], text: str) -> str:
    return ", ".join(name for name in names if re.search(rf"\b{name}\b", text))
