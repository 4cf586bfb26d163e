"""The two versions: folders that hold the packages under test, and their commits."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.gate.model import is_release
from lockstep.processes.git import Git
from lockstep.processes.toolchain.release import release_of
from lockstep.suite.commit_sources import WORKING_TREE, Tree, sources
from lockstep.suite.missing_files import TREE_PREFIX


@dataclass(frozen=True)
class Version:
    """A version of the packages under test that the gate compares: a commit, the working tree, or a release.

    Attributes:
        name: the version in the user's words, such as "main", "." or "liger-kernel==0.6.2".
        commit: full hash. For the working tree, the hash of HEAD, with "+dirty" if files under test were changed; ""
            for a release.
    """

    name: str
    commit: str
    tree: Tree

    @property
    def label(self) -> str:
        """Return ``main (1a2b3c4d)`` or ``. (1a2b3c4d+dirty)``; only the hash if the user gave a hash; a release's
        name.
        """
        if not self.commit:
            return self.name
        short = self.commit[:8] + ("+dirty" if self.commit.endswith("+dirty") else "")
        return short if self.commit.startswith(self.name) else f"{self.name} ({short})"


@contextlib.contextmanager
def version(repository: Path, name: str, packages: Sequence[str]) -> Iterator[Version]:
    """Provide a version of the packages within the block: a commit's in a temporary folder, or the working tree's.

    A release replaces its packages alone; the others are those of the working tree. ``name``: a name that git resolves
    to a commit, or "." for the working tree, whose packages are used in place, or the name of a release that is
    installed (``lockstep.processes.toolchain.release``). Raise ``RefError`` if there is no such commit, or no
    repository.
    """
    if is_release(name):
        with _folder_of(name, repository, packages) as folder:
            yield Version(name, "", Tree(name, folder, tuple(packages)))
        return
    with sources(name, repository, packages) as tree:
        git = Git(repository)
        commit = git.try_line("rev-parse", "--verify", f"{'HEAD' if name == WORKING_TREE else name}^{{commit}}")
        changed = name == WORKING_TREE and git.try_lines("status", "--porcelain", "--", *packages)
        yield Version(name, f"{commit}+dirty" if changed else commit, tree)


@contextlib.contextmanager
def _folder_of(name: str, repository: Path, packages: Sequence[str]) -> Iterator[Path]:
    """Provide a folder with a release, and with the packages of the working tree that the release does not have."""
    release = release_of(name)
    names = [name for top in packages if top not in release.packages for name in (top, f"{top}.py")]
    others = [repository / name for name in names if (repository / name).exists()]
    if not others:
        yield release.folder
        return
    with tempfile.TemporaryDirectory(prefix=TREE_PREFIX) as folder:
        shutil.copytree(release.folder, folder, dirs_exist_ok=True)
        for path in others:
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, Path(folder, path.name))
        yield Path(folder).resolve()


def commits_between(repository: Path, base: Version, head: Version) -> list[str]:
    """Return hashes and subjects of the commits in head that are not in base, for ``Thresholds.accepted``."""
    if not base.commit or not head.commit:
        return []
    commits = f"{base.commit.removesuffix('+dirty')}..{head.commit.removesuffix('+dirty')}"
    return Git(repository).try_lines("-c", "log.showSignature=false", "log", "--format=%H%n%s", commits) or []


def prefix_of(repository: Path) -> str:
    """Return the project's path within its repository: "" or "sub/folder/"."""
    return Git(repository).try_line("rev-parse", "--show-prefix")
