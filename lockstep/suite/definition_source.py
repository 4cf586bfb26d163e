"""The source of a benchmark definition: a suite's functions and all of the project's own code that they use.

Different definitions must not share a series. So the reader follows everything that a function uses: helpers, constants
and classes of its module and of other modules of the same project. Installed packages belong to the environment, not to
the definition.
"""

from __future__ import annotations

import ast
import functools
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.suite.adapter import Adapter
from lockstep.suite.syntax import bound_names, functions_by_line, parsed_code

#: Package that is not followed, even if a project holds it beside the suites. Its changes raise the protocol version.
_HARNESS = "lockstep"


@dataclass
class Reader:
    """Reads the source of everything that defines one suite. A name that several functions use is read once.

    Attributes:
        root: folder of the project; modules below it are followed, except installed packages.
        suite: the suite's class, whose members its methods use.
        seen: (module, name) of everything read so far.
    """

    root: Path
    suite: type
    seen: set[tuple[str, str]] = field(default_factory=set)

    def member(self, name: str, *, inherited: bool = False) -> list[str]:
        """Return a class attribute of the suite as source or literal, followed by everything that the attribute uses.

        The result is empty for an attribute that the harness gives every suite.

        Args:
            inherited: whether to add the attributes of the same name in base classes, because ``super()`` reaches them.
        """
        bases = [base for base in self.suite.__mro__ if name in vars(base) and self._is_own(_module_of_class(base))]
        parts: list[str] = []
        for base in bases if inherited else bases[:1]:
            key = base.__module__, f"{base.__qualname__}.{name}"
            if key in self.seen:
                continue
            self.seen.add(key)
            value = vars(base)[name]
            bare = inspect.unwrap(_function_of(value))
            if inspect.isfunction(bare):
                parts += self.function(bare)
                parts += self.function(value.prepare) if isinstance(value, Adapter) and value.prepare else []
            elif _is_literal(value):
                parts.append(f"{name}={_stable_text(value)}")
            else:
                parts += self._statement_of_class(base, name)
        return parts

    def function(self, function: Callable[..., Any]) -> list[str]:
        """Return a function's source, without comments, docstrings and layout, followed by everything that it uses."""
        module = inspect.getmodule(function)
        functions = functions_by_line(inspect.getsource(module)) if module else {}
        definitions = functions.get(function.__code__.co_firstlineno, ())
        parts = [ast.unparse(node) for node in definitions]
        for node in definitions:
            parts += self._names(node, function.__globals__, function.__module__)
            parts += self._late_imports(node, function.__module__)
            parts += self._members(node)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name == "__class__":  # the closure variable of super()
                continue
            try:
                parts += self._value(name, cell.cell_contents, function.__module__)
            except ValueError:  # not bound yet
                continue
        return parts

    def _members(self, tree: ast.AST) -> list[str]:
        """Return members of the suite that a method uses: ``self.part``, ``type(self).part``, ``super().part()``."""
        used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        parts: list[str] = []
        for node in sorted(used, key=lambda node: (node.lineno, node.col_offset)):
            match node.value:
                case ast.Call(func=ast.Name(id="super")):
                    parts += self.member(node.attr, inherited=True)
                case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="type")) | ast.Attribute(attr="__class__"):
                    parts += self.member(node.attr)
        return parts

    def _statement_of_class(self, owner: type, name: str) -> list[str]:
        """Return the statements of a class body that bind a name, followed by everything that the statements use."""
        module = sys.modules[owner.__module__]
        parts: list[str] = []
        for node in ast.walk(parsed_code(inspect.getsource(module))):
            if isinstance(node, ast.ClassDef) and node.name == owner.__name__:
                for statement in node.body:
                    if name in bound_names(statement):
                        parts.append(ast.unparse(statement))
                        parts += self._names(statement, vars(module), module.__name__)
        return parts

    def _names(self, tree: ast.AST, scope: Mapping[str, Any], module: str) -> list[str]:
        """Return the values of the global names in a piece of source, in the order of the source.

        The names are read from the source, because bytecode differs: some Python versions compile comprehensions
        separately.
        """
        used = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
        parts: list[str] = []
        for node in sorted(used, key=lambda node: (node.lineno, node.col_offset)):
            if isinstance(node, ast.Name) and node.id in scope:
                parts += self._value(node.id, scope[node.id], module)
            elif isinstance(node, ast.Attribute):
                holder = _module_of(node.value, scope)
                if holder is not None and self._is_own(holder) and hasattr(holder, node.attr):
                    parts += self._value(node.attr, getattr(holder, node.attr), holder.__name__)
        return parts

    def _value(self, name: str, value: Any, module: str) -> list[str]:
        """Return the source or literal of a name's value in a module; [] if the value is not the project's own."""
        if (module, name) in self.seen:
            return []
        self.seen.add((module, name))
        if isinstance(value, ModuleType):
            return []
        home = getattr(value, "__module__", None)
        if isinstance(value, type):
            return self._statement(value.__name__, home or module) if self._is_own(sys.modules.get(home or "")) else []
        bare = inspect.unwrap(value) if callable(value) else value
        if inspect.isfunction(bare):
            is_own = bare.__module__ == module or self._is_own(sys.modules.get(bare.__module__))
            return self.function(bare) if is_own else []
        text = _stable_text(value) if isinstance(value, int | float | str | tuple) or _is_literal(value) else " at 0x"
        if " at 0x" not in text:
            return [f"{name}={text}"]
        # The text of any other object may contain its address, which differs from process to process.
        return self._statement(name, module)

    def _statement(self, name: str, module: str) -> list[str]:
        """Return the top-level statements that bind a name, in ``module`` or in the module that it is imported from."""
        imported = sys.modules.get(module)
        if imported is None or not self._is_own(imported):
            return []
        parts: list[str] = []
        for node in parsed_code(inspect.getsource(imported)).body:
            if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
                original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
                parts += self._statement(original, _absolute(node, imported.__name__))
            elif name in bound_names(node):
                parts.append(ast.unparse(node))
                parts += self._names(node, vars(imported), module)
        return parts

    def _late_imports(self, tree: ast.AST, module: str) -> list[str]:
        """Return the source of the project's modules that a function imports when called, without importing them."""
        parts: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                package = _absolute(node, module)
                names = [package, *(f"{package}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                path = self._path(name)
                if path is not None and (name, "") not in self.seen:
                    self.seen.add((name, ""))
                    parts.append(ast.unparse(parsed_code(path.read_bytes())))
        return parts

    def _path(self, module: str) -> Path | None:
        """Return the file of a module of the project, found without importing the module."""
        if module.partition(".")[0] == _HARNESS:
            return None
        path = self.root.joinpath(*module.split("."))
        return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)

    def _is_own(self, module: ModuleType | None) -> bool:
        file = getattr(module, "__file__", None)
        if module is None or not file or module.__name__.partition(".")[0] == _HARNESS:
            return False
        path = Path(file).resolve()
        in_project = path.is_relative_to(self.root) and "site-packages" not in path.parts
        return in_project and path.suffix in importlib.machinery.SOURCE_SUFFIXES


def _module_of_class(owner: type) -> ModuleType | None:
    return sys.modules.get(owner.__module__)


def _function_of(value: Any) -> Any:
    """Return the function behind an attribute of a class."""
    match value:
        case staticmethod() | classmethod():
            return value.__func__
        case property():
            return value.fget
        case functools.cached_property():
            return value.func
        case Adapter():
            return value.function
    return value


def _module_of(node: ast.expr, scope: Mapping[str, Any]) -> ModuleType | None:
    """Return the module that ``helper`` or ``package.helper`` names."""
    if isinstance(node, ast.Name):
        value = scope.get(node.id)
    elif isinstance(node, ast.Attribute):
        value = getattr(_module_of(node.value, scope), node.attr, None)
    else:
        return None
    return value if isinstance(value, ModuleType) else None


def _absolute(node: ast.ImportFrom, module: str) -> str:
    """Return the full name of the module that an import statement in ``module`` names."""
    if not node.level:
        return node.module or ""
    imported = sys.modules.get(module)
    package = (getattr(imported, "__package__", None) or module.rpartition(".")[0]).split(".")
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def _is_literal(value: Any) -> bool:
    """Return whether ``_stable_text`` of a value is the same in every process."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return True
    if isinstance(value, dict) and type(value) is dict:
        return all(_is_literal(part) for pair in value.items() for part in pair)
    return type(value) in (list, tuple, set, frozenset) and all(map(_is_literal, value))


def _stable_text(value: Any) -> str:
    """Return ``repr`` with the elements of sets sorted, because the order of a set differs between processes."""
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({sorted(map(_stable_text, value))})"
    if type(value) is dict:
        return "{" + ", ".join(f"{_stable_text(key)}: {_stable_text(part)}" for key, part in value.items()) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(_stable_text, value)) + "]"
    if type(value) is tuple:
        return "(" + ", ".join(map(_stable_text, value)) + (",)" if len(value) == 1 else ")")
    return repr(value)
