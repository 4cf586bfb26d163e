"""Find the commits that runs are measuring. Such a commit has records, and no result file of asv, which ends it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockstep.fleet.shard import FOLDER_SUFFIX
from lockstep.record.file import SUFFIX, RecordError, read_file, result_path

#: Milliseconds without a new record after which a run is taken for ended. A case takes seconds.
_ENDED = 30 * 60_000


@dataclass(frozen=True)
class InProgress:
    """A commit that a run measures.

    Attributes:
        machine: name of the machine's folder.
        shard: name of the shard's folder; "" for a run without shards.
        commit: full hash of the commit.
        records: number of records so far.
        expected: number of records of the last commit that was finished in the same folder; 0 if there is none.
        recorded_at: time of the last record, in ms since 1970.
    """

    machine: str
    shard: str
    commit: str
    records: int
    expected: int
    recorded_at: int


def in_progress(results: Path, now: int) -> list[InProgress]:
    """Return the commits that runs measure into these results or into the folders of their shards.

    Args:
        now: the present time in ms since 1970.
    """
    shards = sorted(results.with_name(results.name + FOLDER_SUFFIX).glob("*/"))
    folders = [(folder, shard) for shard in (results, *shards) for folder in sorted(shard.glob("*/"))]
    found: list[InProgress] = []
    for folder, shard in folders:
        times = {path: path.stat().st_mtime_ns // 1_000_000 for path in folder.glob(f"*{SUFFIX}")}
        done = [path for path in times if result_path(path).is_file()]
        for path in sorted(path for path, time in times.items() if path not in done and now - time < _ENDED):
            try:
                provenance, records, _ = read_file(path)
                expected = len(read_file(max(done, key=times.__getitem__))[1]) if done else 0
            except (OSError, RecordError):
                continue  # a damaged file; whoever measures this commit again reports it
            name = "" if shard == results else shard.name
            found.append(InProgress(folder.name, name, provenance.commit, len(records), expected, times[path]))
    return found
