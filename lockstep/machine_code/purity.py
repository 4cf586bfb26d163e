"""What code under test may use without asking the world: a list of what is allowed, with everything else refused.

A name is allowed if what it answers follows from its arguments alone, from what is installed, or from the target
(``lockstep.machine_code.answers``). What is installed is part of the identity of a trace. Everything that this module
does not know is refused, so a new way to ask the world makes a case unknown, never the same.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, BuiltinMethodType, CodeType, FunctionType, ModuleType
from typing import Any

#: Modules of the standard library, NumPy and packaging whose answers follow from the arguments.
PURE = frozenset(
    {
        *("__future__", "_abc", "_bisect", "_collections", "_collections_abc", "_contextvars", "_functools", "_heapq"),
        *("_operator", "_struct", "_thread", "_weakref", "_weakrefset", "abc", "array", "ast", "base64", "binascii"),
        *("bisect", "builtins", "cmath", "codecs", "collections", "collections.abc", "contextlib", "contextvars"),
        *(
            "copy",
            "copyreg",
            "dataclasses",
            "decimal",
            "difflib",
            "enum",
            "fractions",
            "functools",
            "hashlib",
            "_hashlib",
        ),
        *("heapq", "importlib.metadata", "importlib.metadata._adapters", "importlib.resources", "itertools", "json"),
        *("json.decoder", "json.encoder", "json.scanner", "_json", "keyword", "logging", "math", "ntpath", "numbers"),
        *("operator", "packaging", "packaging.version", "packaging._structures", "pprint", "re", "re._compiler"),
        *("re._parser", "reprlib", "statistics", "string", "struct", "textwrap", "tomllib", "tomllib._parser"),
        *("tomllib._re", "types", "typing", "typing_extensions", "unicodedata", "warnings", "weakref", "zlib"),
    }
)

#: Functions and values of other modules that are allowed, and why.
FACTS: Mapping[tuple[str, str], str] = {
    ("importlib", "import_module"): "imports are watched as they run",
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
    ("torch.version", "hip"): "None for every CUDA build of torch (torch/version.py)",
    ("torch.version", "__version__"): "what is installed",
    ("torch.xpu", "is_available"): "false for every CUDA build of torch (torch/xpu/__init__.py)",
}

#: Parts of torch that answer by their arguments. Its operators are written in C and noted as they are called.
TORCH = (
    *(
        "torch.nn",
        "torch.autograd",
        "torch.functional",
        "torch._tensor",
        "torch._tensor_str",
        "torch.amp",
        "torch._ops",
    ),
    *("torch._library", "torch._jit_internal", "torch._compile", "torch.utils._contextlib"),
    *(
        "torch.overrides",
        "torch.types",
        "torch._meta_registrations",
        "torch._refs",
        "torch._prims",
        "torch._prims_common",
    ),
    *("torch._decomp", "torch.utils._pytree", "torch.utils._python_dispatch", "torch.cuda.amp", "torch._linalg_utils"),
    *("torch._lowrank", "torch.fft", "torch.linalg", "torch.special", "torch.utils._device", "torch._classes"),
    *("torch._utils", "torch.ops", "torch.return_types", "torch._vmap_internals", "torch.distributed.tensor"),
)
#: Names of the module torch itself that are refused.
NOT_TORCH = frozenset(
    {
        *("get_num_threads", "get_num_interop_threads", "initial_seed", "seed", "load", "save", "_C", "_dynamo"),
        # They decide which kernels torch's operators launch, and no step shows it.
        *("set_float32_matmul_precision", "get_float32_matmul_precision", "use_deterministic_algorithms"),
        *("set_deterministic_debug_mode", "get_deterministic_debug_mode", "get_device_module", "get_device"),
    }
)
#: Parts of modules above whose answers differ on tensors without content, or which act past the trace.
REFUSED = frozenset(
    {
        ("_thread", "start_new_thread"),
        ("_thread", "start_joinable_thread"),
        ("_thread", "get_ident"),
        ("_thread", "get_native_id"),
        ("_operator", "attrgetter"),
        ("_operator", "methodcaller"),
        ("operator", "attrgetter"),
        ("operator", "methodcaller"),
        ("numpy", "datetime64"),
        ("torch.amp.autocast_mode", "autocast.__init__"),
        ("torch.cuda.amp.autocast_mode", "autocast.__init__"),
        ("torch.utils._python_dispatch", "_disable_current_modes"),
        *(
            ("torch._tensor", f"Tensor.{name}")
            for name in ("__repr__", "__format__", "__dlpack__", "__dlpack_device__", "is_shared", "__reduce_ex__")
        ),
    }
)
#: Parts of torch that choose kernels by the device, or give operators other kernels.
NOT_OF_TORCH = ("torch.nn.attention", "torch.nn.modules.transformer", "torch.library")
#: Functions of ``torch._C`` that answer by what the code itself has set, and not by the machine.
STATE_OF_TORCH = frozenset(
    {
        *("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "is_autocast_cache_enabled"),
        *("get_autocast_dtype", "get_autocast_gpu_dtype", "get_default_dtype", "is_autocast_cpu_enabled", "parse_ir"),
        *("get_autocast_cpu_dtype", "are_deterministic_algorithms_enabled", "_is_torch_function_enabled"),
        *("_get_deterministic_algorithms", "_set_grad_enabled", "_has_torch_function", "_has_torch_function_unary"),
        *("_has_torch_function_variadic", "_is_tracing", "_get_tracing_state", "_functionalization_reapply_views_tls"),
    }
)
#: Parts of Triton that measure or ask more than its driver, for which a stand-in answers.
NOT_TRITON = ("triton.testing", "triton.profiler", "triton.runtime.build", "triton.knobs")

#: Built-in functions that hide what is used, or whose answer differs from process to process.
REFUSED_BUILTINS = frozenset({"eval", "exec", "compile", "input", "id", "breakpoint", "__import__"})
#: Attributes through which code reaches what it does not name.
HIDING_ATTRIBUTES = frozenset(
    {"__builtins__", "__closure__", "__code__", "__globals__", "__loader__", "__subclasses__", "f_back", "f_globals"}
)

#: Modules that may be at hand: what is taken from them is looked at by itself.
HOLDERS = frozenset({"posixpath", "importlib", "importlib.util", "inspect", "pkgutil"})
#: Types whose instances may be at hand: what they do is seen when it is done.
HELD = frozenset(
    {("os", "_Environ"), ("re", "Pattern"), ("re", "Match"), ("pathlib", "PosixPath"), ("pathlib", "Path")}
)

#: Packages whose parts this module knows, and those that torch calls itself (``Requires-Dist`` of its wheel).
KNOWN = frozenset(
    {
        *("torch", "triton", "numpy", "lockstep", "packaging", "typing_extensions", "__main__"),
        *("sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock"),
    }
)

_MISSING = object()
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_FAST = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST_CHECK")
_NOISE = ("CACHE", "PRECALL", "EXTENDED_ARG", "PUSH_NULL", "RESUME", "COPY_FREE_VARS", "MAKE_CELL")


def top(module: str) -> str:
    """The top-level package of a dotted name."""
    return module.partition(".")[0]


def allowed(module: str, name: str) -> bool:
    """Whether a function or value of a module that is not under test may be used.

    Args:
        module: dotted name of the module that defines it.
        name: qualified name of the function, or name of the value.
    """
    if (module, name) in REFUSED or module.startswith(NOT_OF_TORCH):
        return False
    if (module, name) in FACTS or module in PURE or module.startswith(("collections.", "namedtuple_", "numpy.")):
        return not module.startswith("numpy.random")
    if module in ("numpy", "lockstep") or module.startswith("lockstep."):
        return True
    if top(module) == "triton":
        return not module.startswith(NOT_TRITON)
    if top(module) == "torch":
        return (
            (module == "torch" and name not in NOT_TORCH) or module.startswith(TORCH) or _torch_operator(module, name)
        )
    return False


def is_foreign(package: str) -> bool:
    """Whether a top-level package is neither the standard library nor one that a trace knows by its parts."""
    return bool(package) and package not in sys.stdlib_module_names and package not in KNOWN


def refused_mentions(
    code: CodeType, scope: Mapping[str, Any], own: frozenset[str], caches: list[Any] | None = None
) -> list[str]:
    """Values that a function of the code under test mentions and may not use; a sentence each.

    Only what calls do not show is looked for here: values, and functions and types written in C, which other C code may
    call unseen. Python functions are seen when they run (``lockstep.machine_code.watch``).

    Args:
        code: of the function.
        scope: its globals.
        own: top-level packages under test, and those that they may call.
        caches: gets the cached functions of other packages that are mentioned: they run unseen if they remember.
    """
    found = [f"uses {name}" for name in code.co_names if name in HIDING_ATTRIBUTES]
    for owner, name, value in _mentions(code, scope):
        if value is _MISSING or _seen_when_called(value):
            continue
        foreign = owner is not None and top(owner.__name__) not in own
        if isinstance(value, functools._lru_cache_wrapper):
            inner = inspect.unwrap(value)
            home = str(getattr(inner, "__module__", ""))
            if is_foreign(top(home)):
                if caches is not None and top(home) not in own:
                    caches.append(value)
            elif not allowed(home, getattr(inner, "__qualname__", name)):
                found.append(f"asks {home}.{name}")
            continue
        if isinstance(value, BuiltinFunctionType | BuiltinMethodType):
            found += [reason] if (reason := refused_call(value)) else []
        elif owner is not None and foreign and not isinstance(value, ModuleType | type):
            found += [] if allowed(owner.__name__, name) else [f"asks {owner.__name__}.{name}"]
        elif not _may_be_held(value, own):
            found.append(f"uses {_spell(value, name)}")
    return found


def _mentions(code: CodeType, scope: Mapping[str, Any]) -> Iterator[tuple[ModuleType | None, str, Any]]:
    """Owner, name and value at the end of each dotted name, as far as it leads through modules."""
    imported: dict[str, Any] = {}  # names of the function that are bound by its imports
    chain: tuple[ModuleType | None, str, Any] | None = None
    module: ModuleType | None = None
    bound: Any = _MISSING
    constants: list[Any] = [None, None]
    for step in dis.get_instructions(code):
        operation, argument = step.opname, step.argval
        if operation in _NOISE:
            continue
        if chain and operation in _ATTRIBUTES and isinstance(chain[2], ModuleType):
            chain = _attribute(chain[2], argument)
            continue
        if chain:
            yield chain
            chain = None
        if operation == "LOAD_CONST":
            constants = [constants[1], argument]
        elif operation == "IMPORT_NAME":
            module = _imported(argument, constants[0], constants[1], scope)
            bound = module
        elif operation == "IMPORT_FROM" and module is not None:
            found = _attribute(module, argument)
            bound = found[2]
            yield found
        elif operation.startswith("STORE_"):
            if bound is not _MISSING:
                imported[str(argument)] = bound
            bound = _MISSING
        elif operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            chain = (None, argument, scope.get(argument, vars(builtins).get(argument, _MISSING)))
        elif operation in _FAST and isinstance(imported.get(argument), ModuleType):
            chain = (None, argument, imported[argument])
    if chain:
        yield chain


def _attribute(owner: ModuleType, name: str) -> tuple[ModuleType, str, Any]:
    return owner, name, vars(owner).get(name, sys.modules.get(f"{owner.__name__}.{name}", _MISSING))


def _imported(name: str, level: Any, names: Any, scope: Mapping[str, Any]) -> ModuleType | None:
    """The module that an import statement has at hand; None where it is not imported."""
    if isinstance(level, int) and level:
        with contextlib.suppress(ImportError, ValueError):
            name = importlib.util.resolve_name("." * level + name, str(scope.get("__package__") or ""))
    return sys.modules.get(name if names else top(name))


def _seen_when_called(value: Any) -> bool:
    """Whether its use runs a Python function, which the watch sees."""
    if isinstance(value, type):
        return any(isinstance(vars(value).get(name), FunctionType) for name in ("__init__", "__new__", "__call__"))
    return isinstance(value, FunctionType)


def _may_be_held(value: Any, own: frozenset[str]) -> bool:
    """Whether a module, a type or an object may be at hand at all."""
    if isinstance(value, ModuleType):
        name = value.__name__
        return top(name) in own | {"torch", "triton", "numpy", "lockstep"} or name in PURE or name in HOLDERS
    kind = value if isinstance(value, type) else type(value)
    module = str(kind.__module__)
    return top(module) in own or allowed(module, kind.__qualname__) or (module, kind.__name__) in HELD


def refused_call(function: Any) -> str:
    """Why a function written in C may not be called, else ""."""
    name = str(getattr(function, "__name__", function))
    holder = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    if module is None:
        module = holder.__name__ if isinstance(holder, ModuleType) else type(holder).__module__
    if module == "builtins" and isinstance(holder, ModuleType):
        return f"calls {name}" if name in REFUSED_BUILTINS else ""
    if module == "torch._C" or (isinstance(holder, ModuleType) and holder.__name__ == "torch._C"):
        # Functions of the module itself; operators are methods of other objects.
        return "" if name in STATE_OF_TORCH else f"asks torch ({name})"
    if top(str(module)) in ("torch", "triton", "numpy"):
        refused = top(str(module)) == "torch" and isinstance(holder, ModuleType | type) and name in NOT_TORCH
        return f"asks torch ({name})" if refused else ""
    if allowed(str(module), name) or module in ("_io", "io", "_sre", "builtins"):
        return ""  # what _io reads was opened before, and opening is seen
    return f"calls {module}.{name}"


def refused_scope(scope: Mapping[str, Any], own: frozenset[str]) -> str:
    """Why code that looks its names up at run time may not, else "": it could reach a module that asks the world."""
    for name, value in scope.items():
        if isinstance(value, ModuleType) and not _may_be_held(value, own):
            return f"looks names up at run time, where {name} is one"
    return ""


def _torch_operator(module: str, name: str) -> bool:
    return module in ("torch._C", "torch._C._nn", "torch._C._linalg", "torch._C._special", "torch._C._fft")


def _spell(value: Any, name: str) -> str:
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    kind = value if isinstance(value, type) else type(value)
    return f"{name} ({getattr(value, '__module__', None) or kind.__module__}.{kind.__name__})"
