"""Which commits lie between two, and which of them touch the packages under test, as git tells it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

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

    def between(self, before: str, after: str) -> tuple[str, ...] | None:
        """Commits that ``after`` has and ``before`` has not, parents first; ``None`` if git does not know them."""
        return self._git(before, after, ())

    def touched(self, before: str, after: str) -> tuple[str, ...] | None:
        """Those of ``between`` that change the packages; ``None`` if git or the packages are not known."""
        return self._git(before, after, self._packages) if self._packages else None

    def _ask(self, before: str, after: str, paths: tuple[str, ...]) -> tuple[str, ...] | None:
        if not _HASH.fullmatch(before) or not _HASH.fullmatch(after):
            return None
        command = ["git", "-C", str(self._repo), "rev-list", "--reverse", "--topo-order", f"{before}..{after}", "--"]
        try:
            # ":/" is the root, wherever in the repository ``repo`` lies.
            done = subprocess.run(
                [*command, *(f":/{path}" for path in paths)], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if done.returncode else tuple(done.stdout.split())
