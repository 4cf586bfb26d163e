"""Ask git for the commits between two commits, and which of them touch the packages under test.

A culprit is named from a range, so a range of which git knows only a part counts as unknown. For example, a shallow
clone lists the commits down to its boundary and does not report that more commits exist.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from lockstep.history.asv_file_header import FULL_HASH
from lockstep.history.line import clone_ends, known_commits
from lockstep.processes.git import Git

#: Stands for the content of a package that does not exist at a commit.
_ABSENT = ""

#: Why the commits between two commits are unknown; "" if they are known.
#: "no repository": git finds no repository, or does not answer. "shallow": the clone ends within the range. "unplaced":
#: the clone is shallow and does not connect the two commits. "missing": the repository lacks one of the two commits.
#: "branches": the repository is complete, but the later commit does not descend from the earlier commit.
Unknown = Literal["", "no repository", "shallow", "unplaced", "missing", "branches"]

#: With these reasons, git does not know the order of the two commits either: it is the order of their dates.
BY_DATE: tuple[Unknown, ...] = ("no repository", "unplaced", "missing")


@dataclass(frozen=True)
class Range:
    """The commits that may have caused a change between an earlier and a later commit.

    Attributes:
        commits: the later commit and its ancestors, without the earlier commit and its ancestors. Parents come first.
            () if unknown.
        parents: the parents of each commit.
        touched: the commits that change the packages under test; ``None`` if unknown.
        unknown: why the commits are unknown.
    """

    commits: tuple[str, ...] = ()
    parents: Mapping[str, tuple[str, ...]] | None = None
    touched: tuple[str, ...] | None = None
    unknown: Unknown = ""


class Ranges:
    """Answers which commits of a repository lie between two commits.

    Args:
        repo: a folder in the repository. Outside any repository every range is unknown.
        packages: folders of the packages under test, relative to the repository's root; () if unknown.
    """

    def __init__(self, repo: Path, packages: Sequence[str] = ()) -> None:
        # A partial clone would fetch missing objects over the network.
        self.git = Git(repo, timeout_s=30.0, fetch=False)
        self.packages = tuple("" if path in (".", "./") else path.removeprefix("./") for path in packages)
        self._missing_commits: set[str] = set()
        self._others: dict[tuple[str, ...], Ranges] = {}
        self._trees: dict[str, tuple[str, ...]] = {}
        self.between = lru_cache(maxsize=4096)(self._between)

    def of_packages(self, packages: Sequence[str]) -> Ranges:
        """Return the answers about other packages under test; () stands for those of this object."""
        key = tuple(packages)
        if not key or key == self.packages:
            return self
        if key not in self._others:
            self._others[key] = Ranges(self.git.folder, key)
            self._others[key]._missing_commits = self._missing_commits
        return self._others[key]

    def learn(self, commits: Sequence[str]) -> None:
        """Find out which of these commits git does not know."""
        self._missing_commits |= set(commits) - known_commits(self.git, commits)

    def state(self, commits: Sequence[str]) -> str:
        """Return a text that changes whenever the ranges among these commits may; call ``learn`` with them first.

        It changes with the repository, its clone depth, the commits that it lacks, and the packages.
        """
        boundary = "no repository" if self._shallow is None else " ".join(sorted(self._shallow))
        lacking = " ".join(commit for commit in commits if commit in self._missing_commits)
        text = "\n".join((str(self.git.folder.resolve()), boundary, lacking, *self.packages))
        return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]

    def _between(self, before: str, after: str) -> Range:
        """Return the commits from ``before`` (exclusive) to ``after`` (inclusive)."""
        if self._shallow is None:
            return Range(unknown="no repository")
        known = all(FULL_HASH.fullmatch(commit) and commit not in self._missing_commits for commit in (before, after))
        command = ("rev-list", "--topo-order", "--reverse", "--parents", f"{before}..{after}", "--")
        lines = self.git.try_lines(*command) if known else None
        if lines is None:
            return Range(unknown="unplaced" if self._shallow else "missing")
        parents = {commit: tuple(commit_parents) for commit, *commit_parents in map(str.split, lines)}
        connected = any(before in commit_parents for commit_parents in parents.values())
        if self._cut(before, parents):
            return Range(unknown="shallow" if connected else "unplaced")
        if not connected:
            return Range(unknown="branches")
        return Range(tuple(parents), parents, self._touched(before, parents))

    def _cut(self, before: str, parents: Mapping[str, tuple[str, ...]]) -> bool:
        """Return whether a shallow history makes git list too few or too many commits.

        git lists too few commits if the history ends within the range. It lists too many if the history ends at
        ``before``: git then does not know the ancestors of ``before``, so it lists those that it reaches by other
        paths. All of these paths lead to the root of the history, so a listed commit without a parent shows this case.
        """
        ends = self._shallow or frozenset()
        return any(
            commit in ends or (before in ends and not commit_parents) for commit, commit_parents in parents.items()
        )

    def _touched(self, before: str, parents: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
        """Return the commits that change the packages under test; ``None`` if unknown.

        A commit changes the packages if they differ from the packages of all parents. There is one exception: a merge
        whose packages equal those of one parent also counts if it takes them from a branch that left the history before
        ``before`` and did not change them. Such a merge undoes the packages' state at ``before``.
        """
        if not self.packages:
            return None
        commits = {*parents, *(parent for commit_parents in parents.values() for parent in commit_parents)}
        self._read_trees(commits)
        absent = [path for commit in commits for path in self._trees[commit] if path == _ABSENT]
        # If no commit has any package, the packages' names are wrong. In a partial clone, a package may only seem
        # absent, because the objects that list it are missing.
        if len(absent) == len(commits) * len(self.packages) or (absent and self._partial):
            return None
        touched = []
        # Commits whose packages equal those at ``before``, or follow from a change within the range.
        explained = {before}
        for commit, commit_parents in parents.items():
            tree = self._trees[commit]
            same = [parent for parent in commit_parents if self._trees[parent] == tree]
            if not same or (explained.isdisjoint(same) and not explained.isdisjoint(commit_parents)):
                touched.append(commit)
                explained.add(commit)
            elif tree == self._trees[before] or not explained.isdisjoint(same):
                explained.add(commit)
        return tuple(touched)

    def _read_trees(self, commits: Iterable[str]) -> None:
        """Ask git for the packages' object names at these commits, and store them; equal names mean equal contents."""
        new = sorted(set(commits) - self._trees.keys())
        object_names = [f"{commit}:{path}" for commit in new for path in self.packages]
        # This format keeps git from opening the objects, which a partial clone may lack.
        lines = self.git.try_lines("cat-file", "--batch-check=%(objectname)", given=object_names) if new else []
        tree_hashes = [
            _ABSENT if line.endswith(" missing") else line for line in lines or [_ABSENT] * len(object_names)
        ]
        width = len(self.packages)
        self._trees |= {commit: tuple(tree_hashes[width * at : width * at + width]) for at, commit in enumerate(new)}

    @cached_property
    def _shallow(self) -> frozenset[str] | None:
        """Commits at which a shallow clone ends, empty for a complete clone; ``None`` without a repository."""
        return clone_ends(self.git)

    @cached_property
    def _partial(self) -> bool:
        """Whether the repository is a partial clone, which lacks objects until git fetches them."""
        return bool(self.git.try_lines("config", "--get-regexp", r"^remote\..*\.promisor$"))
