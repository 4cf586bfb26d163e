"""Run the detector on the series of a machine, from where the last analysis ended."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence

from lockstep.alerts.analysis.followed_series import Followed
from lockstep.alerts.analysis.stored_analysis import DetectedSeries, found_json
from lockstep.detect import Trend, continue_many
from lockstep.detect.series_state import SeriesState

#: Number of new points from which a second process is worth its start. Half a second suffices for this many points.
PARALLEL_POINTS = 50_000


def detect(
    series: Sequence[Followed], known: Mapping[tuple[int, int], DetectedSeries], processes: int = 1
) -> list[DetectedSeries]:
    """Return what the detector finds in each series. A known series is continued if its first points are the same.

    Args:
        known: what the last analysis found, by the number of the series and the index of its benchmark version.
        processes: the number of processes that share the work if there are many new points.
    """
    before = [_continued(known.get((one.number, one.version)), one.values) for one in series]
    new = [place for place, one in enumerate(series) if _new_points(before[place], one.values) or not before[place]]
    points = sum(_new_points(before[place], series[place].values) for place in new)
    states = [SeriesState.from_bytes(stored.state) if (stored := before[place]) else None for place in new]
    values = [series[place].values for place in new]
    found = continue_many(values, states, processes=processes if points > PARALLEL_POINTS else 1)
    detected = dict(enumerate(before)) | {
        place: DetectedSeries(
            series[place].number,
            series[place].version,
            len(trend),
            _checksum(trend, len(trend)),
            analysis.noise.scale if analysis.noise.measure == "ratio" else math.nan,
            state.to_bytes(),
            found_json(analysis),
        )
        for place, trend, (analysis, state) in zip(new, values, found, strict=True)
    }
    return [one for one in detected.values() if one]


def _continued(stored: DetectedSeries | None, trend: Trend) -> DetectedSeries | None:
    """Return what was stored of a series if its first points are the same now."""
    same = stored and stored.length <= len(trend) and _checksum(trend, stored.length) == stored.checksum
    return stored if same else None


def _new_points(stored: DetectedSeries | None, trend: Trend) -> int:
    return len(trend) - (stored.length if stored else 0)


def _checksum(trend: Trend, length: int) -> int:
    """Return a checksum of the first points of a trend, and of how they are analysed."""
    checksum = zlib.crc32(trend.values[:length].tobytes(), zlib.crc32(f"{trend.better} {trend.ratio}".encode()))
    return checksum if trend.errors is None else zlib.crc32(trend.errors[:length].tobytes(), checksum)
