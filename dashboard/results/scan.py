"""Which result files there are, and what tells that one changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dashboard.results.guards import shown
from dashboard.results.model import Problem
from lockstep.record import SUFFIX

#: Modification time (ns since 1970) and size (bytes) of a result file, and of the provenance beside it.
Stamp = tuple[int, int, int, int]

_NO_FILE = (0, 0)


@dataclass(frozen=True)
class Scan:
    """What lies in a results folder.

    Attributes:
        files: result files by path relative to the folder.
        table: modification time and size of ``benchmarks.json``.
        problems: what cannot be looked at, and provenance that stands alone.
    """

    files: dict[str, Stamp]
    table: tuple[int, int]
    problems: tuple[Problem, ...]


def scan(root: Path) -> Scan:
    """Look at a results folder without reading a file; links are not followed."""
    files: dict[str, Stamp] = {}
    problems: list[Problem] = []
    if not root.exists():
        return Scan({}, _NO_FILE, (Problem(shown(root.name), "does not exist"),))
    table = _NO_FILE
    for folder in _entries(root, shown(root.name), problems):
        where = shown(folder.name)
        if folder.name == "benchmarks.json":
            table = _stamp(folder)
        elif folder.is_symlink() and folder.is_dir():
            problems.append(Problem(where, "is a link, not a folder"))
        elif folder.is_dir():
            _folder(folder, where, files, problems)
    return Scan(files, table, tuple(problems))


def _folder(folder: os.DirEntry[str], label: str, files: dict[str, Stamp], problems: list[Problem]) -> None:
    entries = {entry.name: entry for entry in _entries(folder, label, problems)}
    for name, entry in entries.items():
        where = f"{folder.name}/{name}"
        if name.endswith(".json") and name not in ("machine.json", "benchmarks.json"):
            if not where.isprintable():
                problems.append(Problem(shown(where), "has a name that cannot be shown"))
                continue
            beside = entries.get(name.removesuffix(".json") + SUFFIX)
            files[where] = (*_stamp(entry), *(_stamp(beside) if beside else _NO_FILE))
        elif name.endswith(SUFFIX) and name.removesuffix(SUFFIX) + ".json" not in entries:
            problems.append(Problem(shown(where), "has no asv result beside it"))


def _entries(folder: Path | os.DirEntry[str], label: str, problems: list[Problem]) -> Iterator[os.DirEntry[str]]:
    """The folder's entries by name; a folder that cannot be listed is a problem."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        problems.append(Problem(label, error.strerror or str(error)))
        return
    yield from entries


def _stamp(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return _NO_FILE
    return found.st_mtime_ns, found.st_size
