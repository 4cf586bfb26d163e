"""What can be read of a family from its source, without running it."""

from __future__ import annotations

import ast
import functools
import json
from pathlib import Path


def literal_entries(tree: ast.Module, name: str) -> dict[str, ast.expr] | None:
    """Entries of the dict literal that is assigned to ``name`` at the top level; None if there is no such literal."""
    # Backwards: as in Python, the last assignment counts.
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
    """The ``repo_subdir`` of the asv.conf.json in a folder, or "": where a project's packages lie.

    asv is not asked: importing it takes longer than discovering suites.
    """
    for path in (project / "asv.conf.json", project / "asv.conf.jsonc"):
        try:
            text = path.read_text(encoding="utf-8")
            if "repo_subdir" not in text:
                return ""
            try:
                content = json.loads(text)
            except ValueError:
                import json5  # a dependency of asv, which takes comments

                content = json5.loads(text)
        except (OSError, ValueError):
            continue
        folder = content.get("repo_subdir") if isinstance(content, dict) else None
        return folder if isinstance(folder, str) else ""
    return ""
