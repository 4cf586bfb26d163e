"""Find modules that can reach objects without naming them (``eval``, ``globals``, ``__dict__``).

The sources of such a module do not show what a variant reaches, so they cannot prove that the variant is unchanged.
"""

from __future__ import annotations

import ast
import sys

from lockstep.machine_code.sources.file_dependencies import nodes, passes_on

#: Functions by which code may reach objects without naming them, however the functions are used.
_FUNCTIONS = frozenset(
    {
        *("eval", "exec", "globals", "vars", "locals", "setattr", "delattr", "attrgetter", "methodcaller", "compile"),
        *("getmembers", "getmodule", "get_objects", "get_referrers", "walk_packages", "iter_modules", "resolve_name"),
        *("run_module", "run_path", "load_source", "spec_from_file_location", "exec_module", "entry_points"),
        *("dir", "get_type_hints", "get_annotations", "getattr_static", "import_string", "format_map", "Formatter"),
        *("vformat", "get_field"),
    }
)
#: Functions in ``_FUNCTIONS`` whose names are also methods of unrelated objects, such as ``model.eval()``.
_METHODS = frozenset({"eval", "exec", "compile", "dir"})
_ATTRIBUTES = frozenset(
    {
        *("__dict__", "__globals__", "__builtins__", "__subclasses__", "__code__", "__closure__", "__getattribute__"),
        *("__annotations__", "__kwdefaults__", "__defaults__", "__mro__", "__bases__", "f_globals", "f_locals"),
        *("f_back", "modules", "meta_path", "path_hooks", "__import__"),
    }
)
#: Functions that can reach any object unless an argument is a literal text, with the position of that argument.
_UNLESS_TEXT = {"getattr": 1, "hasattr": 1, "import_module": 0, "__import__": 0}
#: Modules of the standard library that reach no object through a text or a stored object. Every other module may: many
#: of them evaluate texts (``timeit``, ``logging.config``, ``xmlrpc.server``, ``unittest.mock``).
_STANDARD = frozenset(
    {
        *("__future__", "abc", "argparse", "array", "ast", "base64", "binascii", "bisect", "builtins", "cmath"),
        *("collections", "collections.abc", "concurrent", "concurrent.futures", "contextlib", "contextvars", "copy"),
        *("csv", "dataclasses", "datetime", "decimal", "difflib", "enum", "errno", "fractions", "functools"),
        *("glob", "gzip", "hashlib", "heapq", "importlib", "importlib.metadata", "importlib.resources"),
        *("importlib.util", "inspect", "io", "itertools", "json", "keyword", "logging", "math", "numbers", "operator"),
        *("os", "os.path", "pathlib", "platform", "posixpath", "pprint", "queue", "random", "re", "shutil", "signal"),
        *("socket", "stat", "statistics", "string", "struct", "sys", "tempfile", "textwrap", "threading", "time"),
        *("tomllib", "traceback", "types", "typing", "unicodedata", "uuid", "warnings", "weakref", "zlib"),
    }
)
#: Submodules of the modules in ``_STANDARD`` that can nevertheless reach any object.
_WITHIN = frozenset({"logging.config", "logging.handlers", "importlib.machinery", "importlib.abc"})
#: Other packages that reach objects through a text or a stored object.
_PACKAGES = frozenset({"hydra", "dill", "cloudpickle", "gin", "fire", "jsonpickle", "yaml", "catalogue", "stevedore"})


def hides(module: ast.Module) -> bool:
    """Return whether a module may reach objects without naming them, for example by ``eval`` or ``globals()``."""
    bound = {
        node.id if isinstance(node, ast.Name) else node.arg
        for node in nodes(module)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
    }
    return any(_hides(node, bound) for node in nodes(module)) or passes_on(module, frozenset(_UNLESS_TEXT))


def _hides(node: ast.AST, bound: set[str]) -> bool:
    match node:
        case ast.ImportFrom(names=aliases, module=source, level=level):
            base = source or ""
            return (not level and _is_hiding(base)) or any(
                alias.name == "*" or alias.name in _FUNCTIONS or (not level and f"{base}.{alias.name}" in _WITHIN)
                for alias in aliases
            )
        case ast.Import(names=aliases):
            return any(_is_hiding(alias.name) for alias in aliases)
        case ast.Attribute(attr=name):
            return name in _ATTRIBUTES or (name in _FUNCTIONS and name not in _METHODS)
        case ast.Name(id=name, ctx=ast.Load()):
            return name == "__builtins__" or (name in _FUNCTIONS and name not in bound)
        case ast.Call():
            return _call_hides(node)
    return False


def _call_hides(node: ast.Call) -> bool:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in ("import_module", "__import__") and any(_is_hiding_text(part) for part in ast.walk(node)):
        return True
    if name in _UNLESS_TEXT:
        position = _UNLESS_TEXT[name]
        if len(node.args) <= position or not isinstance(text := node.args[position], ast.Constant):
            return True
        return text.value in _FUNCTIONS or text.value in _ATTRIBUTES
    if name == "format" and isinstance(node.func, ast.Attribute):
        # A format text may name any attribute: "{0.tile}".
        return not isinstance(node.func.value, ast.Constant | ast.Name | ast.Attribute)
    return isinstance(node.func, ast.Name) and name in _FUNCTIONS


def _is_hiding_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_hiding(node.value)


def _is_hiding(module: str) -> bool:
    first = module.split(".")[0]
    if first in sys.stdlib_module_names:
        return module not in _STANDARD
    return first in _PACKAGES
