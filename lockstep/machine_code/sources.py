"""Which files a module stands on, found by reading its imports: where none of them differs, nothing else can.

Imports are followed wherever they stand, also inside functions, and so are texts and attributes that name a module. A
module whose imports cannot be read (a name made up at run time) stands on all packages. Files of the packages that are
not Python count always: any of them may be read. Where code may read files outside the packages, nothing is ever equal.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


def closure(root: Path, packages: Sequence[str], module: str) -> dict[str, bytes]:
    """Files under ``root`` that ``module`` stands on, by relative path, with what they hold.

    Args:
        root: folder that holds the packages.
        packages: top-level packages; imports of others are not followed.
        module: dotted name, in one of them.

    Returns:
        Nothing if there is no such module.
    """
    found: dict[str, bytes] = {}
    waiting = [module]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name.split(".", 1)[0] not in packages:
            continue
        seen.add(name)
        # Importing a.b.c runs a/__init__.py and a/b/__init__.py first.
        waiting += [name.rpartition(".")[0]] if "." in name else []
        for path in _files(root, name):
            text = path.read_bytes()
            found[path.relative_to(root).as_posix()] = text
            tree = _parsed(text)
            if tree is None:
                continue  # it cannot be imported either
            for imported in _imports(tree, name, path.name == "__init__.py"):
                waiting += _modules(root, packages) if imported is None else [imported]
    if found:
        found |= {name: content for package in packages for name, content in _data(root, root / package)}
        if _leaves_the_packages(found):
            found[OUTSIDE] = str(root).encode()
    return found


#: Stands for files outside the packages, which code may read: unlike any other tree's.
OUTSIDE = "files outside the packages"


def same_code(base: dict[str, bytes], head: dict[str, bytes]) -> bool:
    """Whether two closures are the same but for comments, layout and docstrings, or the same where code reads these."""
    if base == head:
        return True
    return (
        base.keys() == head.keys()
        and not reads_its_text(base)
        and all(
            content == head[name] or (name.endswith(".py") and _code(content) == _code(head[name]) != "")
            for name, content in base.items()
        )
    )


#: Names by which code reads its own text: comments, docstrings and lines then decide something.
TEXT_READERS = frozenset(
    {
        *(
            "__doc__",
            "getdoc",
            "getsource",
            "getsourcelines",
            "getsourcefile",
            "findsource",
            "getcomments",
            "linecache",
        ),
        *("get_docstring", "co_firstlineno", "co_lines", "co_positions", "f_lineno", "tb_lineno", "lineno", "tokenize"),
        *("currentframe", "getframeinfo", "cleandoc", "_getframe", "extract_stack", "docopt", "get_data"),
        *("getsize", "st_size", "st_mtime", "getmtime", "file_digest"),
    }
)
#: Names by which code learns where its files lie.
PLACES = frozenset(
    {"__file__", "__path__", "__spec__", "__loader__", "getfile", "getabsfile", "co_filename", "find_spec", "files"}
)


def reads_its_text(files: Mapping[str, bytes]) -> bool:
    """Whether a module of these may read the text of a module, and with it comments and docstrings."""
    trees = (_parsed(content) for name, content in files.items() if name.endswith(".py"))
    return any(_reads_text(node) for tree in trees if tree is not None for node in ast.walk(tree))


def _reads_text(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="stack" | "trace", value=ast.Name(id="inspect")):
            return True
        case ast.Attribute(attr=word) | ast.Name(id=word) | ast.alias(name=word):
            return word in TEXT_READERS
        case ast.Constant(value=str(text)):
            return text.endswith((".py", ".py*")) and " " not in text
        case ast.Call(func=ast.Attribute(value=ast.Call(args=[ast.Name(id="__file__")]), attr=called)):
            return called in ("read_text", "read_bytes", "open", "stat")
        case ast.Call(func=ast.Name(id="open"), args=[ast.Name(id="__file__"), *_]):
            return True
    return False


def _leaves_the_packages(files: Mapping[str, bytes]) -> bool:
    """Whether a module of these may read a file outside the packages, or import from another folder."""
    trees = {name: tree for name, text in files.items() if name.endswith(".py") and (tree := _parsed(text)) is not None}
    placed = {name for name, tree in trees.items() if any(_word(node) in PLACES for node in ast.walk(tree))}
    for name, tree in trees.items():
        if any(
            isinstance(node, ast.Attribute) and node.attr == "path" and _word(node.value) == "sys"
            for node in ast.walk(tree)
        ):
            return True
        # Without a number, "parents" may go up to the root.
        numbered = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
        walks = any(_is_parents(node) and id(node) not in numbered for node in ast.walk(tree))
        climbs = float("inf") if walks else sum(map(_climbs, ast.walk(tree)))
        if placed and climbs > (name.count("/") if name in placed else 0):
            return True
    return False


def _is_parents(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "parents"


def _climbs(node: ast.AST) -> float:
    """How many folders up a part of a module goes at most."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr="parents"), slice=ast.Constant(value=int(steps))) if steps >= 0:
            return steps + 1
        case ast.Attribute(attr="parent") | ast.Call(func=ast.Attribute(attr="dirname") | ast.Name(id="dirname")):
            return 1
        case ast.Subscript(value=ast.Attribute(attr="parents")):
            return float("inf")
        case ast.Constant(value=str(text)):
            return text.split("/").count("..")
    return 0


