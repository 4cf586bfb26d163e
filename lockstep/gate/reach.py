"""What a variant's code can reach, read from the sources: where none of it differs, the variant does not either.

For variants that cannot be traced without a GPU (torch.compile, a compiled extension), and for machines without one.
Reachability is by name, whatever module the name is in: a definition is reachable if a reachable statement mentions its
name, as a name, an attribute or a text. Statements that do something at import (calls, branches, decorators and base
classes that may register something, special functions of the module) are always reachable, in their order. That finds
too much rather than too little. Modules that make up names at run time prove nothing.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator, Mapping

from lockstep.machine_code.sources import OUTSIDE, reads_its_text
from lockstep.machine_code.syntax import passes_on

#: Decorators that do nothing but wrap what they decorate, where they come from these modules.
WRAPPERS: Mapping[str, frozenset[str]] = {
    "triton": frozenset({"jit"}),
    "triton.experimental.gluon": frozenset({"jit"}),
    "functools": frozenset({"cache", "lru_cache", "cached_property", "wraps"}),
    "dataclasses": frozenset({"dataclass"}),
    "typing": frozenset({"override", "overload", "final"}),
    "abc": frozenset({"abstractmethod"}),
    "contextlib": frozenset({"contextmanager"}),
    "builtins": frozenset({"property", "staticmethod", "classmethod"}),
}
#: Base classes that do nothing when a class is derived from them, where they come from these modules.
BASES: Mapping[str, frozenset[str]] = {
    "torch.autograd": frozenset({"Function"}),
    "torch": frozenset({"autograd.Function", "nn.Module"}),
    "torch.nn": frozenset({"Module"}),
    "typing": frozenset({"NamedTuple", "Protocol", "TypedDict", "Generic"}),
    "enum": frozenset({"Enum", "IntEnum"}),
    "abc": frozenset({"ABC"}),
    "builtins": frozenset(
        name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
    )
    | {"object", "int", "float", "str", "tuple", "dict", "list"},
}

#: Calls by which code may reach what it does not name; ``getattr`` and imports only where the name is no text.
HIDING = frozenset(
    {
        *("eval", "exec", "globals", "vars", "locals", "setattr", "delattr", "attrgetter", "methodcaller", "compile"),
        *("getmembers", "getmodule", "get_objects", "get_referrers", "walk_packages", "iter_modules", "resolve_name"),
        *("run_module", "run_path", "load_source", "spec_from_file_location", "exec_module", "entry_points"),
        *("dir", "get_type_hints", "get_annotations", "getattr_static", "import_string"),
    }
)
HIDING_ATTRIBUTES = frozenset(
    {
        *("__dict__", "__globals__", "__builtins__", "__subclasses__", "__code__", "__closure__", "__getattribute__"),
        *(
            "__annotations__",
            "__kwdefaults__",
            "__defaults__",
            "__mro__",
            "__bases__",
            "f_globals",
            "f_locals",
            "f_back",
        ),
        *("modules", "meta_path", "path_hooks", "__import__"),
    }
)
HIDING_UNLESS_TEXT = {"getattr": 1, "hasattr": 1, "import_module": 0, "__import__": 0}
#: Modules whose use hides what is reached.
HIDING_MODULES = frozenset(
    {
        "pydoc",
        "hydra",
        "pickle",
        "marshal",
        "shelve",
        "dill",
        "cloudpickle",
        "gc",
        "runpy",
        "imp",
        "zipimport",
        "pkgutil",
        "ctypes",
        "code",
    }
)
#: Modules whose import does nothing that this repository could see.
QUIET = frozenset({"torch", "triton", "numpy"})

_WORDS = re.compile(r"[\w.:]+")


def reach(files: Mapping[str, bytes], family: str, variant: str) -> frozenset[str] | None:
    """Everything that a variant can reach, a text a statement without comments, docstrings and layout.

    Args:
        files: what the family's module stands on, by path; ``lockstep.machine_code.sources.closure`` finds it.
        family: path of the family's module, without ".py" or "/__init__.py".
        variant: a key of its ``VARIANTS`` or ``PREPARE``.

    Returns:
        ``None`` where reading the sources cannot tell.
    """
    if OUTSIDE in files or reads_its_text(files):
        return None
    modules: dict[str, ast.Module] = {}
    for path, content in files.items():
        if path.endswith(".py"):
            try:
                modules[path] = _strip(ast.parse(content))
            except (SyntaxError, ValueError):
                return None
    if any(_hides(node) for module in modules.values() for node in ast.walk(module)):
        return None
    if any(passes_on(module, frozenset(HIDING_UNLESS_TEXT)) for module in modules.values()):
        return None
    packages = {path.split("/", 1)[0] for path in files}
    # Names that any module sets on another are not what that module's imports say.
    replaced = {name for one in modules.values() for node in ast.walk(one) if (name := _stored(node))}
    scopes = {path: _Scope(module, packages, replaced) for path, module in modules.items()}
    reached: dict[str, dict[int, str]] = {path: {} for path in modules}
    waiting: list[tuple[str, int, ast.stmt]] = []
    names: set[str] = {"SCRATCH", "TABLE"}  # lockstep.suite.family reads them
    listed = False
    for path, module in modules.items():
        scope = scopes[path]
        for at, statement in enumerate(module.body):
            if path in (f"{family}.py", f"{family}/__init__.py") and _binds(statement) & {"VARIANTS", "PREPARE"}:
                listed |= "VARIANTS" in _binds(statement)
                entries = _entries(statement, variant)
                if entries is None:
                    return None
                for entry in entries:
                    names |= set(_mentions(entry, scope.foreign))
                reached[path][at] = " ".join(map(ast.dump, entries))
                waiting.append((path, at, statement))  # whole, should anything look others up in it
            elif scope.acts(statement):
                names |= set(_mentions(statement, scope.foreign))
                reached[path][at] = ast.dump(statement)
            elif loads := scope.loads(statement, path, files):
                reached[path][at] = f"loads {' '.join(loads)}"  # in this order
                waiting.append((path, at, statement))
            else:
                waiting.append((path, at, statement))
    if not listed:  # its functions are those of today's VARIANTS (lockstep.suite.family), which no file here names
        return None
    while found := [one for one in waiting if _binds(one[2]) & names or _is_special(one[2])]:
        waiting = [one for one in waiting if one not in found]
        for path, at, statement in found:
            names |= set(_mentions(statement, scopes[path].foreign))
            reached[path][at] = ast.dump(statement)
    data = {f"{path} {content.hex()}" for path, content in files.items() if path not in modules}
    # One text a module, so that the order of its statements counts.
    texts = (f"{path} " + "\n".join(text for _, text in sorted(found.items())) for path, found in reached.items())
    return frozenset({*data, *texts})


def _is_special(statement: ast.stmt) -> bool:
    """Whether it defines a name that Python itself looks up: ``__getattr__`` of a module."""
    return any(name.startswith("__") for name in _binds(statement))


def _stored(node: ast.AST) -> str:
    """The attribute that is set or deleted, else ""."""
    return node.attr if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) else ""


def _hides(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(names=aliases, module=module):
            hiding = (module or "").split(".")[0] in HIDING_MODULES
            return hiding or any(alias.name == "*" or alias.name in HIDING for alias in aliases)
        case ast.Import(names=aliases):
            return any(alias.name.split(".")[0] in HIDING_MODULES for alias in aliases)
        case ast.Attribute(attr=name):
            return name in HIDING_ATTRIBUTES
        case ast.Name(id=name, ctx=ast.Load()) if name in ("eval", "exec", "globals", "vars", "locals", "__builtins__"):
            return True
    if not isinstance(node, ast.Call):
        return False
    name = _called(node)
    if name in ("import_module", "__import__") and any(_hiding_module(one) for one in ast.walk(node)):
        return True
    if name in HIDING_UNLESS_TEXT:
        at = HIDING_UNLESS_TEXT[name]
        if len(node.args) <= at or not isinstance(text := node.args[at], ast.Constant):
            return True
        return text.value in HIDING or text.value in HIDING_ATTRIBUTES
    if isinstance(node.func, ast.Attribute) and name in ("eval", "exec", "compile", "dir"):
        return False  # a method of something else, model.eval() say
    return name in HIDING


def _hiding_module(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return text.split(".")[0] in HIDING_MODULES
    return False


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


class _Scope:
    """What the names of a module stand for.

    Attributes:
        foreign: names that stand for things from outside everywhere in the module; what they have is not the project's.
    """

    def __init__(self, module: ast.Module, packages: set[str], replaced: set[str]) -> None:
        self._origins, own = _origins(module, packages)
        self._shadowed = own | replaced
        self.foreign = set(self._origins) - self._shadowed
        self._packages = packages
        self._plain = _constants(module) - replaced

    def acts(self, statement: ast.stmt) -> bool:
        """Whether it does something when the module is imported, beyond giving a name to something."""
        match statement:
            case ast.ImportFrom(module="__future__"):
                return True
            case ast.Import() | ast.ImportFrom():
                return False  # see ``loads``
            case ast.FunctionDef(args=taken) | ast.AsyncFunctionDef(args=taken):
                defaults = [*taken.defaults, *filter(None, taken.kw_defaults)]
                noted = [one.annotation for one in ast.walk(taken) if isinstance(one, ast.arg) and one.annotation]
                noted += [statement.returns] if statement.returns else []
                return self._registers(statement) or not all(map(self._inert, defaults)) or any(map(_calls, noted))
            case ast.ClassDef(bases=bases, keywords=keywords, body=body):
                derived = not all(self._is_known(base, BASES) for base in bases)
                return self._registers(statement) or bool(keywords) or derived or any(map(self.acts, body))
            case ast.Assign(targets=targets, value=value):
                return not all(isinstance(one, ast.Name) for one in targets) or not self._inert(value)
            case ast.AnnAssign(target=ast.Name(), value=value, annotation=annotation):
                return _calls(annotation) or (value is not None and not self._inert(value))
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return False
        return True

    def loads(self, statement: ast.stmt, path: str, files: Mapping[str, bytes]) -> list[str]:
        """Modules that an import may run first: the project's, and those of packages that may do anything."""
        match statement:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=source, level=level, names=aliases):
                home = path.split("/")[:-level] if level else []
                base = ".".join([*home, *([source] if source else [])])
                names = [base, *(f"{base}.{alias.name}" for alias in aliases)]
            case _:
                return []
        own = [name for name in names if name.split(".")[0] in self._packages]
        files_of = {name: name.replace(".", "/") for name in own}
        known = [name for name, file in files_of.items() if f"{file}.py" in files or f"{file}/__init__.py" in files]
        quiet = QUIET | sys.stdlib_module_names | self._packages
        return known + [name for name in names if name.split(".")[0] not in quiet]

    def _registers(self, statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
        for decorator in statement.decorator_list:
            wrapper = decorator.func if isinstance(decorator, ast.Call) else decorator
            arguments = (
                [*decorator.args, *(one.value for one in decorator.keywords)] if isinstance(decorator, ast.Call) else []
            )
            if not self._is_known(wrapper, WRAPPERS) or not all(map(self._inert, arguments)):
                return True
        return False

    def _is_known(self, node: ast.expr, known: Mapping[str, frozenset[str]]) -> bool:
        """Whether a name, a dotted one too, is one of these of a module from outside."""
        if isinstance(node, ast.Subscript):  # Generic[T]
            node = node.value
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self._shadowed:
            return False
        origin = self._origins.get(node.id, "builtins." + node.id)
        full = ".".join([origin, *reversed(parts)])
        return any(full == f"{module}.{name}" for module, names in known.items() for name in names)

    def _inert(self, value: ast.expr) -> bool:
        """Whether evaluating it runs no code of the project: constants, names, and containers of these."""
        match value:
            case ast.Constant() | ast.Name():
                return True
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return all(map(self._inert, parts))
            case ast.Dict(keys=keys, values=values):
                return all(key is not None and self._inert(key) for key in keys) and all(map(self._inert, values))
            case ast.Lambda(args=taken):
                return all(map(self._inert, [*taken.defaults, *filter(None, taken.kw_defaults)]))
            case ast.Attribute():
                root: ast.expr = value
                while isinstance(root, ast.Attribute):
                    root = root.value
                return isinstance(root, ast.Name) and root.id in self.foreign
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.IfExp() | ast.Subscript():
                return all(self._is_plain(node) for node in ast.walk(value) if isinstance(node, ast.expr))
        return False

    def _is_plain(self, node: ast.expr) -> bool:
        """Whether a part of an expression is a constant, a name of one, or an operation on such."""
        operation = ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.IfExp | ast.Subscript | ast.Tuple
        if isinstance(node, ast.Name):
            return node.id in self._plain or node.id in self.foreign
        return isinstance(node, ast.Constant | operation)


def _constants(module: ast.Module) -> set[str]:
    """Names that are bound once in the module, to a constant."""
    bound = [(name, one) for one in module.body for name in _binds(one)]
    twice = {name for name, _ in bound if sum(name == other for other, _ in bound) > 1}
    return {
        name for name, one in bound if name not in twice and isinstance(getattr(one, "value", None), ast.Constant)
    }  # fmt: skip


def _calls(value: ast.expr) -> bool:
    """Whether evaluating it calls anything."""
    return any(isinstance(node, ast.Call | ast.Await | ast.Yield | ast.NamedExpr) for node in ast.walk(value))


def _binds(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name.split(".")[0] for alias in aliases}
        case ast.Assign(targets=targets):
            return {one.id for one in targets if isinstance(one, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _origins(module: ast.Module, packages: set[str]) -> tuple[dict[str, str], set[str]]:
    """Names of things from outside with their dotted names, and names that stand for the project's own somewhere."""
    outside: dict[str, str] = {}
    own: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    name, root = alias.asname or alias.name.split(".")[0], alias.name.split(".")[0]
                    _bind(name, alias.name if alias.asname else root, outside, own, own_code=root in packages)
            case ast.ImportFrom(module=source, names=aliases, level=level):
                for alias in aliases:
                    own_code = bool(level) or (source or "").split(".")[0] in packages
                    _bind(alias.asname or alias.name, f"{source}.{alias.name}", outside, own, own_code=own_code)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                own.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                own.add(name)
            case ast.MatchMapping(rest=str(name)):
                own.add(name)
    return outside, own


def _bind(name: str, origin: str, outside: dict[str, str], own: set[str], *, own_code: bool) -> None:
    if own_code or outside.setdefault(name, origin) != origin:
        own.add(name)


def _mentions(node: ast.AST, foreign: set[str]) -> Iterator[str]:
    """Names, attributes, and texts that may be looked up as names."""
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
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            for alias in aliases:
                yield from alias.name.split(".")
    for child in ast.iter_child_nodes(node):
        yield from _mentions(child, foreign)


def _entries(statement: ast.stmt, variant: str) -> list[ast.expr] | None:
    """The values that a dict literal has for a variant; ``None`` if it is no plain literal."""
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) for key in value.keys):
        return None
    return [one for key, one in zip(value.keys, value.values, strict=True) if getattr(key, "value", None) == variant]


def _strip(module: ast.Module) -> ast.Module:
    """Without docstrings."""
    for node in ast.walk(module):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if ast.get_docstring(node, clean=False) is not None:
                    node.body = node.body[1:]
    return module
