"""Merge folders of results. The content alone decides: merging twice, or in another order, gives the same results.

A folder that is merged is only read. Files are replaced as a whole, so that an interrupted merge loses nothing and can
be repeated. A lock keeps two merges into one folder apart.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asv.benchmarks import Benchmarks
from asv.machine import Machine
from asv.results import Results
from asv.util import UserError, load_json

from lockstep.asv.undiscovered_benchmarks import read_table
from lockstep.asv.whole_files import json_text
from lockstep.fleet.join_asv import AsvResults, joined_asv
from lockstep.fleet.join_records import Measured, joined
from lockstep.processes.exit_status import UsageError
from lockstep.processes.only_one import only_one
from lockstep.record.file import (
    SUFFIX,
    RecordError,
    newest_record,
    provenance_path,
    read_records,
    records_text,
    replace_file,
    result_path,
    set_aside,
)
from lockstep.timing.clocks.reference_clocks import NAME as CLOCKS
from lockstep.timing.clocks.reference_clocks import ReferenceClocks
from lockstep.timing.tuners.choices import NAME as TUNED
from lockstep.timing.tuners.choices import Choices

_TABLE = "benchmarks.json"
_MACHINE = "machine.json"


@dataclass(frozen=True)
class Merged:
    """What a merge did.

    Attributes:
        commits: number of result files that changed.
        unchanged: number of result files that already had everything.
        unfinished: files of commits that a shard has not finished. They stay in its folder.
        problems: files that could not be merged, each with the reason.
    """

    commits: int
    unchanged: int
    unfinished: tuple[str, ...]
    problems: tuple[str, ...]


def shard_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the folders of results among ``paths`` and in them.

    Raises:
        UsageError: a path is not a folder.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"{path} is not a folder of results")
        inside = sorted(folder for folder in path.iterdir() if (folder / _TABLE).is_file())
        found += [path] if (path / _TABLE).is_file() or not inside else inside
    return found


def merge(sources: Sequence[Path], target: Path) -> Merged:
    """Merge the results in ``sources`` into ``target``.

    Raises:
        OSError: a file cannot be read or written. Files that were written are complete; merge again.
    """
    target.mkdir(parents=True, exist_ok=True)
    with only_one(target, wait=True):
        folders = [target, *sources]
        _merge_tables(folders, target)
        choices = Choices(target / TUNED)  # the target's choices stay: recorded times depend on them
        for folder in folders:
            choices.join(Choices(folder / TUNED))
        counts, unfinished, problems = Counter[bool](), list[str](), list[str]()
        for machine in sorted({path.parent.name for folder in sources for path in folder.glob("*/*.json*")}):
            _merge_clocks(folders, target, machine)
            strings = _merge_machine(folders, target, machine)
            stems = {path.name for folder in sources for path in (folder / machine).glob("*.json")} - {_MACHINE}
            begun = {result_path(path).name for folder in sources for path in (folder / machine).glob(f"*{SUFFIX}")}
            unfinished += [f"{machine}/{name}" for name in sorted(begun - stems)]
            for name in sorted(stems):
                try:
                    counts[_merge_commit(folders, target, f"{machine}/{name}", strings)] += 1
                except (RecordError, UserError, ValueError, KeyError) as error:
                    problems.append(f"{machine}/{name}: {error}")
    return Merged(counts[True], counts[False], tuple(unfinished), tuple(problems))


def begin_shard(results: Path, folder: Path, machine: str, uuid: str) -> None:
    """Take over into a shard's folder what the results hold of its GPU, and the clocks and tables of all."""
    _merge_tables([folder, results], folder)
    _merge_clocks([folder, results], folder, machine)
    strings = _merge_machine([folder, results], folder, machine)
    for path in sorted((results / machine).glob(f"*{SUFFIX}")):
        name = result_path(path).name
        own = folder / machine / path.name
        newer = own.exists() and own.stat().st_mtime_ns > path.stat().st_mtime_ns
        if not newer and path.with_name(name).is_file() and _names(path, uuid):
            # The recorder reports what is wrong with a file of this commit.
            with contextlib.suppress(RecordError, UserError, ValueError, KeyError):
                _merge_commit([folder, results], folder, f"{machine}/{name}", strings, only=uuid)


