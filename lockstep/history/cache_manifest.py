"""Store which result files were read, and which parquet files ("parts") of the cache hold their points.

The manifest is one JSON file with a checksum, which is replaced as a whole. A reader sees the old or the new manifest.
It can be rebuilt from the results folder. If a process is killed, the parts that the manifest lists stay, and the other
files are read again.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from lockstep.history.cache_folder import DamagedCache
from lockstep.history.line import Line
from lockstep.history.model import Run
from lockstep.history.scan import Stamp
from lockstep.history.validation import Problem


class RunRow(NamedTuple):
    """A result file that was read.

    Attributes:
        id: the number that the file's points carry. When a file changes, it gets a new number. Its old points then
            belong to no run and are ignored, because numbers are never reused.
        folder: the folder of the file, relative to the results folder.
        layout: digest of the sorted numbers of the file's series.
        points: the number of points in the file.
        run: the measurement, whose machine is "".
        part: name of the parquet file that holds the points; "" if the file has no points.
    """

    id: int
    folder: str
    layout: str
    points: int
    run: Run
    part: str = ""


class Part(NamedTuple):
    """A parquet file of the cache with points from one folder of the results."""

    name: str
    folder: str
    rows: int


@dataclass(frozen=True)
class Manifest:
    """What was read from result files: from all of them, or from the files of one batch.

    Attributes:
        files: the times and sizes that each file, readable or not, had when it was read, by path.
        runs: the files that could be read, by path.
        problems: the problems of each file and of each table, by path.
        parts: the parts in use, by name.
        layouts: the series numbers (int64) of each layout as hexadecimal digits, by the layout's digest.
        series: the benchmark and the parameter values of each series, by the series' number.
        versions: the text of each benchmark version, by the version's number.
        next_run: a number that is greater than that of every run that ever existed. The first one is random, so that
            runs of a cache that was made again have other numbers than before.
        line: the commits in their order. Those of files that were read since then are missing.
        line_state: a digest of what the order was computed from; "" in a manifest that is being made.
        tables: see ``Scan.tables``.
        benchmarks: the entries of the benchmarks in these tables, by name.
    """

    files: Mapping[str, Stamp] = field(default_factory=dict)
    runs: Mapping[str, RunRow] = field(default_factory=dict)
    problems: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    series: Mapping[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    versions: Mapping[int, str] = field(default_factory=dict)
    next_run: int = field(default_factory=lambda: secrets.randbelow(2**30) + 1)
    line: Line = field(default_factory=lambda: Line(()))
    line_state: str = ""
    tables: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    benchmarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def commits(self) -> dict[str, int]:
        """The date of every commit, in ms since 1970, by hash. If files disagree, the earliest date counts."""
        dates: dict[str, int] = {}
        for run in (row.run for row in self.runs.values()):
            dates[run.commit] = min(run.date, dates.get(run.commit, run.date))
        return dates

    def without(self, paths: Collection[str]) -> Manifest:
        """Return the manifest without some files. Their points stay in the parts until a merge, and are ignored."""
        kept: dict[str, Any] = {
            name: {path: of for path, of in getattr(self, name).items() if path not in paths} for name in _BY_PATH
        }
        return replace(self, **kept)

    def with_batch(self, batch: Manifest) -> Manifest:
        """Return the manifest with what was read from a batch of files, in place of what was known about them."""
        kept = self.without(batch.files)
        names = (*_BY_PATH, "parts", "layouts", "series", "versions")
        joined: dict[str, Any] = {name: {**getattr(kept, name), **getattr(batch, name)} for name in names}
        return replace(kept, **joined, next_run=max(self.next_run, batch.next_run))

    def merged(self, old: Sequence[Part], new: Part | None) -> Manifest:
        """Return the manifest after a merge replaced several parts by one; ``None`` if no point was left."""
        names, name = {part.name for part in old}, new.name if new else ""
        parts = {part.name: part for part in self.parts.values() if part.name not in names}
        parts |= {name: new} if new else {}
        runs = {path: run._replace(part=name) if run.part in names else run for path, run in self.runs.items()}
        return replace(self, parts=parts, runs=runs)

    def write(self, path: Path) -> None:
        """Replace the file ``path`` by this manifest."""
        text = _json().dump_json(self)
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(b"%08x\n" % zlib.crc32(text) + text)
        temporary.replace(path)


_BY_PATH = ("files", "runs", "problems")


@cache
def _json() -> TypeAdapter[Manifest]:
    """Return the converter between manifests and JSON."""
    return TypeAdapter(Manifest)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        DamagedCache: the file is damaged.
        OSError: the file does not exist, or cannot be read.
    """
    checksum, _, text = path.read_bytes().partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(text):
        raise DamagedCache(f"{path.name} has another checksum")
    return _json().validate_json(text)
