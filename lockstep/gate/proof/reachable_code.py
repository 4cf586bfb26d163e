"""Find the code that a variant can reach, from the sources. If none of this code differs, the variant does not differ.

This method serves variants that cannot be traced without a GPU (torch.compile, a compiled extension), and machines
without a GPU. Reachability is by name, in all modules: a definition is reachable if a reachable statement mentions its
name, as a name, an attribute or a text. Statements with an effect at import (calls, branches, decorators and base
classes that may register something, special functions of the module) are always reachable, in their order. If functions
write to something that the variant reaches, all variants are reachable, because an earlier variant may have changed it.
Modules that compose names at run time prove nothing. Otherwise the method finds too much, with one exception: it does
not see that one variant changes what another variant reads if the change is made through a parameter, a local name or
an object's own method.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lockstep.gate.proof.import_effects import Scope, binds, writes
from lockstep.gate.proof.indirect_reach import hides
from lockstep.machine_code.sources.module_dependencies import OUTSIDE, reads_its_text
from lockstep.suite.syntax import without_docstrings

_WORDS = re.compile(r"[\w.:]+")


@dataclass(frozen=True, eq=False)
class _Statement:
    """A statement of a module: its file, its index in the module, and its effect at import."""

    path: str
    index: int
    node: ast.stmt
    scope: Scope
    acts: bool
    loads: tuple[str, ...]

    @functools.cached_property
    def text(self) -> str:
        return ast.dump(self.node)

    @functools.cached_property
    def binds(self) -> frozenset[str]:
        return frozenset(binds(self.node))

    @functools.cached_property
    def mentions(self) -> frozenset[str]:
        return frozenset(_mentions(self.node, self.scope.foreign))

    @functools.cached_property
    def writes(self) -> frozenset[str]:
        return frozenset(writes(self.node))

    @property
    def is_special(self) -> bool:
        """Return whether the statement defines a name that Python itself looks up, such as ``__getattr__``."""
        return any(name.startswith("__") for name in self.binds)


class Sources:
    """The modules that a family depends on, read once for all of its variants.

    Args:
        files: contents by path; ``lockstep.machine_code.sources.module_dependencies.closure`` finds them.
        family: path of the family's module, without ".py" or "/__init__.py".

    Raises:
        Unreadable: the sources do not show what a variant reaches.
    """

    def __init__(self, files: Mapping[str, bytes], family: str) -> None:
        if OUTSIDE in files or reads_its_text(files):
            raise Unreadable
        modules = {path: _module(content) for path, content in files.items() if path.endswith(".py")}
        packages = {path.split("/", 1)[0] for path in files}
        # A name that one module sets in another module may differ from what the imports show.
        replaced = {name for module in modules.values() for node in ast.walk(module) if (name := _stored(node))}
        self._data = {f"{path} {content.hex()}" for path, content in files.items() if path not in modules}
        self._statements: list[_Statement] = []
        self._tables: list[_Statement] = []
        self._paths = tuple(modules)
        for path, module in modules.items():
            scope = Scope(module, packages, replaced)
            for index, node in enumerate(module.body):
                acts = scope.acts(node)
                loads = () if acts else tuple(scope.loads(node, path, files))
                statement = _Statement(path, index, node, scope, acts, loads)
                is_table = path in (f"{family}.py", f"{family}/__init__.py") and binds(node) & {"VARIANTS", "PREPARE"}
                (self._tables if is_table else self._statements).append(statement)
        if not any("VARIANTS" in table.binds for table in self._tables):
            raise Unreadable  # its variants are the functions that the current VARIANTS lists (lockstep.suite.variants)
        #: Names that a function may write to, with the statements that contain such functions.
        self._writers: dict[str, list[_Statement]] = {}
        for statement in self._statements:
            for name in statement.writes:
                self._writers.setdefault(name, []).append(statement)
        self._bound = {name for statement in (*self._statements, *self._tables) for name in statement.binds}

    def reach(self, variant: str) -> frozenset[str] | None:
        """Return everything that a variant can reach, one text per module, without comments, docstrings and layout.

        Args:
            variant: a key of the family's ``VARIANTS`` or ``PREPARE``.

        Returns:
            The texts; ``None`` if ``VARIANTS`` or ``PREPARE`` is not a plain dict literal.
        """
        reached: dict[str, dict[int, str]] = {path: {} for path in self._paths}
        names: set[str] = {"SCRATCH", "TABLE"}  # lockstep.suite.variants reads them from the module
        for table in self._tables:
            entries = _entries(table.node, variant)
            if entries is None:
                return None
            for entry in entries:
                names |= set(_mentions(entry, table.scope.foreign))
            reached[table.path][table.index] = " ".join(map(ast.dump, entries))
        unreached = list(self._tables)  # whole tables, in case a reachable statement reads other entries
        for statement in self._statements:
            if statement.acts:
                names |= statement.mentions
                reached[statement.path][statement.index] = statement.text
                continue
            if statement.loads:
                reached[statement.path][statement.index] = (
                    f"loads {' '.join(statement.loads)}"  # modules in import order
                )
            unreached.append(statement)
        while True:
            written = names & self._bound & self._writers.keys()
            # Statements that write to reached names, and all variants in order, because each variant may have called
            # them before.
            written_to = {id(writer) for name in written for writer in self._writers[name]}
            written_to |= {id(table) for table in self._tables} if written else set()
            newly_reached = [
                statement
                for statement in unreached
                if statement.binds & names or statement.is_special or id(statement) in written_to
            ]
            if not newly_reached:
                break
            unreached = [statement for statement in unreached if statement not in newly_reached]
            for statement in newly_reached:
                names |= statement.mentions
                reached[statement.path][statement.index] = statement.text
        # One text for each module, so that the order of its statements counts.
        texts = (
            f"{path} " + "\n".join(text for _, text in sorted(texts_of.items())) for path, texts_of in reached.items()
        )
        return frozenset({*self._data, *texts})


class Unreadable(ValueError):
    """The sources do not show what a variant reaches, so they cannot prove the variant unchanged."""


def _module(content: bytes) -> ast.Module:
    """Return the syntax tree of a module without docstrings.

    Raises:
        Unreadable: the text is not Python, or it reaches objects without naming them.
    """
    try:
        module = without_docstrings(ast.parse(content))
    except (SyntaxError, ValueError) as error:
        raise Unreadable from error
    if _hides(content, module):
        raise Unreadable
    return module


_hiding: dict[bytes, bool] = {}


def _hides(content: bytes, module: ast.Module) -> bool:
    if content not in _hiding:
        _hiding[content] = hides(module)
    return _hiding[content]


def _stored(node: ast.AST) -> str:
    """Return the attribute that a node sets or deletes, else ""."""
    return node.attr if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) else ""


def _mentions(node: ast.AST, foreign: set[str]) -> Iterator[str]:
    """Yield what a syntax tree mentions: names, attributes, and texts that may be looked up as names."""
    match node:
        case ast.Attribute():
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in foreign:
                yield root.id
                return
            yield node.attr
        case ast.Name(id=name):
            yield name
        case ast.Constant(value=str(text)) if _WORDS.fullmatch(text):
            yield from re.split(r"[.:]", text)
        case ast.Constant(value=str(text)) if "{" in text or "%(" in text:
            yield from re.findall(r"\w+", text)  # a format string looks attributes up
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            for alias in aliases:
                yield from alias.name.split(".")
    for child in ast.iter_child_nodes(node):
        yield from _mentions(child, foreign)


def _entries(statement: ast.stmt, variant: str) -> list[ast.expr] | None:
    """Return a variant's values in the dict literal that a statement assigns; ``None`` for any other statement."""
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) for key in value.keys):
        return None
    return [
        value_node
        for key, value_node in zip(value.keys, value.values, strict=True)
        if getattr(key, "value", None) == variant
    ]
