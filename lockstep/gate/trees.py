"""The two versions: folders that hold the packages under test, and what git says of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.machine_code import Tree
from lockstep.machine_code.commit_sources import WORKING_TREE, sources
from lockstep.processes.git import Git


@dataclass(frozen=True)
class Version:
    """One side of the gate.

    Attributes:
        name: as it was asked for, "main" or ".".
        commit: full hash; for the working tree that of HEAD, with "+dirty" if files under test were changed.
        tree: its packages.
    """

    name: str
    commit: str
    tree: Tree

    @property
    def label(self) -> str:
        """``main (1a2b3c4d)``, ``. (1a2b3c4d+dirty)``; the hash alone where that was asked for."""
        short = self.commit[:8] + ("+dirty" if self.commit.endswith("+dirty") else "")
        return short if self.commit.startswith(self.name) else f"{self.name} ({short})"


@contextlib.contextmanager
def version(repository: Path, name: str, packages: Sequence[str], trusted: Sequence[str]) -> Iterator[Version]:
    """A version's packages for the block: a commit's in a folder that is gone afterwards, the working tree's in place.

    Args:
        repository: folder in which the packages lie.
        name: whatever git takes for a commit, or ".".
        packages: top-level packages under test.
        trusted: see ``lockstep.machine_code.Tree``.

    Raises:
        RefError: no such commit, or no repository.
    """
    with sources(name, repository, packages, trusted) as tree:
        git = Git(repository)
        commit = git.try_line("rev-parse", "--verify", f"{'HEAD' if name == WORKING_TREE else name}^{{commit}}")
        changed = name == WORKING_TREE and git.try_lines("status", "--porcelain", "--", *packages)
        yield Version(name, f"{commit}+dirty" if changed else commit, tree)


def commits_between(repository: Path, base: Version, head: Version) -> list[str]:
    """Hashes and subjects of the commits in head and not in base, for ``Thresholds.accepted``."""
    commits = f"{base.commit.removesuffix('+dirty')}..{head.commit.removesuffix('+dirty')}"
    return Git(repository).try_lines("-c", "log.showSignature=false", "log", "--format=%H%n%s", commits) or []


def prefix_of(repository: Path) -> str:
    """Where the project lies in its repository: "" or "sub/folder/"."""
    return Git(repository).try_line("rev-parse", "--show-prefix")
