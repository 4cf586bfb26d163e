"""What pages show of an analysis, in files that they read by machine.

A page holds what was found on the machine that it shows, and nothing of the others; how a series behaves stays a row
of a table of arrays until it is asked for.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from dashboard.alerts.attribution import Kind
from dashboard.alerts.content import from_json, to_json
from dashboard.alerts.grouping import Alert
from dashboard.alerts.memory import hindsight
from dashboard.alerts.steps import SeriesName
from dashboard.changes import Analysis, Level, Noise, Seen
from dashboard.kept import write_whole

Quiet = Literal["", "small", "unsure", "noise"]

_NAME = [field.name for field in fields(SeriesName)]


@dataclass(frozen=True, slots=True)
class Finding:
    """A change of a series.

    Attributes:
        series: which.
        size, low, high: natural log of the factor by which it became worse, and its interval.
        last: position of the commit after which it surely is there.
        commit: the first one measured with it.
        suspects: how many commits it may come from.
        kind, sentence: what it is put down to.
        quiet: why it is not told, see ``dashboard.alerts.watch.Found``; "" it is.
    """

    series: SeriesName
    size: float
    low: float
    high: float
    last: int
    commit: str
    suspects: int
    kind: Kind
    sentence: str
    quiet: Quiet = ""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a series scatters, what it could show, and its levels: see ``dashboard.changes.Analysis``."""

    noise: Noise
    levels: tuple[Level, ...]
    mde: float
    repeats_for_1_percent: int | None


class Shown:
    """What is found on one machine, as files have it; only what hindsight sees is read when it is asked for.

    Args:
        series, changes, detector: the files, see ``dashboard.kept.Kept``.
        state: of the machine's results, see ``Results.state``.

    Attributes:
        found: every change, told or not, in the order of the series.
        alerts: of what became slower or is not measured any more, and is neither undone, old nor excused.

    Raises:
        OSError, ValueError: a file is gone or damaged.
    """

    def __init__(self, series: Path, changes: Path, detector: Path, state: str) -> None:
        import pyarrow.parquet as pq

        self._detector, self._state = detector, state
        self._seen: dict[SeriesName, tuple[Seen, ...]] = {}
        # A small file: the general data set that pyarrow makes of a path, and threads, cost more than reading it.
        self._table = pq.ParquetFile(series).read(use_threads=False)
        content = json.loads(changes.read_bytes())
        try:
            names = [SeriesName(*name) for name in content["series"]]
            self.found = tuple(Finding(names[at], *rest) for at, *rest in content["found"])
            self.alerts = tuple(from_json(one) for one in content["alerts"])
            self._rows = {SeriesName(*one): row for row, one in enumerate(zip(*self._texts(), strict=True))}
            self._scales: list[float] = self._table["scale"].to_pylist()
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{series} or {changes} is damaged: {error}") from error

    @property
    def noise(self) -> Mapping[SeriesName, float]:
        """Run-to-run noise of each followed series (standard deviation of the logarithm); NaN unknown."""
        return dict(zip(self._rows, self._scales, strict=True))

    def behaviour(self, name: SeriesName) -> Behaviour | None:
        """How a series behaves; ``None`` if it is not followed."""
        if name not in self._rows:
            return None
        [row] = self._table.slice(self._rows[name], 1).to_pylist()
        ends = (row[key] for key in ("start", "stop", "value", "low", "high"))
        noise = Noise(row["scale"], row["kind"], tuple(row["modes"]), row["slope"])
        levels = tuple(Level(*one) for one in zip(*ends, strict=True))
        return Behaviour(noise, levels, row["mde"], row["repeats"])

    def in_hindsight(self, name: SeriesName) -> tuple[Seen, ...]:
        """The steps that a series shows now that it is seen whole, () if it is not followed; 60 ms the first time."""
        if name not in self._seen:
            self._seen[name] = hindsight(self._detector, self._state, name)
        return self._seen[name]

    def _texts(self) -> list[list[str]]:
        return [self._table[name].to_pylist() for name in _NAME]


def write_series(path: Path, analyses: Mapping[SeriesName, Analysis]) -> None:
    """Write how each series of a machine behaves."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    several = list(analyses.values())
    noise = [one.noise for one in several]
    columns: dict[str, Any] = dict(zip(_NAME, zip(*map(astuple, analyses), strict=True), strict=True))
    columns = {name: list(columns.get(name, ())) for name in _NAME}
    columns |= {
        "scale": pa.array([one.scale for one in noise], pa.float64()),
        "kind": pa.array([one.kind for one in noise], pa.string()),
        "modes": pa.array([list(one.modes) for one in noise], pa.list_(pa.float64())),
        "slope": pa.array([one.slope for one in noise], pa.float64()),
        "mde": pa.array([one.mde for one in several], pa.float64()),
        "repeats": pa.array([one.repeats_for_1_percent for one in several], pa.int64()),
    }
    for name, kind in (("start", pa.int64()), ("stop", pa.int64())):
        columns[name] = pa.array([[getattr(at, name) for at in one.levels] for one in several], pa.list_(kind))
    for name in ("value", "low", "high"):
        columns[name] = pa.array([[getattr(at, name) for at in one.levels] for one in several], pa.list_(pa.float64()))
    file = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(one) for name, one in columns.items()}), file)
    write_whole(path, lambda out: out.write(file.getbuffer()))


def write_changes(path: Path, found: Iterable[Finding], alerts: Iterable[Alert]) -> None:
    """Write the changes of a machine, and its alerts that somebody has to look at."""
    places: dict[SeriesName, int] = {}
    rows = [[places.setdefault(one.series, len(places)), *(getattr(one, name) for name in _CHANGE)] for one in found]
    told = [to_json(one) for one in alerts if one.topic != "faster" and not (one.gone or one.old or one.excuse)]
    content = json.dumps({"series": [astuple(name) for name in places], "found": rows, "alerts": told})
    write_whole(path, lambda out: out.write(content.encode("utf-8", "surrogatepass")))


_CHANGE = [field.name for field in fields(Finding)][1:]
