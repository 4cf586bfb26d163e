"""Read facts about a module of kernels from its source, without running it."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
from pathlib import Path


def module_path(module: str, home: Path) -> Path | None:
    """Return the file of a module under test, in the tree around the suites' folder ``home``, else on Python's path."""
    top, *deeper = module.split(".")
    spec = importlib.util.find_spec(top)
    installed = [Path(folder) for folder in spec.submodule_search_locations or []] if spec else []
    in_tree = [folder / top for parent in home.parents for folder in (parent / repo_subdir(parent), parent)]
    for package in [*in_tree, *installed]:
        path = package.joinpath(*deeper)
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


def variant_entries(path: Path) -> dict[str, ast.expr] | None:
    """Return the entries of a module's ``VARIANTS``; None if ``VARIANTS`` is not a dict literal with string keys."""
    return literal_entries(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)), "VARIANTS")


def literal_entries(tree: ast.Module, name: str) -> dict[str, ast.expr] | None:
    """Return the entries of the dict literal that the top level assigns to ``name``; None without such a literal."""
    # Backwards, because the last assignment counts in Python.
    for node in reversed(tree.body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id == name and isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            named = [(k.value, v) for k, v in pairs if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            return dict(named) if len(named) == len(value.keys) else None
    return None


@functools.cache
def repo_subdir(project: Path) -> str:
    """Return the ``repo_subdir`` of a folder's asv.conf.json, which says where the project's packages are, or "".

    The file is read without asv, because importing asv takes longer than discovering suites.
    """
    for path in (project / "asv.conf.json", project / "asv.conf.jsonc"):
        try:
            text = path.read_text(encoding="utf-8")
            if "repo_subdir" not in text:
                return ""
            try:
                content = json.loads(text)
            except ValueError:
                import json5  # a dependency of asv; it accepts comments

                content = json5.loads(text)
        except (OSError, ValueError):
            continue
        folder = content.get("repo_subdir") if isinstance(content, dict) else None
        return folder if isinstance(folder, str) else ""
    return ""
