"""Hold many rows as columns, each of which is an array. A row becomes an object only to be shown.

Each page of a machine with 60,000 series needs as many rows. As objects, they would take ten times the memory and time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.alerts.analysis.machine_results import name_of
from lockstep.compare.row import COPIED, STATE_LABELS, Measured, Row
from lockstep.compare.shown_quantities import SHOWN_AS, VALUE
from lockstep.history.hex_digits import packed
from lockstep.history.model import NO_NUMBER, STATES, Benchmark, Commit, Floats, Ints, Part, SeriesKey, State
from lockstep.history.row_keys import KeyIndex
from lockstep.record.quantity import Better
from lockstep.suite.thresholds import Thresholds

Indices = NDArray[np.intp] | Ints
Columns = Mapping[str, NDArray[Any]]

#: Codes of the better directions: the sign of a change of the number that is worse.
_DIRECTIONS: Mapping[Better, int] = {"lower": 1, "higher": -1, "neither": 0}

TEXTS = ("reason", "note", "bound", "baseline", "clock_reasons")
#: Columns that every row takes from its point unchanged.
ALWAYS = ("rank", "commit", "same_work_as", "gpu")
#: Other columns that a row takes from its point unchanged.
SHARED = (*("state", "version", "flops", "bytes", "floor_s", "mde", "sm_mhz", "check_error"), *TEXTS)
#: Column that a quantity needs besides its number and interval.
COLUMN_OF = {"floor": "floor_s", "bandwidth": "bytes", "compute": "flops", "error": "check_error"}


@dataclass(frozen=True, eq=False)
class RowTable:
    """The rows of a machine as columns. An item is a ``Row``.

    Attributes:
        commits: the machine's commits on the line, oldest first, and then those apart.
        columns: columns by name, of equal length. "key", "commit" and "rank" are indices into the machine's keys,
            commits and series, and "version" is an index into ``Results.versions``. "same_work_as" and "gpu" are those
            of ``Trend``. The numbers "latency" (seconds), "speedup" and "value" (in the benchmark's unit) also have the
            columns "…_low", "…_high" and "…_error". Unknown numbers are NaN. A column without any number is left out.
    """

    series_keys: KeyIndex
    commits: tuple[Commit, ...]
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["key"])

    def __getitem__(self, index: int) -> Row:
        key, benchmark = self.key_at(index), self.benchmark(index)
        state: State = STATES[self.at("state", index)]
        reasons = self.at("clock_reasons", index)
        return Row(
            key=key,
            state=state,
            label=COPIED if self.at("same_work_as", index) else STATE_LABELS[state],
            measured=partial(self.measured_at, index=index),
            reason=self.reason(index),
            latency=self._measured("latency", index),
            speedup=self._measured("speedup", index),
            flops=float(self.at("flops", index)),
            bytes=float(self.at("bytes", index)),
            floor_s=self.number("floor_s", index),
            bound=self.at("bound", index),
            mde=self.number("mde", index),
            note=self.at("note", index),
            sm_mhz=self.number("sm_mhz", index),
            clock_reasons=tuple(reasons.split("\n")) if reasons else (),
            value=self.measured_at(VALUE, index) if benchmark.part == "value" else None,
            unit=_unit(benchmark)[0] if benchmark.part == "value" else "",
            better=benchmark.better,
        )

    def __iter__(self) -> Iterator[Row]:
        return map(self.__getitem__, range(len(self)))

    def select(self, chosen: NDArray[Any]) -> RowTable:
        """Return a table of the rows at these indices, or of those in a mask."""
        return replace(self, columns={name: column[chosen] for name, column in self.columns.items()})

    def of(self, keys: Iterable[SeriesKey]) -> RowTable:
        """Return a table of the rows with these keys."""
        index = self.series_keys
        chosen = np.zeros(len(index.keys), dtype=bool)
        chosen[[index.place[key] for key in keys if key in index.place]] = True
        return self.select(chosen[self.columns["key"]])

    def at(self, name: str, index: int) -> Any:
        """Return the value of a column in a row; NaN if the table lacks the column."""
        return self.columns[name][index] if name in self.columns else math.nan

    def column(self, name: str) -> Floats:
        """Return a column of numbers; NaN in all rows if the table lacks the column."""
        return self.columns[name] if name in self.columns else np.broadcast_to(np.nan, len(self))

    def measured(self, quantity: str) -> Floats:
        """Return a quantity of every row, see ``Row.measured``; NaN for rows without the number."""
        return self.interval(quantity)[0]

    def interval(self, quantity: str) -> tuple[Floats, Floats, Floats]:
        """Return a quantity of every row as ``measured`` does, and the two ends of its interval; NaN if unknown."""
        value, low, high = (self.column(name) for name in interval_names(_part(quantity))[:3])
        if quantity == "speedup":
            return value, low, high
        if quantity in (VALUE, "latency"):
            factor: Any = 1e6 if quantity == "latency" else self.factors if VALUE in self.columns else 1.0
            return factor * value, factor * low, factor * high
        if quantity == "error":
            error = np.where(np.isnan(value), np.nan, self.column("check_error"))
            return error, np.full_like(error, np.nan), np.full_like(error, np.nan)
        numerators = {
            "floor": 100 * self.column("floor_s"),
            "bandwidth": self.column("bytes") / 1e9,
            "compute": self.column("flops") / 1e12,
        }
        numerator = np.where(numerators[quantity] > 0, numerators[quantity], np.nan)
        return numerator / value, numerator / high, numerator / low

    def measured_at(self, quantity: str, index: int) -> Measured | None:
        """Return a quantity of one row as ``measured`` does, with its interval and the error; ``None`` if unknown."""
        # A slice costs a tenth of a selection by index, and the page of a family shows a thousand rows.
        row = replace(self, columns={name: column[index : index + 1] for name, column in self.columns.items()})
        ends = (*row.interval(quantity), row.column(f"{_part(quantity)}_error"))
        value, *more = (None if math.isnan(end[0]) else float(end[0]) for end in ends)
        return None if value is None else Measured(value, *more)

    @cached_property
    def keys(self) -> list[SeriesKey]:
        """The key of each row."""
        keys = self.series_keys.keys
        return [keys[place] for place in self.columns["key"].tolist()]

    @cached_property
    def timed(self) -> Ints:
        """For each row, the commit whose number it has (``lockstep.history.hex_digits``): a copy has another's."""
        own = {place: packed(self.commits[place].hash) for place in set(self.columns["commit"].tolist())}
        commits = np.array([own[place] for place in self.columns["commit"].tolist()], dtype=np.int64)
        copied: Ints = self.columns["same_work_as"]
        return np.where(copied != 0, copied, commits)

    @cached_property
    def place(self) -> Ints:
        """For each key of the machine, the index of its row; -1 for a key without a row."""
        places = np.full(len(self.series_keys.keys), -1, dtype=np.int32)
        places[self.columns["key"]] = np.arange(len(self), dtype=np.int32)
        return places

    def find(self, key: SeriesKey) -> int:
        """Return the index of a key's row; -1 if the key has no row."""
        known = self.series_keys.place.get(key)
        return -1 if known is None else int(self.place[known])

    def get(self, key: SeriesKey) -> Row | None:
        """Return the row of a key; ``None`` if the key has no row."""
        place = self.find(key)
        return None if place < 0 else self[place]

    def key_at(self, index: int) -> SeriesKey:
        """Return the key of a row."""
        return self.series_keys.keys[int(self.at("key", index))]

    def baseline_of(self, index: int) -> int:
        """Return the index of the row that holds the baseline of a row's speedup; -1 if there is none."""
        return self.find(self.key_at(index).of(self.at("baseline", index)))

    def directions(self, thresholds: Thresholds) -> NDArray[np.int8]:
        """Return for each row 1 if a lower number is better, -1 if a higher one is, and 0 if neither is.

        It is the direction of the latency for a row with latency and speedup. A rule of the thresholds may state that
        of another project's benchmark.
        """
        of_series = np.array([_DIRECTIONS[benchmark.better] for benchmark in self.series_keys.benchmarks], np.int8)
        codes: NDArray[np.int8] = of_series[self.columns["rank"]]
        if any(rule.better for rule in thresholds.rules):
            for place in np.flatnonzero(self.foreign).tolist():
                subject = self.subject(place)
                codes[place] = _DIRECTIONS[thresholds.better(*subject, otherwise=self.benchmark(place).better)]
        return codes

    @property
    def foreign(self) -> NDArray[np.bool_]:
        """For each row, whether its benchmark is another project's."""
        return self.series_keys.foreign[self.columns["rank"]]

    @property
    def exact(self) -> NDArray[np.bool_]:
        """For each row, whether its number is an exact quantity."""
        return self.series_keys.exact[self.columns["rank"]]

    @property
    def units(self) -> list[str]:
        """The unit in which the column "value" of each row is shown; "" for rows without a value."""
        if "value" not in self.columns:
            return [""] * len(self)
        return [_unit(row)[0] if row.part == "value" else "" for row in map(self.benchmark, range(len(self)))]

    @property
    def factors(self) -> Floats:
        """For each row, the factor that converts the column "value" to the unit in which it is shown."""
        return np.array([_unit(self.benchmark(place))[1] for place in range(len(self))])

    def benchmark(self, index: int) -> Benchmark:
        """Return the benchmark of a row; the benchmark of its latency if the row has both latency and speedup."""
        return self.series_keys.benchmarks[int(self.at("rank", index))]

    def subject(self, index: int) -> tuple[str, str, str, str, str]:
        """Return the suite, variant, case, cache state and quantity of a row, by which its threshold is looked up."""
        name = name_of(self.series_keys.series[self.at("rank", index)], self.benchmark(index))
        return name.suite, name.variant, name.case, name.l2, name.quantity

    @property
    def short_commits(self) -> list[str]:
        """The first eight digits of each row's commit."""
        return [self.commits[place].short for place in self.columns["commit"].tolist()]

    @cached_property
    def is_baseline(self) -> NDArray[np.bool_]:
        """For each row, whether its variant is itself the baseline, so that its speedup is always one."""
        baselines = zip(self.keys, self.columns["baseline"].tolist(), strict=True)
        return np.array([bool(baseline) and key.variant == baseline for key, baseline in baselines], dtype=bool)

    def reason(self, index: int) -> str:
        """Return why a row has no number; "" if no reason is known."""
        reason: str = self.at("reason", index)
        return reason or NO_NUMBER.get(STATES[self.at("state", index)], "")

    def number(self, name: str, index: int) -> float | None:
        """Return the number in a column of a row, such as "latency"; ``None`` if unknown."""
        number = float(self.at(name, index))
        return None if math.isnan(number) else number

    def _measured(self, part: Part, index: int) -> Measured | None:
        value, *ends = (self.number(name, index) for name in interval_names(part))
        return None if value is None else Measured(value, *ends)


def concatenated(tables: Sequence[RowTable]) -> RowTable:
    """Join one or more tables of the same machine into one table."""
    names = {name: values.dtype for table in tables for name, values in table.columns.items()}
    columns = {
        name: np.concatenate([table.columns.get(name, np.full(len(table), np.nan)) for table in tables]).astype(kind)
        for name, kind in names.items()
    }
    return replace(tables[0], columns=columns)


def interval_names(part: Part) -> tuple[str, str, str, str]:
    """Return the names of the columns that hold a number, the two ends of its interval, and its error."""
    return part, f"{part}_low", f"{part}_high", f"{part}_error"


def _part(quantity: str) -> Part:
    """Return the number from which a quantity is computed."""
    return "speedup" if quantity == "speedup" else "value" if quantity == VALUE else "latency"


def _unit(benchmark: Benchmark) -> tuple[str, float]:
    return SHOWN_AS.get(benchmark.unit, (benchmark.unit, 1.0))
