"""Run the detector on the series of a machine, from where the last analysis ended."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.alerts.analysis.followed_series import Followed
from lockstep.alerts.analysis.stored_analysis import found_from_json, found_json
from lockstep.detect import Change, Monitor, Trend
from lockstep.detect.series_state import SeriesState
from lockstep.processes.end_with_parent import pool

#: Number of series that are processed together, chosen so that their hypotheses fit into the processor's cache.
_BATCH = 500

#: Number of new points from which a second process is worth its start. Half a second suffices for this many points.
PARALLEL_POINTS = 50_000


@dataclass(frozen=True)
class DetectedSeries:
    """What the detector found in a series, and the state from which it continues: a row of ``detector_state``.

    Attributes:
        series: key of the series and its benchmark version, see ``Followed.key``.
        length: number of points that were analysed.
        checksum: checksum of these points, see ``_checksum``.
        noise: run-to-run noise (standard deviation of the logarithm); NaN if unknown or if the series has no
            logarithms.
        state: the detector's state, see ``SeriesState``.
        found: the changes, levels and noise, see ``found_json``.
    """

    series: str
    length: int
    checksum: int
    noise: float
    state: bytes
    found: str

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of the series."""
        return found_from_json(self.found).changes


def detect(series: Sequence[Followed], known: Mapping[str, DetectedSeries], processes: int = 1) -> list[DetectedSeries]:
    """Return what the detector finds in each series. A known series is continued if its first points are the same.

    Args:
        known: what the last analysis found, by key.
        processes: the number of processes that share the work if there are many new points.
    """
    detected = {}
    jobs = []
    for place, followed in enumerate(series):
        key, values = followed.key, followed.values
        before = known.get(key)
        if before and (before.length > len(values) or _checksum(values, before.length) != before.checksum):
            before = None
        if before and before.length == len(values):
            detected[place] = before
        else:
            jobs.append(_Job(place, key, values, before))
    # Put series of similar length into a batch, because a batch takes as long as its longest series.
    jobs.sort(key=lambda job: (job.new, len(job.values)))
    batches = [jobs[start : start + _BATCH] for start in range(0, len(jobs), _BATCH)]
    if processes > 1 and len(batches) > 1 and sum(job.new for job in jobs) > PARALLEL_POINTS:
        with pool(processes) as workers:
            answers = list(workers.map(_run, batches))
    else:
        answers = list(map(_run, batches))
    for batch, answer in zip(batches, answers, strict=True):
        detected |= {job.place: found for job, found in zip(batch, answer, strict=True)}
    return [detected[place] for place in range(len(series))]


@dataclass(frozen=True, eq=False)
class _Job:
    """A series to analyse: its place among the series, its key and its points, and what the last analysis found."""

    place: int
    key: str
    values: Trend
    before: DetectedSeries | None

    @property
    def new(self) -> int:
        return len(self.values) - (self.before.length if self.before else 0)


def _run(batch: Sequence[_Job]) -> list[DetectedSeries]:
    states = [SeriesState.from_bytes(job.before.state) if job.before else None for job in batch]
    monitor = Monitor([job.values for job in batch], states)
    return [
        DetectedSeries(
            job.key,
            len(job.values),
            _checksum(job.values, len(job.values)),
            found.noise.scale if found.noise.measure == "ratio" else math.nan,
            state.to_bytes(),
            found_json(found),
        )
        for job, state, found in zip(batch, monitor.states(), monitor.analyses(), strict=True)
    ]


def _checksum(trend: Trend, length: int) -> int:
    """Return a checksum of the first points of a trend, and of how they are analysed."""
    checksum = zlib.crc32(trend.values[:length].tobytes(), zlib.crc32(f"{trend.better} {trend.ratio}".encode()))
    return checksum if trend.errors is None else zlib.crc32(trend.errors[:length].tobytes(), checksum)
