"""The two versions as folders: a commit's packages taken out of git, or the working tree as it is."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.suite import SuiteError

#: Names the working tree where a commit is asked for.
WORKING_TREE = "."


class TreeError(SuiteError):
    """There is no such version; the message says what to do."""


@dataclass(frozen=True)
class Tree:
    """One version of the packages under test.

    Attributes:
        name: as it was asked for, "main" or ".".
        commit: full hash; for the working tree that of HEAD, with "+dirty" if files were changed.
        root: folder that holds the packages.
    """

    name: str
    commit: str
    root: Path

    @property
    def label(self) -> str:
        """``main (1a2b3c4)``, ``. (1a2b3c4+dirty)``."""
        short = self.commit[:8] + ("+dirty" if self.commit.endswith("+dirty") else "")
        return short if self.commit.startswith(self.name) else f"{self.name} ({short})"


def take_out(repository: Path, name: str, packages: Sequence[str], into: Path) -> Tree:
    """A version of the packages; the working tree is used where it is.

    Args:
        repository: folder of asv.conf.json, in which the packages lie.
        name: a commit, branch or tag, or ``WORKING_TREE``.
        packages: top-level packages under test; those that the commit lacks are left out.
        into: an empty folder of its own for a commit's files.

    Raises:
        TreeError: no such commit in this clone.
    """
    if name == WORKING_TREE:
        commit = _git(repository, "rev-parse", "HEAD")
        changed = _git(repository, "status", "--porcelain", "--", *packages)
        return Tree(name, f"{commit}+dirty" if changed else commit, repository)
    commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if not commit:
        raise TreeError(
            f"{repository} has no commit {name!r}; fetch it first (in a workflow: fetch-depth: 0 at actions/checkout)"
        )
    there = [package for package in packages if _git(repository, "ls-tree", commit, f"./{package}")]
    into.mkdir(parents=True, exist_ok=True)
    if there:
        packed = subprocess.Popen(
            ["git", "-C", str(repository), "archive", "--format=tar", commit, "--", *there], stdout=subprocess.PIPE
        )
        assert packed.stdout is not None
        with packed.stdout, tarfile.open(fileobj=packed.stdout, mode="r|") as archive:
            archive.extractall(into, filter="data")
        if packed.wait():
            raise TreeError(f"git cannot take {', '.join(there)} out of {name} (exit status {packed.returncode})")
    return Tree(name, commit, into)


def commits_between(repository: Path, base: Tree, head: Tree) -> list[str]:
    """Hashes and subjects of the commits in head and not in base, for ``Thresholds.accepted``."""
    commits = f"{base.commit.removesuffix('+dirty')}..{head.commit.removesuffix('+dirty')}"
    return _git(repository, "log", "--format=%H%n%s", commits).splitlines()


def prefix_of(repository: Path) -> str:
    """Where the project lies in its repository: "" or "sub/folder/"."""
    return _git(repository, "rev-parse", "--show-prefix")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