def _word(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _code(text: bytes) -> str:
    """The syntax tree of a module without docstrings, spelled out; "" if it is none."""
    try:
        tree = ast.parse(text)  # its own: docstrings are taken out of it
    except (SyntaxError, ValueError):
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node, clean=False) is not None
            node.body = node.body[1:] if documented else node.body
    return ast.dump(tree)


def digest(*parts: bytes | str | dict[str, bytes]) -> str:
    """Of texts and of files with their names."""
    total = hashlib.sha256()
    for part in parts:
        items = sorted(part.items()) if isinstance(part, dict) else [("", part)]
        for name, content in items:
            content = content.encode() if isinstance(content, str) else content
            total.update(f"{name} {len(content)} ".encode() + content)
    return total.hexdigest()[:32]


def _files(root: Path, module: str) -> list[Path]:
    """Where a module may stand: a folder goes before a file of the same name, and either may be the one that counts."""
    base = root.joinpath(*module.split("."))
    return [path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()]


def _data(root: Path, package: Path) -> Iterator[tuple[str, bytes]]:
    """Files of a package that are not Python sources, compiled ones that Python may take for a module among them."""
    for path in sorted(package.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            yield f"{name} →", os.fsencode(path.readlink())
            if not path.resolve().is_relative_to(root.resolve()) or path.is_dir():
                yield OUTSIDE, str(root).encode()
                continue
        if path.is_file() and path.suffix != ".py" and (path.suffix != ".pyc" or _may_be_loaded(path)):
            yield name, path.read_bytes()


def _may_be_loaded(path: Path) -> bool:
    """Whether Python may load a compiled file that is not its source's: one beside it, or one that is never checked."""
    with path.open("rb") as file:
        flags = file.read(8)[4:]
    return path.parent.name != "__pycache__" or flags[:1] == b"\x01"


def _modules(root: Path, packages: Sequence[str]) -> list[str]:
    paths = (path.relative_to(root).with_suffix("") for one in packages for path in (root / one).rglob("*.py"))
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


@functools.lru_cache(maxsize=4096)
def _parsed(text: bytes) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[str | None]:
    """Names that may be modules; None where a name is made up at run time."""
    home = module if is_package else module.rpartition(".")[0]
    if passes_on(tree, frozenset({"import_module", "__import__"})):
        yield None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            yield from (None for alias in node.names if alias.name.split(".")[0] in LOADERS)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            if node.level:
                parts = parts[: len(parts) - node.level + is_package]
            base = ".".join([*(parts if node.level else []), *([node.module] if node.module else [])])
            yield base
            if base.split(".")[0] in LOADERS:
                yield None
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call) and _imports_by_name(node.func):
            name = node.args[0] if node.args else None
            known = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
            yield known
            if known and known.split(".")[0] in LOADERS:
                yield None
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            # A module may be named by a text, as lazy imports do: in full, or in its package.
            dotted = node.value.replace(":", ".").lstrip(".")
            yield from (dotted, dotted.rpartition(".")[0], f"{home}.{dotted}")
        elif isinstance(node, ast.Attribute) and (dotted := _dotted(node)):
            # "import toy" reaches toy.helpers once anything has imported it.
            yield from (dotted, f"{home}.{dotted}")


_DOTTED = re.compile(r"\.*[A-Za-z_]\w*([.:][A-Za-z_]\w*)*")


def _dotted(node: ast.expr) -> str:
    """ "a.b.c" of attributes of a name, else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def passes_on(tree: ast.AST, names: frozenset[str]) -> bool:
    """Whether a function of one of these names is used otherwise than in a call by this name: its calls are unseen."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return any(
        (node.name in names and node.asname not in (None, node.name))
        if isinstance(node, ast.alias)
        else _word(node) in names and id(node) not in called
        for node in ast.walk(tree)
    )


def _imports_by_name(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in IMPORTERS


#: Functions that import what their first argument names.
IMPORTERS = frozenset(
    {
        *("import_module", "__import__", "iter_modules", "walk_packages", "exec_module", "resolve_name", "run_module"),
        *("run_path", "load_module", "load_source", "spec_from_file_location", "SourceFileLoader", "module_from_spec"),
        *("attach", "attach_stub", "LazyLoader", "_LazyModule", "exec", "eval"),
    }
)
#: Modules whose functions import what a text or a stored object names; they have common names (``loads``).
LOADERS = frozenset({"pydoc", "hydra", "pickle", "marshal", "shelve", "dill", "cloudpickle"})
