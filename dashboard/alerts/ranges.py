"""Which commits lie between two, and which of them touch the packages under test, as git tells it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from lockstep.processes import run

_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


class Ranges:
    """Commits of a repository.

    Args:
        repo: a folder in it; any other folder knows no commit.
        packages: folders of what is measured, relative to the repository's root; () all of it is.
    """

    def __init__(self, repo: Path, packages: Sequence[str] = ()) -> None:
        self._repo = repo
        self._packages = tuple(packages)
        self._git = lru_cache(maxsize=4096)(self._ask)
        self._strange: set[str] = set()

    @property
    def text(self) -> str:
        """The repository and the packages: other ones answer otherwise."""
        return "\n".join((str(self._repo.resolve()), *self._packages))

    def learn(self, commits: Sequence[str]) -> None:
        """Find out at once which of them git does not know, rather than for each range that holds one of those."""
        lines = self._run(["cat-file", "--batch-check"], "".join(f"{commit}\n" for commit in commits))
        known = {line.partition(" ")[0] for line in lines or () if line.endswith(tuple("0123456789"))}
        self._strange |= set(commits) - known

    def between(self, before: str, after: str) -> tuple[str, ...] | None:
        """Commits that ``after`` has and ``before`` has not, parents first; ``None`` if git does not know them."""
        return self._git(before, after, ())

    def touched(self, before: str, after: str) -> tuple[str, ...] | None:
        """Those of ``between`` that change the packages; ``None`` if git or the packages are not known."""
        return self._git(before, after, self._packages) if self._packages else None

    def _ask(self, before: str, after: str, paths: tuple[str, ...]) -> tuple[str, ...] | None:
        if not all(_HASH.fullmatch(commit) and commit not in self._strange for commit in (before, after)):
            return None
        command = ["rev-list", "--reverse", "--topo-order", f"{before}..{after}", "--"]
        # ":/" is the root, wherever in the repository ``repo`` lies.
        found = self._run([*command, *(f":/{path}" for path in paths)])
        return None if found is None else tuple(found)

    def _run(self, command: Sequence[str], lines: str = "") -> list[str] | None:
        """Lines that git prints; ``None`` where there is no git, no repository or no answer within 30 s."""
        whole = ["git", "-C", str(self._repo), *command]
        try:
            done = run(whole, given=lines, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if done.returncode else done.stdout.splitlines()
