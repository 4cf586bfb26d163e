"""Find the modules that a module's text may import, and whether it may import others that the text does not name.

Whatever imports in another way than a plain statement or call may import anything. So may a function that imports if
it is renamed, passed on or named by a text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Sequence

from lockstep.machine_code.sources.syntax_tree import word

#: Functions that import the module that their one argument names.
IMPORTERS = frozenset({"import_module", "__import__"})
#: Names of other ways to import, and to change where imports are found.
_HIDDEN = frozenset(
    {
        *("iter_modules", "walk_packages", "exec_module", "resolve_name", "run_module", "run_path", "load_module"),
        *("load_source", "spec_from_file_location", "spec_from_loader", "module_from_spec", "SourceFileLoader"),
        *("SourcelessFileLoader", "ExtensionFileLoader", "zipimporter", "entry_points", "extend_path", "pythonapi"),
        *("attach", "attach_stub", "LazyLoader", "_LazyModule", "exec", "eval", "__builtins__", "__path__"),
    }
)
#: Modules that hold the functions above. A module that is passed on may be asked for them by a composed name.
_HOLDERS = frozenset(
    {"importlib", "importlib.util", "importlib.machinery", "builtins", "runpy", "pkgutil", "imp", "zipimport", "sys"}
)
#: Names by which code changes where imports are found.
_FINDERS = frozenset({"meta_path", "path_hooks", "path_importer_cache", "addsitedir"})
#: Other packages that import what a text or a stored object names; their functions have common names (``load``).
_LOADERS = frozenset(
    {
        *("hydra", "dill", "cloudpickle", "joblib", "gin", "fire", "jsonpickle", "yaml", "catalogue", "stevedore"),
        "pkg_resources",
    }
)
#: Modules of the standard library that import nothing that a text or a stored object names. Every other module may:
#: many of them evaluate texts (``timeit``, ``logging.config``, ``unittest.mock``) or objects (``pickle``).
_STANDARD = frozenset(
    {
        *("__future__", "abc", "argparse", "array", "ast", "asyncio", "atexit", "base64", "binascii", "bisect"),
        *("builtins", "cmath", "codecs", "collections", "collections.abc", "concurrent", "concurrent.futures"),
        *("contextlib", "contextvars", "copy", "csv", "ctypes", "ctypes.util", "dataclasses", "datetime", "decimal"),
        *("difflib", "enum", "errno", "fnmatch", "fractions", "functools", "glob", "gzip", "hashlib", "heapq"),
        *("importlib", "importlib.metadata", "importlib.resources", "importlib.util", "inspect", "io", "itertools"),
        *("json", "keyword", "logging", "math", "mmap", "numbers", "operator", "os", "os.path", "pathlib"),
        *("pkgutil", "platform", "posixpath", "pprint", "queue", "random", "re", "runpy", "secrets", "shutil"),
        *("signal", "socket", "stat", "statistics", "string", "struct", "sys", "sysconfig", "tempfile", "textwrap"),
        *("threading", "time", "tomllib", "traceback", "types", "typing", "unicodedata", "uuid", "warnings"),
        *("weakref", "zlib"),
    }
)
#: Submodules of these that may import what a text names, where ``from logging import config`` imports them.
_WITHIN = frozenset({"logging.config", "logging.handlers", "importlib.machinery", "importlib.abc"})


_DOTTED = re.compile(r"\.*[A-Za-z_]\w*([.:][A-Za-z_]\w*)*")


class ImportedModules:
    """The imports that a module's text shows.

    Args:
        walk: the nodes of the module's syntax tree, each before its children.
        module: dotted name of the module.
        is_package: whether the file is a package's ``__init__``.

    Attributes:
        names: dotted names that may be modules.
        hidden: whether the module may import modules that its text does not name.
        changes_path: whether the module may change the folders in which imports are found.
    """

    def __init__(self, walk: Sequence[ast.AST], module: str, is_package: bool) -> None:
        self._parts = module.split(".")
        self._is_package = is_package
        self._home = module if is_package else module.rpartition(".")[0]
        self.names: set[str] = set()
        self.hidden = self.changes_path = False
        #: What imports bind anywhere in the module, by name: dotted names.
        self._bound: dict[str, set[str]] = {}
        #: Nodes that name a function or module in a form whose effect is known.
        self._known: set[int] = set()
        self._owners: set[int] = set()
        for node in walk:
            if isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
        handlers: dict[type[ast.AST], Callable[..., None]] = {
            ast.Call: self._call,
            ast.Subscript: self._subscript,
            ast.Attribute: self._attribute,
            ast.Name: self._name,
            ast.Constant: self._constant,
        }
        for node in walk:
            if handler := handlers.get(type(node)):
                handler(node)

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name)
            top = alias.name.split(".", 1)[0]
            self._bound.setdefault(alias.asname or top, set()).add(alias.name if alias.asname else top)

    def _import_from(self, node: ast.ImportFrom) -> None:
        parts = self._parts[: len(self._parts) - node.level + self._is_package] if node.level else []
        base = ".".join([*parts, *([node.module] if node.module else [])])
        self._add(base)
        for alias in node.names:
            if alias.name == "*":
                continue
            name = f"{base}.{alias.name}"
            self.names.add(name)
            self.hidden |= name in _WITHIN or (alias.name in IMPORTERS | _HIDDEN and alias.asname is not None)
            self._bound.setdefault(alias.asname or alias.name, set()).add(name)
            if base == "sys":
                self._ask_sys(alias.name)

    def _add(self, module: str) -> None:
        self.names.add(module)
        self.hidden |= _may_import_anything(module)

    def _call(self, node: ast.Call) -> None:
        called = word(node.func)
        if called in IMPORTERS:
            match node:
                case ast.Call(args=[ast.Constant(value=str(name))], keywords=[]) if name[:1] != ".":
                    pass
                case ast.Call(args=[ast.Constant(value=str(name)), ast.Name("__package__")], keywords=[]) if (
                    name[:1] == "." != name[1:2]
                ):
                    name = self._home + name
                case _:
                    return
            self._add(name)
            # Whoever imports one of these modules by a call may ask it for a function by a composed name.
            self.hidden |= name in _HOLDERS
            self._known.add(id(node.func))
        elif called in ("exec", "eval") and (key := _without_builtins(node)):
            self._known.update((id(node.func), id(key)))
        elif called == "load" and isinstance(node.func, ast.Attribute):
            pickled = any(keyword.arg == "allow_pickle" for keyword in node.keywords)
            origins = self._bound.get(_dotted(node.func).partition(".")[0], ())
            self.hidden |= pickled or any(origin.partition(".")[0] == "torch" for origin in origins)

    def _subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Constant) or word(node.slice) == "__name__":
            self._known.add(id(node.value))  # sys.modules["toy"]: the text is followed as a module's name

    def _attribute(self, node: ast.Attribute) -> None:
        self._owners.add(id(node.value))
        self._mention(node, node.attr)
        owner = word(node.value)
        if (owner == "sys" or "sys" in self._bound.get(owner, ())) and id(node) not in self._known:
            self._ask_sys(node.attr)
        # "import toy" can reach toy.helpers if any module has imported it.
        if dotted := _dotted(node):
            first, _, rest = dotted.partition(".")
            self.names.update((dotted, f"{self._home}.{dotted}"))
            self.names.update(f"{origin}.{rest}" for origin in self._bound.get(first, ()))

    def _name(self, node: ast.Name) -> None:
        self._mention(node, node.id)
        if id(node) not in self._owners:  # passed on as an object
            origins = self._bound.get(node.id, set())
            self.hidden |= not origins.isdisjoint(_HOLDERS)
            self.changes_path |= "sys" in origins

    def _mention(self, node: ast.AST, name: str) -> None:
        builtins = name == "__builtins__"  # even __builtins__["…"] is not known
        self.hidden |= name in IMPORTERS | _HIDDEN and (builtins or id(node) not in self._known)
        self.changes_path |= name in _FINDERS

    def _constant(self, node: ast.Constant) -> None:
        text = node.value
        if not isinstance(text, str):
            return
        self.hidden |= text in IMPORTERS | _HIDDEN and id(node) not in self._known
        if _DOTTED.fullmatch(text):
            # A text may name a module, as lazy imports do: by its full name, or relative to its package.
            dotted = text.replace(":", ".").lstrip(".")
            self.names.update((dotted, dotted.rpartition(".")[0], f"{self._home}.{dotted}"))

    def _ask_sys(self, name: str) -> None:
        self.changes_path |= name == "path" or name in _FINDERS
        self.hidden |= name == "modules"


def _may_import_anything(module: str) -> bool:
    """Return whether functions of a module may import what a text or a stored object names."""
    top = module.split(".", 1)[0]
    return module not in _STANDARD if top in sys.stdlib_module_names else top in _LOADERS


def _without_builtins(node: ast.Call) -> ast.expr | None:
    """Return the key ``"__builtins__"`` if a call of ``exec`` or ``eval`` leaves its text no builtins, else ``None``.

    Without builtins a text cannot import. The names of the text must end with ``"__builtins__": {}``, so that nothing
    before it gives other builtins.
    """
    names = node.args[1] if len(node.args) > 1 else None
    if isinstance(names, ast.NamedExpr):
        names = names.value
    match node.func, names:
        case (
            ast.Name(id="exec" | "eval"),
            ast.Dict(keys=[*_, ast.Constant(value="__builtins__") as key], values=[*_, ast.Dict(keys=[])]),
        ):
            return key
    return None


def _dotted(node: ast.expr) -> str:
    """Return "a.b.c" for attributes of a name, else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
