"""Find the files that a suite's variants depend on: if they are equal in two trees, the variants do the same in both.

The rule is coarse. A module depends on each module that an import statement of it may name, wherever the statement
stands, on each module that one of its strings names, and on all files of the packages that are not Python. Where a
package is bound to a name, all modules of this package count. Where a module may import what its text does not name,
all modules of all packages count. ``docs/machine-code.md`` says what the rule does not see.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lockstep.suite.definition import Suite
from lockstep.suite.syntax import without_docstrings

#: Lockstep may lie beside an adopter's suites; it is not part of their definitions.
HARNESS = "lockstep"

#: The function that imports the module that its argument names.
_IMPORTER = "import_module"
#: Modules that give access to what imports by composed names, as in ``getattr(sys, name)``.
_HOLDERS = frozenset({"sys", "importlib"})
#: Builtins that run a text, or compile one that other calls run; it may import. As attributes these names are common:
#: ``model.eval()``, ``torch.compile(f)``, ``re.compile("a")``.
_RUN_TEXT = frozenset({"exec", "eval", "compile", "__builtins__"})
#: Other names by which a module may import what its text does not name, or change where imports are found.
_DYNAMIC = frozenset(
    {
        *("__import__", "builtins", "runpy", "pkgutil", "pickle", "zipimporter", "LazyLoader"),
        *("exec_module", "load_module", "module_from_spec", "spec_from_file_location", "resolve_name"),
        *("entry_points", "meta_path", "path_hooks", "addsitedir", "__path__"),
    }
)
#: Names by which a module may read comments, docstrings or line numbers.
_READS_TEXT = frozenset(
    {
        *("__doc__", "getdoc", "get_docstring", "docopt", "getsource", "getsourcelines", "getcomments", "linecache"),
        *("tokenize", "co_firstlineno", "f_lineno", "tb_lineno", "lineno", "getframeinfo"),
    }
)
_DOTTED = re.compile(r"[.]*[A-Za-z_]\w*([.:][A-Za-z_]\w*)*")
_COMPILED = (".so", ".pyd")


def family_files(root: Path, packages: Sequence[str], suite: Suite) -> SourceFiles:
    """Return the files of a tree that the variants of a suite depend on.

    Variants are functions of the suite's module and methods of the suite; both import from the packages under test.
    """
    definition = definition_files(suite, packages)
    required = {(module, name) for module, name in definition.imports if _top(module) in packages}
    required |= {(suite.module, "")} if suite.module else set()
    found = SourceFiles(root, packages)
    found.follow([*definition.names, suite.module, *(f"{top}.*" for top in packages if definition.any_import)])
    found.lacking = tuple(
        sorted(f"{module} {name}".strip() for module, name in required if not found.has(module, name))
    )
    found.reads_text |= definition.reads_text
    return found


def named_files(root: Path, files: Iterable[str]) -> set[str]:
    """Return these files of a tree and the files that they import by name, without the packages on the way."""
    found: set[str] = set()
    pending = [*files]
    while pending:
        file = pending.pop()
        if file in found or not (root / file).is_file():
            continue
        found.add(file)
        for name in _facts(file, (root / file).read_bytes()).names:
            stem = name.removesuffix(".*").replace(".", "/")
            if not (root / f"{stem}.py").is_file() and not (root / stem).is_dir():
                stem = stem.rpartition("/")[0]  # the last part is a name in a module
            pending += [f"{stem}.py", f"{stem}/__init__.py"]
    return found


def same_files(base: Path, head: Path, packages: Sequence[str], suite: Suite) -> bool:
    """Return whether the variants of a suite depend on the same files in two trees, whose folders are given.

    Comments, layout, and docstrings that no module reads, do not count.
    """
    before, after = (family_files(root, packages, suite) for root in (base, head))
    return not before.lacking and not after.lacking and _same_code(before, after)


def same_packages(base: Path, head: Path, packages: Sequence[str]) -> bool:
    """Return whether two trees, whose folders are given, have the same packages; see ``same_files``."""
    before, after = (SourceFiles(root, packages) for root in (base, head))
    for found in (before, after):
        found.follow([*packages, *(f"{top}.*" for top in packages)])
    return _same_code(before, after)


def sources_digest(root: Path, packages: Sequence[str], suite: Suite) -> str:
    """Return a digest of the files that decide what a suite's variants do in a tree, its definition included.

    Two trees with equal digests run the same; comments, layout, and docstrings that no module reads, do not count. The
    digest is "" if the tree lacks what the suite imports.
    """
    found, definition = family_files(root, packages, suite), definition_files(suite, packages)
    definition.reads_text = found.reads_text
    return "" if found.lacking else digest(definition.code(definition.files) | found.code(found.files))


def definition_packages(suite: Suite, packages: Sequence[str]) -> tuple[str, ...]:
    """Return the top-level packages and modules of the project that a suite's definition consists of.

    The packages under test, ``packages``, are not part of the definition.
    """
    return tuple(sorted(definition_files(suite, packages).tops))


def definition_files(suite: Suite, packages: Sequence[str]) -> SourceFiles:
    """Return the project's files that a suite's definition depends on, without the packages under test."""
    root, module = suite.home.parent, type(suite).__module__

    def is_own(top: str) -> bool:
        in_tree = (root / f"{top}.py").is_file() or (root / top / "__init__.py").is_file()
        return in_tree and top not in packages and top != HARNESS

    found = SourceFiles(root, [_top(module)], is_own)
    found.follow([module])
    return found


def _same_code(before: SourceFiles, after: SourceFiles) -> bool:
    differing = {name for name, _ in before.files.items() ^ after.files.items()}
    return before.code(differing) == after.code(differing)


def digest(*parts: bytes | str | Mapping[str, bytes]) -> str:
    """Return one digest of all parts: texts, and files with their names."""
    total = hashlib.sha256()
    for part in parts:
        items = sorted(part.items()) if isinstance(part, Mapping) else [("", part)]
        for name, content in items:
            content = content.encode() if isinstance(content, str) else content
            total.update(f"{name} {len(content)} ".encode() + content)
    return total.hexdigest()[:32]


class SourceFiles:
    """The modules below one folder that given modules may import, and all other files of their packages.

    Attributes:
        tops: top-level packages whose modules are followed.
        names: dotted names that the modules' texts name; "a.b.*" stands for all modules of the package a.b.
        imports: module and name of each absolute import statement; the name is "" if a whole module is imported.
        any_import: whether a module may import what its text does not name.
        reads_text: whether a module, or the suite, may read comments, docstrings or line numbers.
        lacking: modules and names that the suite imports and the tree lacks; what would run is then unknown.
    """

    def __init__(self, root: Path, tops: Sequence[str], is_own: Callable[[str], bool] = lambda top: False) -> None:
        self.tops = set(tops)
        self.names: set[str] = set()
        self.imports: set[tuple[str, str]] = set()
        self.any_import = self.reads_text = False
        self.lacking: tuple[str, ...] = ()
        self._root = root
        self._is_own = is_own
        self._modules: dict[str, bytes] = {}
        self._read: dict[str, dict[str, bytes]] = {}
        self._visited: set[str] = set()

    def follow(self, names: Iterable[str]) -> None:
        """Add the modules of these names, and what they may import."""
        pending = [*names]
        while pending:
            name = pending.pop()
            top = _top(name)
            if name in self._visited or not (top in self.tops or self._is_own(top)):
                continue
            self._visited.add(name)
            self.tops.add(top)
            parent, _, last = name.rpartition(".")
            pending += [parent] if parent else []  # importing a.b.c runs a/__init__.py and a/b/__init__.py first
            if last == "*":
                folder = self._root / parent.replace(".", "/")
                pending += [_module(str(path.relative_to(self._root)))[0] for path in folder.rglob("*.py")]
                continue
            stem = name.replace(".", "/")
            # Python prefers a folder to a file of the same name; both count, because either may be imported.
            for file in (f"{stem}/__init__.py", f"{stem}.py"):
                if (self._root / file).is_file():
                    self._modules[file] = (self._root / file).read_bytes()
                    facts = _facts(file, self._modules[file])
                    self.names |= facts.names
                    self.imports |= facts.imports
                    self.any_import |= facts.any_import
                    self.reads_text |= facts.reads_text
                    pending += facts.names
        compiled = any(path.endswith(_COMPILED) for top in self.tops for path in self._data(top))
        rest = {f"{top}.*" for top in self.tops} - self._visited
        if rest and self._modules and (self.any_import or compiled):
            self.follow(rest)

    @functools.cached_property
    def files(self) -> dict[str, bytes]:
        """Return the contents of the files by path."""
        return functools.reduce(dict.__or__, [self._data(top) for top in self.tops if self._modules], self._modules)

    def code(self, names: Collection[str]) -> dict[str, bytes]:
        """Return what counts of these files: a digest of a module's code, all of another file."""
        chosen = {name: text for name, text in self.files.items() if name in names}
        if self.reads_text:
            return chosen
        return {name: _code(text) if name.endswith(".py") else text for name, text in chosen.items()}

    def has(self, module: str, name: str) -> bool:
        """Return whether the tree has a module and, as far as its text shows, a name in the module."""
        stem = module.replace(".", "/")
        texts = [self._modules.get(file, b"") for file in (f"{stem}.py", f"{stem}/__init__.py")]
        return self._exists(stem) and (
            name in ("", "*")
            or self._exists(f"{stem}/{name}")
            or any(re.search(rf"\b{name}\b", text.decode(errors="replace")) for text in texts)
        )

    def _exists(self, stem: str) -> bool:
        path = self._root / stem
        return path.is_dir() or any(path.parent.glob(f"{path.name}.*"))

    def _data(self, top: str) -> dict[str, bytes]:
        """Return the contents of all files of a package that are not Python, and where links lead."""
        if top in self._read:
            return self._read[top]
        found = self._read[top] = {}
        for folder, folders, files in os.walk(self._root / top):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for path in (Path(folder, name) for name in (*folders, *files)):
                name = str(path.relative_to(self._root))
                if path.is_symlink():
                    found[f"{name} →"] = os.fsencode(path.readlink())
                if path.suffix != ".py" and path.is_file():
                    found[name] = path.read_bytes()
        return found


