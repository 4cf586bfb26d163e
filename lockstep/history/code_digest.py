"""Compute a digest of the code that makes a cache, so that a change of this code starts a new cache.

The digest covers the modules that make the cache and all modules of this distribution that they import, directly or
indirectly. A list of files in the source would become wrong when a listed file imports another module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

#: Packages of this distribution. Imports from other packages are not followed.
_PACKAGES = ("dashboard", "lockstep")

#: Matches ``from a.b import c, d`` and ``import a.b``, also within functions. Names in parentheses may span lines.
_IMPORT = re.compile(
    rf"^[ \t]*(?:from[ \t]+((?:{'|'.join(_PACKAGES)})[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+)"
    rf"|import[ \t]+((?:{'|'.join(_PACKAGES)})[\w.]*))",
    re.MULTILINE,
)

_ROOT = Path(__file__).parents[2]


@cache
def code_digest(*modules: str, root: Path = _ROOT) -> str:
    """Return the digest of the source of these modules and of all modules that they import.

    Args:
        modules: dotted names.
        root: folder that holds the packages.
    """
    texts = [f"{path.relative_to(root)}\n{path.read_text(encoding='utf-8')}" for path in code_files(modules, root)]
    return blake2b("\n".join(texts).encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()


def code_files(modules: Sequence[str], root: Path = _ROOT) -> list[Path]:
    """Return the files of these modules and of all modules of this distribution that they import, sorted."""
    is_folder = cache(Path.is_dir)
    paths: set[Path] = set()
    names = {prefix for module in modules for prefix in _prefixes(module)}
    waiting = list(names)
    while waiting:
        base = root.joinpath(*waiting.pop().split("."))
        # Most names are functions and types: the name before theirs is a module, not a folder.
        for path in (base / "__init__.py", base.with_suffix(".py")) if is_folder(base.parent) else ():
            if path.is_file():
                paths.add(path)
                imported = _imported(path.read_text(encoding="utf-8"))
                new = {prefix for module in imported for prefix in _prefixes(module)} - names
                names |= new
                waiting += new
    return sorted(paths)


def _prefixes(module: str) -> Iterator[str]:
    """Yield the names of a module's packages and of the module: "a", "a.b" and "a.b.c"."""
    parts = module.split(".")
    yield from (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))


def _imported(source: str) -> Iterator[str]:
    for package, names, module in _IMPORT.findall(source):
        if module:
            yield module
        else:
            yield package
            yield from (f"{package}.{name}" for name in re.findall(r"\b[a-zA-Z_]\w*", names))
