"""Modules that use private API of torch or Triton are listed in CONTRIBUTING.md, each with its reason."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def private_uses(text):
    """Private names of torch and Triton that a module imports or reads, as dotted names."""
    tree = ast.parse(text)
    bound = {}  # what imports of torch and Triton bind
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.partition(".")[0]] = alias.name
                found.add(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                found.add(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in bound:
            found.add(".".join([bound[node.id], *reversed(parts)]))
    private = re.compile(r"(torch|triton)\..*(?<=\.)_(?!_)")
    return {name for name in found if private.match(name)}


def test_each_module_with_private_api_is_listed_with_its_reason():
    using = {
        str(path.relative_to(ROOT))
        for package in ("lockstep", "kernels", "benchmarks", "dashboard")
        for path in (ROOT / package).rglob("*.py")
        if private_uses(path.read_text())
    }
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Private API")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `([\w/]+\.py)` \| (.+) \|$", table, re.MULTILINE))
    assert using == set(listed)
    assert all(len(reason.split()) > 3 for reason in listed.values())


def test_private_names_are_found_however_they_are_imported():
    assert private_uses("import torch\ntorch._C._x()\n") == {"torch._C._x", "torch._C"}
    assert private_uses("from triton.runtime import jit as j\nj.F._run\n") == {"triton.runtime.jit.F._run"}
    assert private_uses("from torch.utils import _pytree\n") == {"torch.utils._pytree"}
    assert private_uses("import torch\ntorch.x.__name__\nself._x\n") == set()