class _Facts(NamedTuple):
    """What the text of a module shows; the fields are attributes of ``SourceFiles``."""

    names: set[str]
    imports: set[tuple[str, str]]
    any_import: bool
    reads_text: bool


@functools.lru_cache(maxsize=8192)
def _facts(file: str, text: bytes) -> _Facts:
    """Return what the text of a module shows; nothing for a text that is not Python, because it cannot be imported."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return _Facts(set(), set(), any_import=False, reads_text=False)
    module, is_package = _module(file)
    names: set[str] = set()
    imports: set[tuple[str, str]] = set()
    mentioned: set[str] = set()
    any_import = False
    plain: set[int] = set()  # nodes that use a module or an importer in a form whose effect is known
    expressions: set[int] = set()  # uses of compile whose text is an expression: it has no import statement
    for node in ast.walk(tree):  # each node before its children
        match node:
            case ast.Import():
                for alias in node.names:
                    mentioned.update(alias.name.split("."))
                    imports.add((alias.name, ""))
                    names |= {alias.name, f"{alias.name if alias.asname else _top(alias.name)}.*"}
                    any_import |= alias.name in _HOLDERS and alias.asname is not None
            case ast.ImportFrom():
                start = module.split(".")[: module.count(".") + 1 - node.level + is_package] if node.level else []
                base = ".".join([*start, *([node.module] if node.module else [])])
                mentioned.update(base.split("."))
                for alias in node.names:
                    mentioned.add(alias.name)
                    imports |= {(base, alias.name)} if not node.level else set()
                    names |= {base, f"{base}.*"} if alias.name == "*" else {f"{base}.{alias.name}.*"}
                    any_import |= alias.name == _IMPORTER and alias.asname is not None
                    any_import |= base == "sys" and alias.name in ("modules", "path")
            case ast.Call(func=called, args=[ast.Constant(value=str(name))], keywords=[]) if _word(called) == _IMPORTER:
                if name[:1] != ".":
                    plain.add(id(called))
                    names.add(f"{name}.*")
                    any_import |= name in _HOLDERS
            case ast.Call(func=ast.Name(id="compile") as called, args=[_, _, ast.Constant(value="eval")], keywords=[]):
                expressions.add(id(called))
            case ast.Attribute(value=value, attr=name):
                mentioned.add(name)
                plain.add(id(value))
                any_import |= name == _IMPORTER and id(node) not in plain
                any_import |= _word(value) == "sys" and name in ("modules", "path")
            case ast.Name(id=name):
                mentioned.add(name)
                any_import |= name == _IMPORTER and id(node) not in plain
                any_import |= name in _RUN_TEXT and id(node) not in expressions
                any_import |= name in _HOLDERS and id(node) not in plain
            case ast.Constant(value=str(name)) if _DOTTED.fullmatch(name):
                # A string may name a module, as lazy imports do; in a package's __init__ without the package's name.
                mentioned.add(name)
                dotted = name.replace(":", ".").lstrip(".")
                names |= {dotted, f"{module}.{dotted}"} if is_package else {dotted}
                any_import |= name == _IMPORTER
    any_import |= not mentioned.isdisjoint(_DYNAMIC)
    return _Facts(names, imports, any_import, not mentioned.isdisjoint(_READS_TEXT))


@functools.lru_cache(maxsize=8192)
def _code(text: bytes) -> bytes:
    """Return a digest of a module's syntax tree without docstrings; the text itself if it is not Python."""
    try:
        return digest(ast.dump(without_docstrings(ast.parse(text)))).encode()
    except (SyntaxError, ValueError):
        return text


def _module(file: str) -> tuple[str, bool]:
    """Return the dotted name of a file's module, and whether it is a package's ``__init__``."""
    parts = file.removesuffix(".py").split("/")
    is_package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if is_package else parts), is_package


def _word(node: ast.AST) -> str:
    """Return the last part of a name, "c" for ``a.b.c``; "" for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _top(module: str) -> str:
    return module.partition(".")[0]
