"""Find what a script measures: the packages of its repository that it imports, or else the script itself."""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.processes.exit_status import UsageError
from lockstep.processes.git import Git, GitError
from lockstep.scripts.plan import Side
from lockstep.suite.family_files import digest
from lockstep.suite.syntax import without_docstrings

#: Folders of a repository that hold its packages.
_ROOTS = (".", "src", "python")

#: Packages that measure, so that a process cannot hold two versions of them.
_SHARED = frozenset({"torch", "triton", "lockstep", *sys.stdlib_module_names}) - {"test"}

#: Folders of a repository that scripts import and that are not under test.
_HELPERS = frozenset({"test", "tests", "benchmark", "benchmarks", "examples", "scripts", "tools", "utils"})


class NoScript(UsageError):
    """A script cannot be found or read."""


@dataclass(frozen=True)
class Project:
    """A script in its repository.

    Attributes:
        top: folder of the repository.
        root: folder that holds what differs between base and head.
        packages: packages under test; if ``own`` is true, the modules beside the script.
        local: modules and packages that the script finds beside itself and at the top, by the folder that holds them;
            each side imports a copy of its own.
        own: whether the script imports no package of its repository, so that it is under test itself: base and head
            have their own copies of the script.
    """

    file: Path
    top: Path
    root: Path
    packages: tuple[str, ...]
    local: dict[str, Path]
    own: bool = False

    @property
    def contents(self) -> tuple[str, ...]:
        """Return the names of files and folders in ``root`` that a version needs."""
        if not self.own:
            return self.packages
        return tuple(
            sorted(path.name for path in self.root.iterdir() if path.suffix == ".py" or path.name in self.packages)
        )

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders of the packages under test, relative to the repository; () if the script is under test."""
        return () if self.own else tuple(str((self.root / name).relative_to(self.top)) for name in self.packages)

    def digest(self, arguments: Sequence[str]) -> str:
        """Return a digest of what the script measures: its code, that of its helpers, and its command line.

        Comments and docstrings do not count. The digest is "" if the script itself is under test.
        """
        if self.own:
            return ""
        trees = _trees([self.file, self.file.with_name("conftest.py")], self.local)
        texts = {str(path.relative_to(self.top)): ast.dump(without_docstrings(tree)) for path, tree in trees.items()}
        return digest({name: text.encode() for name, text in texts.items()}, shlex.join(arguments))[:12]

    def side(self, root: Path) -> Side:
        """Return a version in a folder: the working tree's script, or the version's own if the script is under test."""
        return Side(str(root), str(root / self.file.name if self.own else self.file))

    @classmethod
    def of_releases(cls, file: Path, packages: tuple[str, ...]) -> Project:
        """Return the project of a script of an index's packages: no repository. Raise ``NoScript`` without a file."""
        file = file.resolve()
        if not file.is_file():
            raise NoScript(f"there is no script {file}")
        top = Path(Git(file.parent).try_line("rev-parse", "--show-toplevel") or file.parent)
        folders = [top / name for name in _ROOTS if (top / name).is_dir()]
        local = {name: folder for one in (*folders, file.parent) for name, folder in _modules(one).items()}
        return cls(file, top, top, packages, {name: folder for name, folder in local.items() if name not in packages})

    @classmethod
    def of(cls, file: Path, packages: tuple[str, ...] = ()) -> Project:
        """Return the project of a script; ``packages`` are under test, by default those that the script imports.

        Raise ``NoScript`` if the file does not exist, is not Python, or lies in no git repository.
        """
        file = file.resolve()
        if not file.is_file():
            raise NoScript(f"there is no script {file}")
        try:
            top = Path(Git(file.parent).lines("rev-parse", "--show-toplevel")[0])
        except GitError as error:
            raise NoScript(f"{file} lies in no git repository, so it has no base: {error}") from error
        local = {**_modules(top), **_modules(file.parent)}
        imported = set(packages) or _imported(file, local) - _HELPERS
        for root in (top / name for name in _ROOTS):
            under_test = tuple(
                name for name in sorted(imported) if _is_package(root / name) and not file.is_relative_to(root / name)
            )
            if under_test:
                local = {name: folder for name, folder in local.items() if name not in under_test}
                return cls(file, top, root, under_test, local)
        if packages:
            raise NoScript(f"{top} has no package {', '.join(packages)}, neither there nor in src or python")
        own = tuple(sorted(_modules(file.parent)))
        return cls(file, top, file.parent, own, {}, own=True)


def _modules(folder: Path) -> dict[str, Path]:
    """Return the modules and packages of a folder that a script there can import."""
    names = {
        path.stem if path.suffix == ".py" else path.name
        for path in folder.iterdir()
        if path.suffix == ".py" or _is_package(path)
    }
    return {name: folder for name in names if name.isidentifier() and name not in _SHARED}


def _is_package(path: Path) -> bool:
    return (path.is_dir() and path.name.isidentifier() and any(path.glob("*.py"))) or (path / "__init__.py").is_file()


def _imported(file: Path, local: dict[str, Path]) -> set[str]:
    """Return the top-level names that a script, and the local modules that it imports, import or name as a text."""
    names = (name for tree in _trees([file], local).values() for name in _names(tree))
    return {name.partition(".")[0] for name in names} - _SHARED


def _trees(files: Sequence[Path], local: dict[str, Path]) -> dict[Path, ast.Module]:
    """Return the trees of a script, which is the first file, and of the helpers that these files import.

    Raise ``NoScript`` if one is not Python.
    """
    trees: dict[Path, ast.Module] = {}
    pending = [*files]
    while pending:
        path = pending.pop()
        if path in trees or not path.is_file():
            continue
        try:
            trees[path] = ast.parse(path.read_bytes())
        except SyntaxError as error:
            raise NoScript(f"{path}:{error.lineno}: {error.msg}") from error
        except ValueError as error:
            raise NoScript(f"{path} is not Python: {error}") from error
        for name in _names(trees[path]):
            top = name.partition(".")[0]
            if (folder := local.get(top)) is not None:
                found = [folder / f"{top}.py", folder.joinpath(*name.split(".")).with_suffix(".py")]
                pending += [one for one in found if _near(one, files[0])]
        pending += [one for one in _relative(path, trees[path]) if _near(one, files[0])]
    return trees


def _relative(path: Path, tree: ast.AST) -> Iterator[Path]:
    """Yield the files that a module may import by relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            yield from [folder.with_suffix(".py"), *(folder / f"{alias.name}.py" for alias in node.names)]


def _near(path: Path, file: Path) -> bool:
    """Return whether a module is a helper of the script: it lies beside the script, or in a folder around it."""
    return path.parent == file.parent or file.is_relative_to(path.parent)


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_dotted(node.value):
            yield node.value


def _is_dotted(text: str) -> bool:
    return "." in text and all(part.isidentifier() for part in text.split("."))
