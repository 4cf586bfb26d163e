"""Find the files that a module depends on: if no such file differs between two trees, the module does the same in both.

Imports are followed wherever they are, also inside functions, and so are texts and attributes that name a module. If a
module's text does not show what it imports, or the module is compiled, it depends on all packages. Files of the
packages that are not Python always count, because code may read any of them. If code may read files outside the
packages, two trees are never equal.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lockstep.machine_code.sources.file_dependencies import Facts, facts
from lockstep.suite.syntax import without_docstrings


def closure(root: Path, packages: Sequence[str], *modules: str) -> dict[str, bytes]:
    """Return the contents of the files under ``root`` that modules depend on, by relative path.

    Args:
        root: folder that holds the packages.
        packages: top-level packages; imports of other packages are not followed.
        modules: dotted names of modules in these packages.

    Returns:
        An empty dict if there are no such modules.
    """
    contents: dict[str, bytes] = {}
    read: dict[str, Facts] = {}
    listed = _listed(root, packages)
    compiled = {path.partition(".")[0] for path in listed if path.endswith(_COMPILED)}
    to_visit = [*modules]
    visited: set[str] = set()
    while to_visit:
        name = to_visit.pop()
        if name in visited or name.split(".", 1)[0] not in packages:
            continue
        visited.add(name)
        # Importing a.b.c runs a/__init__.py and a/b/__init__.py first.
        to_visit += [name.rpartition(".")[0]] if "." in name else []
        # Python prefers a folder to a file of the same name; both are read, because either may be imported.
        stem = name.replace(".", "/")
        for file in (
            path for path in (f"{stem}/__init__.py", f"{stem}.py") if path in listed and (root / path).is_file()
        ):
            contents[file] = (root / file).read_bytes()
            read[file] = facts(contents[file], name, file.endswith("/__init__.py"))
            to_visit += read[file].imports
        if stem in compiled or any(
            read[file].any_import for file in (f"{stem}/__init__.py", f"{stem}.py") if file in read
        ):
            to_visit += [module_of(path)[0] for path in listed if path.endswith(".py")]
    if contents:
        contents |= dict(_data(root, listed))
        if _leaves_the_packages(read):
            contents[OUTSIDE] = str(root).encode()
    return contents


#: Ends of the names of modules whose imports no text shows.
_COMPILED = (".so", ".pyd", ".pyc")
#: ``closure`` adds an entry of this name, with the tree's folder as content, if code may read files outside the
#: packages: any two trees then differ.
OUTSIDE = "files outside the packages"


def same_code(base: dict[str, bytes], head: dict[str, bytes]) -> bool:
    """Return whether results of ``closure`` differ at most in comments, layout and docstrings that no code reads."""
    if base == head:
        return True
    return (
        base.keys() == head.keys()
        and not reads_its_text(base)
        and all(
            content == head[name] or (name.endswith(".py") and _code(content) == _code(head[name]) != "")
            for name, content in base.items()
        )
    )


def reads_its_text(files: Mapping[str, bytes]) -> bool:
    """Return whether a module among the files may read the source text of a module: comments, docstrings or lines."""
    return any(facts(content, *module_of(name)).reads_text for name, content in files.items() if name.endswith(".py"))


def module_of(file: str) -> tuple[str, bool]:
    """Return the dotted name of a file's module, and whether it is a package's ``__init__``."""
    parts = file.removesuffix(".py").split("/")
    is_package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if is_package else parts), is_package


def _leaves_the_packages(read: Mapping[str, Facts]) -> bool:
    """Return whether one of the modules ``read`` may read a file outside the packages or import from another folder."""
    placed = any(module.placed for module in read.values())
    opens = any(module.opens for module in read.values())
    return any(
        module.changes_path
        or (opens and module.names_files and not module.placed)
        or (placed and module.climbs > module.depth)
        for module in read.values()
    )


@functools.lru_cache(maxsize=4096)
def _code(text: bytes) -> str:
    """Return a digest of a module's syntax tree without docstrings; "" if the text is not Python."""
    try:
        return digest(ast.dump(without_docstrings(ast.parse(text))))
    except (SyntaxError, ValueError):
        return ""


def digest(*parts: bytes | str | dict[str, bytes]) -> str:
    """Return one digest of all parts: texts, and files with their names."""
    total = hashlib.sha256()
    for part in parts:
        items = sorted(part.items()) if isinstance(part, dict) else [("", part)]
        for name, content in items:
            content = content.encode() if isinstance(content, str) else content
            total.update(f"{name} {len(content)} ".encode() + content)
    return total.hexdigest()[:32]


def _listed(root: Path, packages: Sequence[str]) -> dict[str, bool]:
    """Return the path of each file and link of the packages, and whether it is a link; links are not followed."""
    is_link = {f"{package}.py": False for package in packages if (root / f"{package}.py").is_file()}
    folders = [package for package in packages if (root / package).is_dir()]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                else:
                    is_link[name] = entry.is_symlink()
    return dict(sorted(is_link.items()))


def _data(root: Path, listed: Mapping[str, bool]) -> Iterator[tuple[str, bytes]]:
    """Yield files of a package that are not Python sources, including compiled files that Python may import."""
    for name, is_link in listed.items():
        path = root / name
        if is_link:
            yield f"{name} →", os.fsencode(path.readlink())
            if not path.resolve().is_relative_to(root.resolve()) or path.is_dir():
                yield OUTSIDE, str(root).encode()
                continue
        if path.suffix != ".py" and path.is_file() and (path.suffix != ".pyc" or _may_be_loaded(path)):
            yield name, path.read_bytes()


def _may_be_loaded(path: Path) -> bool:
    """Return whether Python may load a compiled file (``.pyc``) without checking that it matches a source file.

    Python may load a file outside ``__pycache__``, and a file whose flags (PEP 552) exempt it from the check.
    """
    with path.open("rb") as file:
        flags = file.read(8)[4:]
    return path.parent.name != "__pycache__" or flags[:1] == b"\x01"
