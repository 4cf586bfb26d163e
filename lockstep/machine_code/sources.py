"""Which files a module stands on, found by reading its imports: where none of them differs, nothing else can.

Imports are followed wherever they stand, also inside functions. A module whose imports cannot be read (a name made up
at run time) stands on its whole package. Files of the package that are no Python count always: any of it may be read.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence
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
        path = _file(root, name)
        if path is None:
            continue
        text = path.read_bytes()
        found[path.relative_to(root).as_posix()] = text
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue  # it cannot be imported either
        for imported in _imports(tree, name, path.name == "__init__.py"):
            waiting += _modules(root, name.split(".", 1)[0]) if imported is None else [imported]
    if found:
        for package in packages:
            for path in sorted((root / package).rglob("*")):
                if path.is_file() and path.suffix not in (".py", ".pyc"):
                    found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def digest(*parts: bytes | str | dict[str, bytes]) -> str:
    """Of texts and of files with their names."""
    total = hashlib.sha256()
    for part in parts:
        items = sorted(part.items()) if isinstance(part, dict) else [("", part)]
        for name, content in items:
            content = content.encode() if isinstance(content, str) else content
            total.update(f"{name} {len(content)} ".encode() + content)
    return total.hexdigest()[:32]


def _file(root: Path, module: str) -> Path | None:
    base = root.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _modules(root: Path, package: str) -> list[str]:
    paths = (path.relative_to(root).with_suffix("") for path in (root / package).rglob("*.py"))
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


def _imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[str | None]:
    """Names that may be modules; None where a name is made up at run time."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            if node.level:
                parts = parts[: len(parts) - node.level + is_package]
            base = ".".join([*(parts if node.level else []), *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call) and _imports_by_name(node.func):
            name = node.args[0] if node.args else None
            yield name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None


def _imports_by_name(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__", "iter_modules", "walk_packages", "exec_module")
