"""Find which statements of a module do more at import than bind names, and which names statements bind or change."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping

#: Decorators, by module, that only wrap the decorated function or class.
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
#: Base classes, by module, that cause no side effects when a class is derived from them.
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

#: Modules whose import has no effect on this repository's code.
QUIET = frozenset({"torch", "triton", "numpy"})


class Scope:
    """The meaning of a module's names, from which the methods decide whether a statement has an effect at import.

    Attributes:
        foreign: names that stand for objects of other packages everywhere in the module, as do their attributes.
    """

    def __init__(self, module: ast.Module, packages: set[str], replaced: set[str]) -> None:
        self._origins, bound_otherwise = _origins(module, packages)
        self._shadowed = bound_otherwise | replaced
        self.foreign = set(self._origins) - self._shadowed
        self._packages = packages
        self._plain = _constants(module) - replaced

    def acts(self, statement: ast.stmt) -> bool:
        """Return whether a statement does more at import than bind names."""
        match statement:
            case ast.ImportFrom(module="__future__"):
                return True
            case ast.Import() | ast.ImportFrom():
                return False  # ``loads`` handles imports
            case ast.FunctionDef(args=parameters) | ast.AsyncFunctionDef(args=parameters):
                defaults = [*parameters.defaults, *filter(None, parameters.kw_defaults)]
                annotations = [
                    parameter.annotation
                    for parameter in ast.walk(parameters)
                    if isinstance(parameter, ast.arg) and parameter.annotation
                ]
                annotations += [statement.returns] if statement.returns else []
                return (
                    self._registers(statement) or not all(map(self._inert, defaults)) or any(map(_calls, annotations))
                )
            case ast.ClassDef(bases=bases, keywords=keywords, body=body):
                derived = not all(self._is_known(base, BASES) for base in bases)
                return self._registers(statement) or bool(keywords) or derived or any(map(self.acts, body))
            case ast.Assign(targets=targets, value=value):
                return not all(isinstance(target, ast.Name) for target in targets) or not self._inert(value)
            case ast.AnnAssign(target=ast.Name(), value=value, annotation=annotation):
                return _calls(annotation) or (value is not None and not self._inert(value))
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return False
        return True

    def loads(self, statement: ast.stmt, path: str, files: Mapping[str, bytes]) -> list[str]:
        """Return the modules whose code an import may run: the project's, and others not known to have no effect."""
        match statement:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=source, level=level, names=aliases):
                home = path.split("/")[:-level] if level else []
                base = ".".join([*home, *([source] if source else [])])
                names = [base, *(f"{base}.{alias.name}" for alias in aliases)]
            case _:
                return []
        own_modules = [name for name in names if name.split(".")[0] in self._packages]
        files_of = {name: name.replace(".", "/") for name in own_modules}
        known = [name for name, file in files_of.items() if f"{file}.py" in files or f"{file}/__init__.py" in files]
        quiet = QUIET | sys.stdlib_module_names | self._packages
        return known + [name for name in names if name.split(".")[0] not in quiet]

    def _registers(self, statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
        for decorator in statement.decorator_list:
            wrapper = decorator.func if isinstance(decorator, ast.Call) else decorator
            arguments = (
                [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
                if isinstance(decorator, ast.Call)
                else []
            )
            if not self._is_known(wrapper, WRAPPERS) or not all(map(self._inert, arguments)):
                return True
        return False

    def _is_known(self, node: ast.expr, known: Mapping[str, frozenset[str]]) -> bool:
        """Return whether an expression is a name, dotted or not, that ``known`` lists for another package's module."""
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
        """Return whether evaluating an expression runs no code of the project: constants, names, and containers."""
        match value:
            case ast.Constant() | ast.Name():
                return True
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return all(map(self._inert, parts))
            case ast.Dict(keys=keys, values=values):
                return all(key is not None and self._inert(key) for key in keys) and all(map(self._inert, values))
            case ast.Lambda(args=parameters):
                return all(map(self._inert, [*parameters.defaults, *filter(None, parameters.kw_defaults)]))
            case ast.Attribute():
                root: ast.expr = value
                while isinstance(root, ast.Attribute):
                    root = root.value
                return isinstance(root, ast.Name) and root.id in self.foreign
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.IfExp() | ast.Subscript():
                return all(self._is_plain(node) for node in ast.walk(value) if isinstance(node, ast.expr))
        return False

    def _is_plain(self, node: ast.expr) -> bool:
        """Return whether a node of an expression is a constant, the name of a constant, or an operation."""
        operation = ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.IfExp | ast.Subscript | ast.Tuple
        if isinstance(node, ast.Name):
            return node.id in self._plain or node.id in self.foreign
        return isinstance(node, ast.Constant | operation)


def _constants(module: ast.Module) -> set[str]:
    """Return the names that are bound exactly once in the module, to a constant."""
    bindings = [(name, statement) for statement in module.body for name in binds(statement)]
    twice = {name for name, _ in bindings if sum(name == other for other, _ in bindings) > 1}
    return {
        name
        for name, statement in bindings
        if name not in twice and isinstance(getattr(statement, "value", None), ast.Constant)
    }


def _calls(value: ast.expr) -> bool:
    """Return whether evaluating an expression calls a function."""
    return any(isinstance(node, ast.Call | ast.Await | ast.Yield | ast.NamedExpr) for node in ast.walk(value))


def binds(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name.split(".")[0] for alias in aliases}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _origins(module: ast.Module, packages: set[str]) -> tuple[dict[str, str], set[str]]:
    """Return the names imported from other packages with their dotted origins, and names that are bound otherwise."""
    outside: dict[str, str] = {}
    bound_otherwise: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    name, root = alias.asname or alias.name.split(".")[0], alias.name.split(".")[0]
                    _bind(
                        name, alias.name if alias.asname else root, outside, bound_otherwise, own_code=root in packages
                    )
            case ast.ImportFrom(module=source, names=aliases, level=level):
                for alias in aliases:
                    own_code = bool(level) or (source or "").split(".")[0] in packages
                    _bind(
                        alias.asname or alias.name,
                        f"{source}.{alias.name}",
                        outside,
                        bound_otherwise,
                        own_code=own_code,
                    )
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                bound_otherwise.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound_otherwise.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                bound_otherwise.add(name)
            case ast.MatchMapping(rest=str(name)):
                bound_otherwise.add(name)
    return outside, bound_otherwise


def _bind(name: str, origin: str, outside: dict[str, str], bound_otherwise: set[str], *, own_code: bool) -> None:
    if own_code or outside.setdefault(name, origin) != origin:
        bound_otherwise.add(name)


#: Methods that change a container.
_CHANGING = frozenset(
    {
        *("append", "appendleft", "extend", "insert", "update", "setdefault", "pop", "popitem", "clear", "add"),
        *("remove", "discard", "sort", "reverse", "put", "__setitem__"),
    }
)


def writes(statement: ast.stmt) -> Iterator[str]:
    """Yield the module names that a statement's functions may rebind, or whose content they may change, when called."""
    for node in ast.walk(statement):
        match node:
            case ast.Global(names=names):
                yield from names
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield from _roots(node)
            case ast.Call(func=ast.Attribute(attr=method) as called) if method in _CHANGING:
                yield from _roots(called)


def _roots(node: ast.expr) -> Iterator[str]:
    """Yield "a", "b" and "c" for ``a.b[0].c``: any of them may be the object that changes."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            yield node.attr
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
