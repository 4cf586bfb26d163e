"""Decide what code under test may use without asking the machine: listed names are allowed, all others refused.

A name is allowed if its result depends only on its arguments, on what is installed, or on the target
(``lockstep.machine_code.tracing.simulated_target``). What is installed is part of a trace's identity. Everything not
listed in this module is refused, so an unlisted way to ask the machine makes a case unknown, never the same.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from lockstep.machine_code.watch.torch_purity import allowed_of_torch, allowed_of_triton, refused_call_of_torch

#: Modules of the standard library and packaging whose results depend only on their arguments.
PURE = frozenset(
    {
        *("__future__", "_abc", "_bisect", "_collections", "_collections_abc", "_contextvars", "_functools", "_heapq"),
        *("_operator", "_struct", "_thread", "_weakref", "_weakrefset", "abc", "array", "ast", "base64", "binascii"),
        *("bisect", "builtins", "cmath", "codecs", "collections", "collections.abc", "contextlib", "contextvars"),
        *("copy", "copyreg", "dataclasses", "decimal", "difflib", "enum", "fractions", "functools", "hashlib"),
        *("_hashlib", "heapq", "importlib.metadata", "importlib.metadata._adapters", "importlib.resources"),
        *("itertools", "json", "json.decoder", "json.encoder", "json.scanner", "_json", "keyword", "logging", "math"),
        *("ntpath", "numbers", "operator", "packaging", "packaging.version", "packaging._structures", "pprint", "re"),
        *("re._compiler", "re._parser", "reprlib", "statistics", "string", "struct", "textwrap", "tomllib"),
        *("tomllib._parser", "tomllib._re", "types", "typing", "typing_extensions", "unicodedata", "warnings"),
        *("weakref", "zlib"),
    }
)
#: Names of ``logging`` that return nothing about the machine. A record has the time and the process, but only a handler
#: of the code's own would receive it.
_LOGGING = frozenset(
    {
        *("getLogger", "getLevelName", "getLoggerClass", "critical", "fatal", "error", "exception", "warning", "warn"),
        *("info", "debug", "log", "_checkLevel", "NullHandler", "currentframe", "_acquireLock", "_releaseLock"),
        *("CRITICAL", "FATAL", "ERROR", "WARNING", "WARN", "INFO", "DEBUG", "NOTSET", "Logger", "LoggerAdapter"),
    }
)

#: Allowed functions and values of other modules, with the reason.
FACTS: Mapping[tuple[str, str], str] = {
    ("importlib", "util"): "a module",
    ("importlib.util", "find_spec"): "what is installed",
    ("inspect", "signature"): "of a function",
    ("inspect", "Parameter"): "a class of plain values",
    ("inspect", "Signature"): "a class of plain values",
    ("inspect", "get_annotations"): "of its argument",
    ("inspect", "isfunction"): "of its argument",
    ("inspect", "isclass"): "of its argument",
    ("os", "environ"): "noted where it is read",
    ("os", "getenv"): "noted where it is read",
    ("os", "path"): "a module",
    ("os", "sep"): "of the platform that is installed",
    ("os", "PathLike"): "a class",
    ("os", "fspath"): "of its argument",
    ("posix", "fspath"): "of its argument",
    ("pkgutil", "iter_modules"): "files of the tree",
    ("sys", "version_info"): "what is installed",
    ("sys", "maxsize"): "of the platform that is installed",
    ("sys", "byteorder"): "of the platform that is installed",
    ("sys", "platform"): "of the platform that is installed",
    ("sys", "float_info"): "of the platform that is installed",
    ("threading", "Lock"): "a class",
    ("threading", "RLock"): "a class",
    ("threading", "local"): "a class",
    ("torch.compiler", "is_compiling"): "torch.compile is not traced",
    ("torch._dynamo", "is_compiling"): "torch.compile is not traced",
    ("torch.distributed", "is_available"): "what is installed",
    ("torch.distributed", "is_initialized"): "no suite starts processes that talk to each other",
    ("torch.distributed.distributed_c10d", "is_initialized"): "no suite starts processes that talk to each other",
    ("torch.version", "hip"): "None for every CUDA build of torch (torch/version.py)",
    ("torch.version", "__version__"): "what is installed",
    ("torch.xpu", "is_available"): "false for every CUDA build of torch (torch/xpu/__init__.py)",
}

#: Parts of the modules above whose results differ on tensors without content or from process to process, or whose
#: effects the trace cannot see.
REFUSED = frozenset(
    {
        *(("_thread", name) for name in ("start_new_thread", "start_joinable_thread", "get_ident", "get_native_id")),
        *((module, name) for module in ("_operator", "operator") for name in ("attrgetter", "methodcaller")),
        ("numpy", "datetime64"),
        ("torch.amp.autocast_mode", "autocast.__init__"),
        ("torch.cuda.amp.autocast_mode", "autocast.__init__"),
        ("torch.utils._python_dispatch", "_disable_current_modes"),
    }
)
#: Parts of NumPy that ask the machine.
NOT_NUMPY = ("numpy.random", "numpy.f2py", "numpy.distutils", "numpy.ctypeslib", "numpy.testing", "numpy.__config__")

#: Built-in functions that hide what is used, or whose result differs from process to process.
REFUSED_BUILTINS = frozenset({"eval", "exec", "compile", "input", "id", "hash", "breakpoint", "__import__"})
#: Attributes through which code reaches objects that it does not name, or replaces results of torch.
HIDING_ATTRIBUTES = frozenset(
    {
        *("__builtins__", "__closure__", "__code__", "__globals__", "__loader__", "__subclasses__", "f_back"),
        *("f_globals", "__mro__", "__base__", "__bases__", "__torch_function__", "__torch_dispatch__"),
        *("__cpu_features__", "_cdata"),
    }
)

#: Modules that code may refer to: each name that is read from them is checked separately.
HOLDERS = frozenset({"posixpath", "importlib", "importlib.util", "inspect", "pkgutil"})
#: Types whose instances code may hold: their methods are checked when called.
HELD = frozenset(
    {
        ("os", "_Environ"),
        ("re", "Pattern"),
        ("re", "Match"),
        *((module, name) for module in ("pathlib", "pathlib._local") for name in ("PosixPath", "Path")),  # 3.13
    }
)

#: Packages whose parts this module lists, and packages that torch itself calls (``Requires-Dist`` of its wheel).
KNOWN = frozenset(
    {
        *("torch", "triton", "numpy", "lockstep", "packaging", "typing_extensions", "__main__"),
        *("sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock"),
    }
)


def top(module: str) -> str:
    """Return the top-level package of a dotted name."""
    return module.partition(".")[0]


def allowed(module: str, name: str) -> bool:
    """Return whether code may use a function or value of another package and its trace is still trusted.

    Args:
        module: dotted name of the module that defines the function or value.
        name: qualified name of the function, or name of the value.
    """
    if (module, name) in REFUSED:
        return False
    if module == "logging":
        return name in _LOGGING or name.startswith(("Logger.", "LoggerAdapter.", "Manager.", "NullHandler."))
    if (module, name) in FACTS or module in PURE or module.startswith(("collections.", "namedtuple_")):
        return True
    if module in ("lockstep", "numpy") or module.startswith(("lockstep.", "numpy.")):
        return not module.startswith(NOT_NUMPY)
    if top(module) == "triton":
        return allowed_of_triton(module)
    return top(module) == "torch" and allowed_of_torch(module, name)


def is_foreign(package: str) -> bool:
    """Return whether a package is neither in the standard library nor in ``KNOWN``; its functions are then checked."""
    return bool(package) and package not in sys.stdlib_module_names and package not in KNOWN


def may_be_held(value: Any, own: frozenset[str]) -> bool:
    """Return whether code may refer to ``value``: a module, type or object whose reads and calls are checked later."""
    if isinstance(value, ModuleType):
        name = value.__name__
        return top(name) in own | {"torch", "triton", "numpy", "lockstep"} or name in PURE or name in HOLDERS
    kind = value if isinstance(value, type) else type(value)
    module = str(kind.__module__)
    return top(module) in own or allowed(module, kind.__qualname__) or (module, kind.__name__) in HELD


def refused_call(function: Any) -> str:
    """Return why calling a function written in C makes the trace of a case untrusted; "" if it does not."""
    name = str(getattr(function, "__name__", function))
    holder = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    if module is None:
        module = holder.__name__ if isinstance(holder, ModuleType) else type(holder).__module__
    if module == "builtins" and isinstance(holder, ModuleType):
        return f"calls {name}" if name in REFUSED_BUILTINS else ""
    if top(str(module)) == "torch":
        return refused_call_of_torch(str(module), name, holder)
    if top(str(module)) in ("triton", "numpy"):
        return ""
    if allowed(str(module), name) or module in ("_io", "io", "_sre", "builtins"):
        return ""  # _io reads only files that were opened before, and opening is checked
    return f"calls {module}.{name}"


def refused_scope(scope: Mapping[str, Any], own: frozenset[str]) -> str:
    """Return why code that looks up names at run time, as by ``globals``, may reach a refused module in ``scope``.

    The result is "" if the scope holds no refused module.
    """
    for name, value in scope.items():
        if isinstance(value, ModuleType) and not may_be_held(value, own):
            return f"looks names up at run time and could so reach the module {name}"
    return ""


def spell(value: Any, name: str) -> str:
    """Return a description of a refused value for a message: its name and type, or the name of a module."""
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    kind = value if isinstance(value, type) else type(value)
    return f"{name} ({getattr(value, '__module__', None) or kind.__module__}.{kind.__name__})"
