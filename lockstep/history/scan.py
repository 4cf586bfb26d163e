"""List the result files of a folder with their sizes and times, from which a refresh sees what changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.history.benchmarks_file import TABLE
from lockstep.history.cache_folder import Stamp as FolderStamp
from lockstep.history.cache_folder import stamp_of
from lockstep.history.validation import Problem, short_name
from lockstep.processes.trouble import reason_of
from lockstep.record.file import SUFFIX

#: Modification time (ns since 1970) and size (bytes) of a result file, then of its provenance file.
Stamp = tuple[int, int, int, int]

_NO_FILE = (0, 0)

#: Seconds without a change after which the times of folders show the next one. Until then somebody may be writing a
#: file, and two changes may get the same time.
_SETTLED_S = 10.0

#: asv's file with the strings of a machine.
_MACHINE = "machine.json"


@dataclass(frozen=True)
class Scan:
    """What a results folder contains, without the content of its files.

    Attributes:
        files: modification times and sizes of the result files, by path relative to the folder.
        tables: modification time and size of each ``benchmarks.json``, by path relative to the folder.
        problems: entries that cannot be examined, and provenance files without a result file.
        folders: the ``stamp_of`` each folder before it was listed. It changes when an entry is added or removed.
    """

    files: dict[str, Stamp]
    tables: dict[str, tuple[int, int]]
    problems: tuple[Problem, ...]
    folders: Mapping[Path, FolderStamp | None] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether nothing in the folder has changed within the last seconds."""
        times = [stamp[0] for stamp in (*self.files.values(), *self.tables.values())]
        times += [stamp[2] for stamp in self.files.values()]
        times += [stamp[2] for stamp in self.folders.values() if stamp]
        return max(times, default=time.time_ns()) < time.time_ns() - 1e9 * _SETTLED_S


def scan(root: Path) -> Scan:
    """List a results folder without reading its files. Links are not followed.

    Results normally lie in its subfolders. As in asv, the results folder itself and deeper folders also count if they
    hold a ``machine.json``.
    """
    problems: list[Problem] = []
    if not root.exists():
        return Scan({}, {}, (Problem(short_name(root.name), "the folder does not exist", weight="part"),))
    files: dict[str, Stamp] = {}
    tables: dict[str, tuple[int, int]] = {}
    folders: dict[Path, FolderStamp | None] = {}
    waiting: list[tuple[Path | os.DirEntry[str], str]] = [(root, "")]
    while waiting:
        folder, location = waiting.pop()
        folders[Path(folder)] = stamp_of(Path(folder))
        entries = list(_entries(folder, short_name(location or root.name), problems))
        names = {entry.name: entry for entry in entries}
        if TABLE in names and location.isprintable() and names[TABLE].is_file(follow_symlinks=not location):
            tables[f"{location}/{TABLE}" if location else TABLE] = _stamp(names[TABLE])
        if location.count("/") == 0 < len(location) or _MACHINE in names:
            _files(location, names, files, problems)
        for entry in reversed(entries):
            entry_location = f"{location}/{entry.name}" if location else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name != ".git":
                    waiting.append((entry, entry_location))
            elif not location and entry.is_dir():
                problems.append(Problem(short_name(entry_location), "the entry is a link, not a folder", weight="part"))
    return Scan(files, tables, tuple(problems), folders)


def _files(
    folder: str, entries: Mapping[str, os.DirEntry[str]], files: dict[str, Stamp], problems: list[Problem]
) -> None:
    """Add the result files of a folder to ``files``. ``folder`` is relative to the results folder."""
    for name, entry in entries.items():
        location = f"{folder}/{name}" if folder else name
        if name.endswith(".json") and name not in (_MACHINE, TABLE):
            if entry.is_dir(follow_symlinks=False):
                continue
            if not location.isprintable():
                problems.append(Problem(short_name(location), "the file's name cannot be printed"))
                continue
            provenance = entries.get(name.removesuffix(".json") + SUFFIX)
            files[location] = (*_stamp(entry), *(_stamp(provenance) if provenance else _NO_FILE))
        elif name.endswith(SUFFIX) and name.removesuffix(SUFFIX) + ".json" not in entries:
            problems.append(
                Problem(short_name(location), "the provenance file has no asv result beside it", weight="part")
            )


def _entries(folder: Path | os.DirEntry[str], label: str, problems: list[Problem]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder, sorted by name. If the folder cannot be listed, add a problem."""
    try:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except OSError as error:
        problems.append(Problem(label, reason_of(error), "a folder cannot be listed", "part"))
        return
    yield from entries


def _stamp(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return _NO_FILE
    return status.st_mtime_ns, status.st_size
