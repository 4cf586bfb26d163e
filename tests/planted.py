# ruff: noqa: E501 — the sources of generated modules stand here a line each
"""Small packages with a change planted in one place, to look for changes that a comparison of files overlooks.

A package is put together from features: ways in which code can come to a number from another file. Each variant adds up the numbers of a
few features, so that any change of a feature shows in what its variants answer. What really changed is found by
importing both versions and calling every variant.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

#: A feature by name: files under the package "{p}", and the expression that a variant adds. "{n}" is the number that a
#: planted change changes, "{i}" makes names unique.
FEATURES: dict[str, tuple[dict[str, str], str]] = {
    "constant": ({"{p}/c{i}.py": "VALUE{i} = {n}\n"}, "_m('{p}.c{i}').VALUE{i}"),
    "register": (
        {
            "{p}/r{i}.py": "KNOWN{i} = []\n\n\ndef cache(f):\n    KNOWN{i}.append(f)\n    return f\n",
            "{p}/s{i}.py": "from {p}.r{i} import cache\n\n\n@cache\ndef hidden{i}():\n    return {n}\n",
        },
        "(_m('{p}.s{i}'), _m('{p}.r{i}').KNOWN{i}[0]())[1]",
    ),
    "subclass": (
        {
            "{p}/b{i}.py": "class Base{i}:\n    known = []\n\n    def __init_subclass__(cls):\n        Base{i}.known.append(cls)\n",
            "{p}/t{i}.py": "from .b{i} import Base{i}\n\n\nclass Hidden{i}(Base{i}):\n    n = {n}\n",
        },
        "(_m('{p}.t{i}'), _m('{p}.b{i}').Base{i}.known[0].n)[1]",
    ),
    "patched": (
        {
            "{p}/o{i}.py": "def f{i}():\n    return 0\n",
            "{p}/q{i}.py": "from {p} import o{i}\n\n\ndef other{i}():\n    return {n}\n\n\no{i}.f{i} = other{i}\n",
        },
        "(_m('{p}.q{i}'), _m('{p}.o{i}').f{i}())[1]",
    ),
    "table of names": (
        {
            "{p}/w{i}.py": "import sys\n\nCHOICE{i} = {{'a': 'hidden{i}'}}\n\n\ndef hidden{i}():\n    return {n}\n\n\n"
            "def f{i}():\n    return getattr(sys.modules[__name__], CHOICE{i}['a'])()\n",
        },
        "_m('{p}.w{i}').f{i}()",
    ),
    "data": (
        {
            "{p}/tables/t{i}.json": '{{"n": {n}}}\n',
            "{p}/j{i}.py": "import json\nfrom pathlib import Path\n\n\ndef f{i}():\n"
            "    return json.loads(Path(__file__).parent.joinpath('tables', 't{i}.json').read_text())['n']\n",
        },
        "_m('{p}.j{i}').f{i}()",
    ),
    "docstring": (
        {"{p}/h{i}.py": 'def f{i}():\n    """{n}"""\n\n\ndef n{i}():\n    return int(f{i}.__doc__)\n'},
        "_m('{p}.h{i}').n{i}()",
    ),
    "line": (
        {"{p}/y{i}.py": "\n" * 2 + "def f{i}():\n    return {n} + 0 * f{i}.__code__.co_firstlineno\n"},
        "_m('{p}.y{i}').f{i}()",
    ),
    "lazy": (
        {"{p}/lazy{i}/__init__.py": "", "{p}/lazy{i}/deep.py": "def f{i}():\n    return {n}\n"},
        "_late('{p}.lazy{i}.deep').f{i}()",
    ),
    "shadowed": (
        {
            "{p}/v{i}.py": "import math\n\n\ndef f{i}():\n    from {p} import u{i} as math\n    return math.sqrt()\n",
            "{p}/u{i}.py": "def sqrt():\n    return {n}\n",
        },
        "_m('{p}.v{i}').f{i}()",
    ),
    "star": (
        {"{p}/aa{i}.py": "def star{i}():\n    return {n}\n", "{p}/ab{i}.py": "from {p}.aa{i} import *\n"},
        "_m('{p}.ab{i}').star{i}()",
    ),
    "folder first": (
        {"{p}/ac{i}.py": "N{i} = 0\n", "{p}/ac{i}/__init__.py": "N{i} = {n}\n"},
        "_m('{p}.ac{i}').N{i}",
    ),
    "environment": (
        {"{p}/ah{i}.py": "import os\n\nN{i} = int(os.environ.get('NOT_SET_{i}', {n}))\n"},
        "_m('{p}.ah{i}').N{i}",
    ),
    "text that runs": (
        {"{p}/ba{i}.py": "N{i} = {n}\n", "{p}/bb{i}.py": "exec('from {p}.ba{i} import N{i}')\n"},
        "_m('{p}.bb{i}').N{i}",
    ),
    "relative by a call": (
        {
            "{p}/bc{i}.py": "N{i} = {n}\n",
            "{p}/bd{i}/__init__.py": "",
            "{p}/bd{i}/deep.py": "from importlib import import_module\n\nN{i} = import_module('..bc{i}', __package__).N{i}\n",
        },
        "_m('{p}.bd{i}.deep').N{i}",
    ),
    "composed importer": (
        {
            "{p}/be{i}.py": "N{i} = {n}\n",
            "{p}/bf{i}.py": "import importlib\n\nN{i} = getattr(importlib, 'import_' + 'module')('{p}.b' + 'e{i}').N{i}\n",
        },
        "_m('{p}.bf{i}').N{i}",
    ),
}

#: Features whose code reads texts of modules, so that comments count.
READS_TEXT = ("docstring", "line")

#: How a variant finds a module; by an import at the top, in the function, or by name.
STYLES = ("top", "from", "late", "relative")


@dataclass(frozen=True)
class Planted:
    """A package and its changed version.

    Attributes:
        base, head: files by path.
        packages: top-level packages.
        package: of the family, dotted maybe.
        variants: their names.
        commented: head differs from base in comments and docstrings alone.
        feature: what was changed.
    """

    base: dict[str, str]
    head: dict[str, str]
    packages: tuple[str, ...]
    package: str
    variants: tuple[str, ...]
    commented: bool
    feature: str


@st.composite
def planted(draw: st.DrawFn, *, commented: bool = False) -> Planted:
    """A package with a few variants of a few features, and one number changed, or only comments."""
    dotted = draw(st.booleans())
    package = "toy.ops.family" if dotted else "toy"
    other = draw(st.sampled_from(["toy", "helpers", "toy.deep"]))
    safe = [name for name in FEATURES if not commented or name not in READS_TEXT]
    chosen = draw(st.lists(st.sampled_from(safe), min_size=2, max_size=5))
    style = draw(st.sampled_from(STYLES))
    numbers = {i: 10 + i for i in range(len(chosen))}
    at = draw(st.integers(0, len(chosen) - 1))
    shares = [draw(st.integers(0, 2)) for _ in chosen]
    homes = [draw(st.sampled_from([package, other])) for _ in chosen]

    def files(numbers: dict[int, int]) -> dict[str, str]:
        found: dict[str, str] = {}
        bodies: dict[int, list[str]] = {0: [], 1: [], 2: []}
        imports: dict[int, list[str]] = {0: [], 1: [], 2: []}
        top: list[str] = []
        for i, name in enumerate(chosen):
            parts, expression = FEATURES[name]
            home = homes[i]
            for path, text in parts.items():
                path = path.format(p=home.replace(".", "/"), i=i)
                found[path] = text.format(p=home, n=numbers[i], i=i)
            expression = expression.format(p=home, i=i)
            while "_m('" in expression or "_late('" in expression:
                late = "_late('" in expression
                mark = "_late('" if late else "_m('"
                module = expression.split(mark, 1)[1].split("')", 1)[0]
                alias = "m_" + module.replace(".", "_")
                parent, _, last = module.rpartition(".")
                line = f"import {module} as {alias}" if style == "top" else f"from {parent} import {last} as {alias}"
                if style == "relative" and parent == package:
                    line = f"from . import {last} as {alias}"
                if style == "late" or late:
                    imports[shares[i]].append(line)
                else:
                    top.append(line)
                expression = expression.replace(f"{mark}{module}')", alias)
            bodies[shares[i]].append(expression)
        text = "\n".join(dict.fromkeys(top)) + "\n\n\n"
        for index, name in enumerate(("a", "b", "c")):
            inside = "".join(f"    {line}\n" for line in dict.fromkeys(imports[index]))
            text += f"def {name}():\n{inside}    return {' + '.join(bodies[index]) or '0'}\n\n\n"
        found[f"{package.replace('.', '/')}/work.py"] = text + 'VARIANTS = {"a": a, "b": b, "c": c}\n'
        for path in list(found):
            folder = Path(path).parent
            while str(folder) != ".":
                found.setdefault(f"{folder}/__init__.py", "") if str(folder).split("/")[-1] != "tables" else None
                folder = folder.parent
        return found

    base = files(numbers)
    head = (
        {k: f"# Words.\n{v}\n# More words.\n" if k.endswith(".py") else v for k, v in base.items()}
        if commented
        else files({**numbers, at: numbers[at] + 100})
    )
    packages = tuple(sorted({path.split("/")[0] for path in base if "/" in path}))
    return Planted(base, head, packages, package, ("a", "b", "c"), commented, chosen[at])


def lay_out(root: Path, files: dict[str, str]) -> None:
    """Write the files of one version."""
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(textwrap.dedent(text))


def answers(root: Path, planted: Planted) -> dict[str, int]:
    """What each variant really answers, as the version at ``root`` has it."""
    with _importing(root, planted.packages):
        module = importlib.import_module(f"{planted.package}.work")
        return {name: function() for name, function in module.VARIANTS.items()}


@contextmanager
def _importing(root: Path, packages: tuple[str, ...]) -> Iterator[None]:
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = bytecode
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if name.split(".")[0] in packages]:
            del sys.modules[name]
        sys.path_importer_cache.clear()
