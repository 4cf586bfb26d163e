"""Find what the text of one module shows: its imports, the files it may read, and whether it reads its own text.

A module is parsed and walked once in a process, however many families depend on it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Functions that import the module that their first argument names.
IMPORTERS = frozenset(
    {
        *("import_module", "__import__", "iter_modules", "walk_packages", "exec_module", "resolve_name", "run_module"),
        *("run_path", "load_module", "load_source", "spec_from_file_location", "SourceFileLoader", "module_from_spec"),
        *("attach", "attach_stub", "LazyLoader", "_LazyModule", "exec", "eval"),
    }
)
#: Modules whose functions import what a text or a stored object names; the functions have common names (``loads``).
LOADERS = frozenset({"pydoc", "hydra", "pickle", "marshal", "shelve", "dill", "cloudpickle"})
#: Names by which code reads its own text; comments, docstrings and lines can then affect what it does.
TEXT_READERS = frozenset(
    {
        *("__doc__", "getdoc", "getsource", "getsourcelines", "getsourcefile", "findsource", "getcomments"),
        *("linecache", "get_docstring", "co_firstlineno", "co_lines", "co_positions", "f_lineno", "tb_lineno"),
        *("lineno", "tokenize", "currentframe", "getframeinfo", "cleandoc", "_getframe", "extract_stack", "docopt"),
        *("get_data", "getsize", "st_size", "st_mtime", "getmtime", "file_digest"),
    }
)
#: Names by which code finds the paths of its files.
PLACES = frozenset(
    {"__file__", "__path__", "__spec__", "__loader__", "getfile", "getabsfile", "co_filename", "find_spec", "files"}
)
#: Functions that open a file or list a folder.
OPENERS = frozenset(
    {
        *("open", "read_text", "read_bytes", "iterdir", "listdir", "scandir", "glob", "rglob", "fromfile", "loadtxt"),
        *("genfromtxt", "memmap", "from_file", "load_file", "FileIO", "read_csv", "read_parquet", "CDLL"),
        *("LoadLibrary", "load_library", "walk", "isfile", "is_file", "exists", "isdir", "is_dir"),
    }
)
#: Functions whose calls cannot be seen if they are renamed or passed on.
_PASSED_ON = frozenset({"import_module", "__import__"})
#: A text that may be the name of a file, relative to the working folder: "tables/h200.json".
_FILE_NAME = re.compile(
    r"(?:[\w.-]+/)*[\w.*-]*\.(?:json\w*|txt|[ct]sv|ya?ml|toml|ini|cfg|conf|bin|np[yz]|pth?|safetensors|pi?c?kle?|cuh?"
    r"|cubin|fatbin|ptx|hp?p?|c|cc|cpp|so|dat|parquet|xml|db|sqlite\d?|pkl)"
)
_DOTTED = re.compile(r"\.*[A-Za-z_]\w*([.:][A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Facts:
    """Facts that the text of a module shows.

    Attributes:
        imports: dotted names that may be modules.
        any_import: whether the module composes a module's name at run time.
        placed: whether the module may look up the path of a module's file, as by ``__file__``.
        climbs: maximum number of folders that the module's paths lead up (``..``, ``parent``), added together.
        changes_path: whether the module uses ``sys.path``, so that imports may come from other folders.
        reads_text: whether the module may read the source text of a module: comments, docstrings or lines.
        opens: whether the module may open a file or list a folder.
        names_files: whether a string in the module may be the name of a file, relative to the working folder.
    """

    imports: frozenset[str] = frozenset()
    any_import: bool = False
    placed: bool = False
    climbs: float = 0
    changes_path: bool = False
    reads_text: bool = False
    opens: bool = False
    names_files: bool = False


@functools.lru_cache(maxsize=8192)
def facts(text: bytes, module: str, is_package: bool) -> Facts:
    """Return what the text of a module shows: its imports, and the files that it may read.

    Args:
        module: dotted name of the module.
        is_package: whether the file is a package's ``__init__``; relative imports then start at the package.

    Returns:
        The facts; empty for a text that is not Python, because it cannot be imported.
    """
    tree = parsed(text)
    return _Reading(tree, module, is_package).facts() if tree is not None else Facts()


def parsed(text: bytes) -> ast.Module | None:
    """Return the syntax tree of a module; ``None`` if the text is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes, each before its children; ``ast.walk`` takes twice the time and also yields ``ast.Load``."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        for name in node._fields:
            part = getattr(node, name, None)
            if isinstance(part, list):
                stack += [child for child in part if isinstance(child, ast.AST)]
            elif isinstance(part, ast.AST) and name != "ctx":
                stack.append(part)


