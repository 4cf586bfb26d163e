"""Name, write and delete the files of an analysis, in a folder of the store's cache.

All files are derived from the results, so they may be deleted at any time. Each file is written whole or not at all,
and its name or content identifies the results. So a process may be killed at any moment, several processes may write at
once, and a damaged file is made again.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from lockstep.history.code_digest import code_digest
from lockstep.history.snapshot import Results
from lockstep.suite.thresholds import Thresholds

#: Seconds before files of earlier results are deleted, because pages may still read them.
_KEEP_S = 600.0

#: Seconds before folders of other code versions are deleted, because that code may still be running.
_OTHER_CODE_KEEP_S = 86_400.0


@dataclass(frozen=True)
class AnalysisCache:
    """The paths of one store's analysis files.

    Attributes:
        cache: the store's cache folder (``Store.cache``).
    """

    cache: Path

    @property
    def folder(self) -> Path:
        """The folder of the analysis files that this version of the code writes and reads."""
        return self.cache / f"found-{code_digest()}"

    def detector(self, machine: str) -> Path:
        """Return the file with the detector's state for a machine, see ``lockstep.alerts.analysis.detector_state``."""
        return self._of(machine) / "detector.npz"

    def cached(self, machine: str) -> Path:
        """Return the file with the last analysis of a machine, see ``lockstep.alerts.analysis.change_cache``."""
        return self._of(machine) / "analysis.json"

    def changes(self, machine: str, key: str) -> Path:
        """Return the file with a machine's changes for the dashboard. ``key`` comes from ``key_of``."""
        return self._of(machine) / f"changes-{key}.json"

    def done(self, key: str) -> Path:
        """Return the file that marks an analysis as complete, because it is written last.

        Its modification time tells apart two analyses of the same results.
        """
        return self.folder / f"done-{key}"

    def sweep(self, key: str, machines: Iterable[str]) -> None:
        """Delete the analysis files of earlier results and of other code versions."""
        current = {self.done(key), *(self.changes(machine, key) for machine in machines)}
        for pattern in ("*/changes-*", "done-*", "*/*.tmp"):
            for path in self.folder.glob(pattern):
                if path not in current and _age(path) > _KEEP_S:
                    path.unlink(missing_ok=True)
        for folder in self.cache.glob("found-*"):
            if folder != self.folder and _age(folder) > _OTHER_CODE_KEEP_S:
                shutil.rmtree(folder, ignore_errors=True)

    def _of(self, machine: str) -> Path:
        return self.folder / blake2b(machine.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def key_of(results: Results, thresholds: Thresholds, repo: Path, packages: tuple[str, ...]) -> str:
    """Return a digest that changes whenever the findings may change: of results, thresholds, repository and packages.

    The current day also affects the findings, but is not part of the digest.
    """
    states = [f"{machine} {results.state(machine)}" for machine in results.machines]
    order = [commit.hash for commit in results.commits()]
    return _digest([*states, *order, repr(thresholds), str(repo.resolve()), *packages])


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file atomically: readers see all of the old content or all of the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    with temporary.open("wb") as file:
        write(file)
    temporary.replace(path)


def _digest(texts: list[str]) -> str:
    return blake2b("\n".join(texts).encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
