"""Read new and changed result files into parts of the cache. All cores share the work if there are many files."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from lockstep.history.asv_file import read_asv
from lockstep.history.cache_manifest import Manifest, RunRow
from lockstep.history.parquet import MOST_PARTS, write_part
from lockstep.history.point_columns import FilePoints, joined
from lockstep.history.provenance_file import join_provenance
from lockstep.history.scan import Stamp
from lockstep.history.series_ids import Parameters, forget
from lockstep.history.validation import Problem, Unreadable, read_json
from lockstep.processes.end_with_parent import kill_group, pool, reap, start
from lockstep.processes.trouble import reason_of
from lockstep.record.file import provenance_path

#: Bytes of result files that become one part. Larger batches may not fit in memory, and smaller ones make too many
#: parts.
_BATCH = 16 * 2**20
_LARGEST_BATCH = 64 * 2**20

#: Number of parts into which a whole folder is read. It leaves room for more parts before a merge is due.
_PARTS = MOST_PARTS // 2

#: Bytes of files up to which this process reads alone, because other processes would take as long to start.
_ALONE = 8 * 2**20


@dataclass(frozen=True)
class Batch:
    """Result files of one folder that a process reads into one parquet file. The first file has this run number."""

    root: Path
    parts: Path
    folder: str
    files: dict[str, Stamp]
    first_run: int


def batches(root: Path, parts: Path, changed: Mapping[str, Stamp], first_run: int) -> list[Batch]:
    """Divide the changed files into batches, each of files from one folder and small enough for memory."""
    weights = Counter[str]()
    for path, stamp in changed.items():
        weights[_folder(root, path)] += stamp[1] + stamp[3]
    grouped: list[Batch] = []
    room = 0.0
    for run, path in enumerate(sorted(changed, key=lambda path: (_folder(root, path), path)), first_run):
        folder, stamp = _folder(root, path), changed[path]
        room -= stamp[1] + stamp[3]
        if not grouped or folder != grouped[-1].folder or room < 0:
            room = min(max(_BATCH, weights[folder] / _PARTS), _LARGEST_BATCH) - stamp[1] - stamp[3]
            grouped.append(Batch(root, parts, folder, {}, run))
        grouped[-1].files[path] = stamp
    return grouped


def _folder(root: Path, path: str) -> str:
    """Return the folder of a file, relative to the results folder.

    For a file that lies directly in the results folder, return the name of the results folder.
    """
    return path.rpartition("/")[0] or root.name


def read_all(work: Sequence[Batch]) -> Iterator[Manifest]:
    """Read the batches, and yield the manifest of each batch as soon as it is read.

    If there is much to read, other processes read it, because a process that serves pages would never return the
    memory.
    """
    size = sum(stamp[1] + stamp[3] for batch in work for stamp in batch.files.values())
    if size < _ALONE:
        yield from map(read_batch, work)
        return
    # Not by multiprocessing: it would fork this process, which may have threads, or would run the script of this
    # process again, which opens the same store and waits for its lock.
    process = start([sys.executable, "-P", "-c", _READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as to_reader:
            pickle.dump(sys.path, to_reader)
            pickle.dump(work, to_reader)
        for _ in work:
            done = pickle.load(process.stdout)
            if isinstance(done, BaseException):
                raise done
            yield done
        reap(process)
    except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
        raise BrokenProcessPool("the process that read result files ended early") from error
    finally:
        kill_group(process)
        process.wait()
        process.stdout.close()


#: Program of the process that reads batches.
_READER = """
import pickle, sys
sys.path = pickle.load(sys.stdin.buffer)
from lockstep.processes.end_with_parent import end_with_parent
end_with_parent()
from lockstep.history.ingest import answer_batches
answer_batches()
"""


def answer_batches() -> None:
    """Read the batches that standard input holds, on all cores, and write the manifest of each to standard output.

    This is the main function of the process that ``read_all`` starts. An exception is written in place of a manifest.
    """
    work: Sequence[Batch] = pickle.load(sys.stdin.buffer)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing else is written between the answers
    with answers, pool(min(len(os.sched_getaffinity(0)), len(work))) as workers:
        for done in as_completed([workers.submit(read_batch, batch) for batch in work]):
            pickle.dump(done.exception() or done.result(), answers)
            answers.flush()


def read_batch(batch: Batch) -> Manifest:
    """Read a batch of result files and write their points as one part. An unreadable file becomes a problem."""
    forget()
    points: list[FilePoints] = []
    runs: dict[str, RunRow] = {}
    problems: dict[str, Sequence[Problem]] = {}
    layouts: dict[str, str] = {}
    series: dict[int, Parameters] = {}
    versions: dict[int, str] = {}
    machines: dict[Path, str] = {}
    for run, (path, stamp) in enumerate(batch.files.items(), batch.first_run):
        try:
            file = batch.root / path
            if file.parent not in machines:
                machines[file.parent] = _machine_in(file.parent)
            asv = read_asv(file, machines[file.parent])
            if stamp[2:] != (0, 0):
                asv = join_provenance(provenance_path(file), asv)
        except (Unreadable, OSError) as error:
            message = reason_of(error)
            problems[path] = [Problem(path, message, getattr(error, "reason", message))]
            continue
        folder = path.removesuffix(file.name)
        problems[path] = [replace(problem, path=folder + problem.path) for problem in asv.problems]
        series |= asv.series
        versions |= asv.versions
        count, ids = len(asv.points["series"]), np.sort(asv.points["series"]).tobytes()
        layout = blake2b(ids, digest_size=12).hexdigest()
        layouts[layout] = ids.hex()
        runs[path] = RunRow(run, batch.folder, layout, count, replace(asv.run, path=path))
        points.append({**asv.points, "run": np.full(count, run, np.int32)})
    parts = {}
    if any(row.points for row in runs.values()):
        part = write_part(batch.parts, batch.folder, joined(points))
        parts, runs = {part.name: part}, {path: run._replace(part=part.name) for path, run in runs.items()}
    return Manifest(batch.files, runs, problems, parts, layouts, series, versions, batch.first_run + len(batch.files))


def _machine_in(folder: Path) -> str:
    """Return the machine that the folder's ``machine.json`` names; "" if it names none."""
    try:
        machine = read_json(folder / "machine.json")["machine"]
    except (Unreadable, OSError, KeyError, TypeError, IndexError):
        return ""
    return machine if isinstance(machine, str) else ""
