"""Find the files that a suite's variants depend on: current files of the suite's definition, and files of a tree.

A suite's own variants import the packages under test when they are called, and so may its other methods. Modules that
the definition's text may import are followed into the tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lockstep.machine_code.sources.file_dependencies import facts
from lockstep.machine_code.sources.imported_modules import IMPORTERS
from lockstep.machine_code.sources.module_dependencies import OUTSIDE, closure, digest, module_of
from lockstep.machine_code.sources.syntax_tree import parsed, word
from lockstep.suite.definition import Suite

#: Lockstep may lie beside an adopter's suites; it is not part of their definitions.
HARNESS = "lockstep"


def definition_packages(suite: Suite, packages: Sequence[str]) -> tuple[str, ...]:
    """Return the top-level packages and modules of the project that a suite's definition consists of.

    Args:
        packages: packages under test, which are not part of the definition.
    """
    return _definition(suite, packages)[0]


def definition_files(suite: Suite, packages: Sequence[str]) -> dict[str, bytes]:
    """Return the project's files, by path, that a suite's definition depends on, without the packages under test."""
    return _definition(suite, packages)[1]


def tree_files(root: Path, packages: Sequence[str], suite: Suite) -> dict[str, bytes]:
    """Return the files of a tree, by path, that the variants of a suite depend on.

    Args:
        root: folder that holds the packages under test.
        packages: names of the packages under test.
    """
    files = closure(root, packages, suite.module) if suite.module else {}
    return files | _files_of_definition(root, packages, suite)


def _files_of_definition(root: Path, packages: Sequence[str], suite: Suite) -> dict[str, bytes]:
    """Return the files of a tree, by path, that a suite's methods may import.

    If an import names a module that the tree lacks, the sources do not show what would run. An entry that is unique to
    this tree is then added, so that no two trees compare as equal; so it is if the definition may look for files
    outside the packages. If the definition reads texts of modules, an entry is added that differs with any comment.
    Arguments are those of ``tree_files``.
    """
    definition = {name: text for name, text in definition_files(suite, packages).items() if name.endswith(".py")}
    read = [facts(content, *module_of(file)) for file, content in definition.items()]
    imported = [pair for content in definition.values() for pair in _imported(content) if _top(pair[0]) in packages]
    if not suite.adapters and not imported and not any(module.any_import for module in read):
        return {}  # texts that name modules, such as Suite.module, import nothing by themselves
    names = {name for module in read for name in module.imports}
    if any(module.any_import for module in read):
        every = (path.relative_to(root) for top in packages for path in root.glob(f"{top}/**/*.py"))
        names |= {*packages, *(module_of(str(path))[0] for path in every)}
    files = closure(root, packages, *sorted(name for name in names if _top(name) in packages))
    if files and any(module.reads_text for module in read):
        files["texts that the suite may read"] = digest(files).encode()
    if files and any(module.placed and module.climbs > module.depth == 0 for module in read):
        files[OUTSIDE] = str(root).encode()
    for module, name in imported:
        if not _has(files, module, name):
            files[f"no {module} {name}"] = str(root).encode()
    return files


def _definition(suite: Suite, packages: Sequence[str]) -> tuple[tuple[str, ...], dict[str, bytes]]:
    root, module = suite.home.parent, type(suite).__module__
    tops = {_top(module)}
    while True:
        files = closure(root, sorted(tops), module)
        imports = {
            _top(name)
            for file, content in files.items()
            if file.endswith(".py")
            for name in facts(content, *module_of(file)).imports
        }
        further = {top for top in imports - tops if _is_own(root, top, packages)}
        if not further:
            return tuple(sorted(tops)), files
        tops |= further


def _is_own(root: Path, top: str, packages: Sequence[str]) -> bool:
    """Return whether a top-level name is the project's own but not under test."""
    in_tree = (root / f"{top}.py").is_file() or (root / top / "__init__.py").is_file()
    return in_tree and top not in packages and top != HARNESS


def _imported(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield module and name of each absolute import, also by a call; the name is "" if a whole module is imported."""
    tree = parsed(content)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and word(node.func) in IMPORTERS:
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    yield name, ""


def _has(files: dict[str, bytes], module: str, name: str) -> bool:
    """Return whether a tree's files contain a module and, as far as the text shows, a name in it."""
    stem = module.replace(".", "/")
    texts = [files[file] for file in (f"{stem}.py", f"{stem}/__init__.py") if file in files]
    submodule = any(file in files for file in (f"{stem}/{name}.py", f"{stem}/{name}/__init__.py"))
    mentioned = any(name == "*" or re.search(rf"\b{name}\b", text.decode(errors="replace")) for text in texts)
    return bool(texts) and (not name or submodule or mentioned)


def _top(module: str) -> str:
    return module.partition(".")[0]
