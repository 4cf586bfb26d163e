"""Where an analysis leaves what it found: a folder in the store's cache.

Everything in it follows from the results, so it may be deleted at any time. Each file is written whole or not at all
and is named after what it was made from, or says so itself: a process may be killed at any moment, several may write
at once, and whoever finds a damaged file makes it anew.
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

#: Seconds for which files of an earlier state stay: somebody may be reading them.
_STAY = 600.0

#: The same for folders of other code, which may be at work beside this one.
_OTHERS_STAY = 86_400.0

#: Modules that decide what is found, and how it is written.
FOUND_BY = ("lockstep.alerts.publish", "lockstep.alerts.analysis_cache", "lockstep.alerts.analysis_files")


@dataclass(frozen=True)
class AnalysisCache:
    """The files of one store.

    Attributes:
        cache: the store's (``Store.cache``).
    """

    cache: Path

    @property
    def folder(self) -> Path:
        """The folder; other code has another one."""
        return self.cache / f"found-{code_digest(*FOUND_BY)}"

    def detector(self, machine: str) -> Path:
        """What the detector knew of a machine: see ``lockstep.alerts.detector_state``."""
        return self._of(machine) / "detector.npz"

    def notes(self, machine: str) -> Path:
        """What was seen around its changes: see ``lockstep.alerts.change_cache``."""
        return self._of(machine) / "notes.json"

    def changes(self, machine: str, key: str) -> Path:
        """Its changes and alerts, as pages show them. ``key``: see ``key_of``."""
        return self._of(machine) / f"changes-{key}.json"

    def done(self, key: str) -> Path:
        """Written last: where it is, everything is. Its time tells one analysis of the same results from another."""
        return self.folder / f"done-{key}"

    def sweep(self, key: str, machines: Iterable[str]) -> None:
        """Delete what is of a state of the results that nobody shows any more, or of other code."""
        current = {self.done(key), *(self.changes(machine, key) for machine in machines)}
        for pattern in ("*/changes-*", "done-*", "*/*.tmp"):
            for path in self.folder.glob(pattern):
                if path not in current and _age(path) > _STAY:
                    path.unlink(missing_ok=True)
        for folder in self.cache.glob("found-*"):
            if folder != self.folder and _age(folder) > _OTHERS_STAY:
                shutil.rmtree(folder, ignore_errors=True)

    def _of(self, machine: str) -> Path:
        return self.folder / blake2b(machine.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def key_of(results: Results, thresholds: Thresholds, repo: Path, packages: tuple[str, ...]) -> str:
    """What all that is found follows from, but for the day: the results, what counts, and whose commits they are."""
    states = [f"{machine} {results.state(machine)}" for machine in results.machines]
    order = [commit.hash for commit in results.commits()]
    return _digest([*states, *order, repr(thresholds), str(repo.resolve()), *packages])


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file in one step: whoever reads it has the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    with beside.open("wb") as file:
        write(file)
    beside.replace(path)


def _digest(texts: list[str]) -> str:
    return blake2b("\n".join(texts).encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
