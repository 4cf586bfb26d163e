"""What a variant's code can reach, read from the sources: where none of it differs, the variant does not either.

For variants that cannot be traced without a GPU (torch.compile, a compiled extension), and for machines without one.
Reached is by name alone, whatever module it is in: a definition counts if anything that counts mentions its name, as a
name, an attribute or a text given to ``getattr``. What runs at import (calls, branches, decorators that may register
something) always counts. That finds too much rather than too little. Modules that make up names at run time prove
nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

#: Decorators that do nothing but wrap what they decorate.
WRAPPERS = {
    "jit",
    "cache",
    "lru_cache",
    "cached_property",
    "dataclass",
    "property",
    "staticmethod",
    "classmethod",
    "wraps",
    "abstractmethod",
    "override",
}

#: Calls by which code may reach what it does not name; ``getattr`` and imports only where the name is no text.
HIDING = {"eval", "exec", "globals", "vars", "locals", "setattr", "attrgetter", "methodcaller"}
HIDING_ATTRIBUTES = {"__dict__", "__globals__", "modules"}
HIDING_UNLESS_TEXT = {"getattr": 1, "import_module": 0, "__import__": 0}


def reach(files: Mapping[str, bytes], family: str, variant: str) -> frozenset[str] | None:
    """Everything that a variant can reach, a text a statement without comments, docstrings and layout.

    Args:
        files: what the family's module stands on, by path; ``lockstep.machine_code.sources.closure`` finds it.
        family: path of the family's module, without ".py" or "/__init__.py".
        variant: a key of its ``VARIANTS`` or ``PREPARE``.

    Returns:
        ``None`` where reading the sources cannot tell.
    """
    modules: dict[str, ast.Module] = {}
    for path, content in files.items():
        if path.endswith(".py"):
            try:
                modules[path] = _strip(ast.parse(content))
            except (SyntaxError, ValueError):
                return None
    if any(_hides(node) for module in modules.values() for node in ast.walk(module)):
        return None
    reached = {f"{path} {content.hex()}" for path, content in files.items() if path not in modules}
    waiting: list[tuple[str, ast.stmt]] = []
    names: set[str] = set()
    packages = {path.split("/", 1)[0] for path in files}
    foreign = {path: _foreign(module, packages) for path, module in modules.items()}
    listed = False
    for path, module in modules.items():
        for statement in module.body:
            if path in (f"{family}.py", f"{family}/__init__.py") and _binds(statement) & {"VARIANTS", "PREPARE"}:
                listed |= "VARIANTS" in _binds(statement)
                entries = _entries(statement, variant)
                if entries is None:
                    return None
                for entry in entries:
                    names |= set(_mentions(entry, foreign[path]))
                    reached.add(ast.dump(entry))
                waiting.append((path, statement))  # whole, should anything look others up in it
            elif _acts(statement):
                names |= set(_mentions(statement, foreign[path]))
                reached.add(f"{path} {ast.dump(statement)}")
            else:
                waiting.append((path, statement))
    if not listed:  # its functions are those of today's VARIANTS (lockstep.family), which no file here names
        return None
    while found := [(path, statement) for path, statement in waiting if _binds(statement) & names]:
        for path, statement in found:
            waiting.remove((path, statement))
            names |= set(_mentions(statement, foreign[path]))
            reached.add(f"{path} {ast.dump(statement)}")
    return frozenset(reached)


def _hides(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(names=aliases):
            return any(alias.name == "*" for alias in aliases)
        case ast.Attribute(attr=name):
            return name in HIDING_ATTRIBUTES
    if not isinstance(node, ast.Call):
        return False
    name = _called(node)
    if name in HIDING_UNLESS_TEXT:
        at = HIDING_UNLESS_TEXT[name]
        return len(node.args) <= at or not isinstance(node.args[at], ast.Constant)
    return name in HIDING and not (name in ("eval", "exec") and isinstance(node.func, ast.Attribute))


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _acts(statement: ast.stmt) -> bool:
    """Whether it does something when the module is imported, beyond giving a name to something."""
    match statement:
        case ast.Import() | ast.ImportFrom():
            return False
        case ast.FunctionDef(args=taken) | ast.AsyncFunctionDef(args=taken):
            defaults = [*taken.defaults, *filter(None, taken.kw_defaults)]
            return _registers(statement) or any(map(_calls, defaults))
        case ast.ClassDef(bases=bases, keywords=keywords, body=body):
            return _registers(statement) or bool(keywords) or any(map(_calls, bases)) or any(map(_acts, body))
        case ast.Assign(targets=targets, value=value):
            return not all(isinstance(one, ast.Name) for one in targets) or _calls(value)
        case ast.AnnAssign(target=ast.Name(), value=value):
            return value is not None and _calls(value)
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return False
    return True


def _registers(statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(_last_name(decorator) not in WRAPPERS for decorator in statement.decorator_list)


def _calls(value: ast.expr) -> bool:
    """Whether evaluating it calls anything; types of the project's own, as in tables of tiles, count as calls."""
    return any(isinstance(node, ast.Call | ast.Await | ast.Yield | ast.NamedExpr) for node in ast.walk(value))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


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


def _foreign(module: ast.Module, packages: set[str]) -> set[str]:
    """Names that stand for modules from outside everywhere in the module: their attributes are not the project's."""
    imported: set[str] = set()
    other: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    outside = alias.name.split(".")[0] not in packages
                    (imported if outside else other).add(alias.asname or alias.name.split(".")[0])
            case ast.ImportFrom(module=source, names=aliases, level=level):
                outside = not level and (source or "").split(".")[0] not in packages
                (imported if outside else other).update(alias.asname or alias.name for alias in aliases)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                other.add(name)
    return imported - other


def _mentions(node: ast.AST, foreign: set[str]) -> Iterator[str]:
    """Names, attributes, and texts that are looked up as names."""
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
        case ast.Call() if _called(node) in HIDING_UNLESS_TEXT:
            for one in node.args:
                yield from str(one.value).split(".") if isinstance(one, ast.Constant) else ()
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