def word(node: ast.AST) -> str:
    """Return the last part of a name, "c" for ``a.b.c``; "" for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _renames(node: ast.AST, names: frozenset[str]) -> bool:
    return isinstance(node, ast.alias) and node.name in names and node.asname not in (None, node.name)


class _Reading:
    """Walks once over a module's syntax tree and collects facts."""

    def __init__(self, tree: ast.Module, module: str, is_package: bool) -> None:
        self._parts = module.split(".")
        self._is_package = is_package
        self._home = module if is_package else module.rpartition(".")[0]
        self._imports: set[str] = set()
        self._any_import = self._placed = self._changes_path = self._reads_text = self._opens = False
        self._names_files = False
        self._climbs: float = 0
        self._called: set[int] = set()
        self._numbered: set[int] = set()
        handlers: dict[type[ast.AST], Callable[..., None]] = {
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.alias: self._alias,
            ast.Call: self._call,
            ast.Subscript: self._subscript,
            ast.Attribute: self._attribute,
            ast.Name: self._name,
            ast.Constant: self._constant,
        }
        for node in nodes(tree):
            if handler := handlers.get(type(node)):
                handler(node)

    def facts(self) -> Facts:
        """Return the facts that the walk over the module's syntax tree found."""
        imports = frozenset(self._imports)
        return Facts(
            imports, self._any_import, self._placed, self._climbs, self._changes_path, self._reads_text,
            self._opens,
            self._names_files,
        )  # fmt: skip

    def _import(self, node: ast.Import) -> None:
        self._imports.update(alias.name for alias in node.names)
        self._any_import |= any(alias.name.split(".")[0] in LOADERS for alias in node.names)

    def _import_from(self, node: ast.ImportFrom) -> None:
        parts = self._parts[: len(self._parts) - node.level + self._is_package] if node.level else []
        base = ".".join([*parts, *([node.module] if node.module else [])])
        self._imports.add(base)
        self._any_import |= base.split(".")[0] in LOADERS
        self._imports.update(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")

    def _alias(self, node: ast.alias) -> None:
        self._reads_text |= node.name in TEXT_READERS
        self._any_import |= _renames(node, _PASSED_ON)

    def _call(self, node: ast.Call) -> None:
        function = node.func
        self._called.add(id(function))
        called = word(function)
        if called in IMPORTERS and not _without_builtins(node):
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                self._imports.add(name.value)
                self._any_import |= name.value.split(".")[0] in LOADERS
            else:
                self._any_import = True
        self._opens |= called in OPENERS or (
            called == "load"
            and isinstance(function, ast.Attribute)
            and word(function.value) in ("np", "numpy", "torch")
        )
        if called == "dirname":
            self._climbs += 1
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call(args=[ast.Name(id="__file__")]))):
                self._reads_text |= called in ("read_text", "read_bytes", "open", "stat")
            case ast.Call(func=ast.Name(id="open"), args=[ast.Name(id="__file__"), *_]):
                self._reads_text = True

    def _subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            self._numbered.add(id(node.value))
            steps = node.slice.value if isinstance(node.slice, ast.Constant) else None
            self._climbs += steps + 1 if isinstance(steps, int) and steps >= 0 else float("inf")

    def _attribute(self, node: ast.Attribute) -> None:
        self._word(node, node.attr)
        owner = word(node.value)
        self._reads_text |= owner == "inspect" and node.attr in ("stack", "trace")
        self._changes_path |= owner == "sys" and node.attr == "path"
        if node.attr == "parent":
            self._climbs += 1
        elif node.attr == "parents" and id(node) not in self._numbered:
            self._climbs = float("inf")  # without a number the path may lead up to the root
        # "import toy" can reach toy.helpers if any module has imported it.
        if dotted := _dotted(node):
            self._imports.update((dotted, f"{self._home}.{dotted}"))

    def _name(self, node: ast.Name) -> None:
        self._word(node, node.id)

    def _word(self, node: ast.AST, name: str) -> None:
        self._reads_text |= name in TEXT_READERS
        self._placed |= name in PLACES
        self._any_import |= name in _PASSED_ON and id(node) not in self._called

    def _constant(self, node: ast.Constant) -> None:
        text = node.value
        if not isinstance(text, str):
            return
        self._reads_text |= text.endswith((".py", ".py*")) and " " not in text
        self._climbs += text.split("/").count("..")
        self._names_files |= _FILE_NAME.fullmatch(text) is not None
        if _DOTTED.fullmatch(text):
            # A text may name a module, as lazy imports do: by its full name, or relative to its package.
            dotted = text.replace(":", ".").lstrip(".")
            self._imports.update((dotted, dotted.rpartition(".")[0], f"{self._home}.{dotted}"))


def _without_builtins(node: ast.Call) -> bool:
    """Return whether a call of ``exec`` or ``eval`` leaves its text no builtins, without which it cannot import.

    The names of the text must end with ``"__builtins__": {}``, so that nothing before it gives other builtins.
    """
    names = node.args[1] if len(node.args) > 1 else None
    if isinstance(names, ast.NamedExpr):
        names = names.value
    match node.func, names:
        case (
            ast.Name(id="exec" | "eval"),
            ast.Dict(keys=[*_, ast.Constant(value="__builtins__")], values=[*_, ast.Dict(keys=[])]),
        ):
            return True
    return False


def _dotted(node: ast.expr) -> str:
    """Return "a.b.c" for attributes of a name, else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