def _merge_commit(
    folders: Sequence[Path], target: Path, name: str, strings: Mapping[str, str], only: str | None = None
) -> bool:
    """Merge the files of one commit, and return whether the target changed.

    Args:
        name: machine and file name of asv's result file.
        strings: asv's strings of the machine.
        only: UUID of the GPU whose records count; ``None`` for all.

    Raises:
        ValueError: a folder has records of an older toolchain than another. All else was merged.
    """
    found = {folder: _read(folder / name, only) for folder in dict.fromkeys(folders)}
    measured = {folder: one for folder, (_, one) in found.items() if one is not None}
    newest = max(measured.values(), key=lambda one: (one.newest, one.conditions), default=None)
    alike = {folder: one for folder, one in measured.items() if newest and one.conditions == newest.conditions}
    files = [
        AsvResults(content, alike[folder].counting if folder in alike else {})
        for folder, (content, one) in found.items()
        if content is not None and (one is None or folder in alike or folder == target)
    ]
    changed = False
    if newest is not None:
        if target in measured and target not in alike:
            set_aside(provenance_path(target / name), measured[target].provenance.recorded_at)
        changed = _replace(provenance_path(target / name), records_text(*joined(list(alike.values())).for_file()))
    changed |= _replace(
        target / name, json_text(joined_asv(files, read_table(target), strings), Results.api_version, compact=True)
    )
    if older := [folder for folder in measured if folder not in alike and folder != target]:
        raise ValueError(f"{', '.join(map(str, older))} has records of an older toolchain, which were left out")
    return changed


def _names(path: Path, uuid: str) -> bool:
    """Return whether the provenance in the first line names a GPU. Only then is the whole file worth reading."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return uuid in file.readline()


def _read(path: Path, only: str | None) -> tuple[Any, Measured | None]:
    """Return asv's content and the records of a commit; ``None`` for what the folder does not have."""
    content = load_json(str(path), Results.api_version) if path.is_file() else None
    measured = Measured.of_file(*read_records(provenance_path(path))) if provenance_path(path).is_file() else None
    return content, measured.of_gpu(only) if measured is not None and only is not None else measured


def _replace(path: Path, text: str) -> bool:
    """Replace a file, unless it has this text already; return whether it changed."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    replace_file(path, text)
    return True


def _merge_tables(folders: Sequence[Path], target: Path) -> None:
    """Merge asv's tables of benchmarks. Of two entries, the one of the folder with the newest results counts."""
    tables = [(newest_record(folder), _text(table), table) for folder in folders if (table := read_table(folder))]
    merged: dict[str, Any] = {}
    for _, _, table in sorted(tables, key=lambda one: one[:2]):
        merged |= table
    if merged:
        _replace(target / _TABLE, json_text(merged, Benchmarks.api_version))


def _merge_machine(folders: Sequence[Path], target: Path, machine: str) -> dict[str, str]:
    """Return asv's strings of a machine, and write them into the target if it has none."""
    for folder in folders:
        path = folder / machine / _MACHINE
        if path.is_file():
            strings = load_json(str(path), Machine.api_version)
            strings.pop("version", None)
            _replace(target / machine / _MACHINE, json_text(strings, Machine.api_version))
            return dict(strings)
    return {}


def _merge_clocks(folders: Sequence[Path], target: Path, machine: str) -> None:
    """Merge the reference clocks. The target's clocks stay: recorded ratios depend on them."""
    clocks = ReferenceClocks(target / machine / CLOCKS)
    for folder in folders:
        clocks.join(ReferenceClocks(folder / machine / CLOCKS))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
