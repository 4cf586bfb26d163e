"""Give the status of every series of a machine: its newest row, and how it changed since an earlier commit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from lockstep.alerts.analysis.latest_findings import MachineFindings
from lockstep.alerts.analysis.machine_results import series_by_name
from lockstep.alerts.model import FoundChange
from lockstep.compare.difference import Differences, Verdicts, compare_rows
from lockstep.compare.missing_points import not_measured, not_new
from lockstep.compare.read_rows import newest_rows, rows_at
from lockstep.compare.row_table import RowTable
from lockstep.compare.verdict import CHANGED, LOUDEST, OF_SENSE, Verdict
from lockstep.history.model import STATES, Commit, Floats, SeriesKey
from lockstep.history.row_keys import key_of
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.record.series_name import SeriesName
from lockstep.suite.thresholds import Thresholds

_WEEK_MS = 7 * 86_400_000

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Statuses:
    """The newest row of each series of a machine, and how the series changed since an earlier commit, as columns.

    Attributes:
        differences: the newest rows, and their differences from the series' rows at the earlier commit.
        changes: the changes after the earlier commit that the detector reports, oldest first, by the index of the
            series.
        stale: whether the series is "not measured", or was not measured at a later commit at which its suite was. False
            if it is absent.
        news: whether the series fails now but did not fail at the earlier commit.
        noise: run-to-run standard deviation of a point's logarithm; NaN if unknown.
        beyond_noise: whether noise does not explain the change: the detector found it, perhaps in the newest two points
            alone, or it is of an exact quantity.
        absent: whether the machine can measure the series neither now nor at the earlier commit.
        worse: log of the factor by which the series became worse, by the detector's findings if there are any,
            otherwise by the difference; NaN if unknown, or if the findings are differences in the unit.
        verdict: the codes of the verdicts, see ``LOUDEST``. A time is "slower" or "faster" only if the detector reports
            it, because some of a thousand plain differences are outliers. An exact quantity needs no detector.
    """

    differences: Differences
    changes: Mapping[int, tuple[FoundChange, ...]]
    stale: Mask
    news: Mask
    noise: Floats
    beyond_noise: Mask
    absent: Mask
    worse: Floats
    verdict: Verdicts

    def __len__(self) -> int:
        return len(self.worse)

    @property
    def rows(self) -> RowTable:
        """The newest rows."""
        return self.differences.rows

    @property
    def moved(self) -> Floats:
        """The logs of the factors by which the numbers themselves changed, see ``Differences``; NaN if unknown."""
        return self.differences.of_number(self.worse)

    def select(self, places: NDArray[np.intp]) -> Statuses:
        """Return the statuses at these indices."""
        arrays = {name: column[places] for name, column in vars(self).items() if isinstance(column, np.ndarray)}
        changes = {at: self.changes[place] for at, place in enumerate(places.tolist()) if place in self.changes}
        return Statuses(self.differences.select(places), changes, **arrays)

    def are(self, verdict: Verdict) -> Mask:
        """Return a mask of the series that have this verdict."""
        mask: Mask = self.verdict == LOUDEST.index(verdict)
        return mask


def reference(results: Results, machine: str, since: str, visit: int = 0) -> Commit | None:
    """Return the commit with which the newest results of a machine are compared; ``None`` for an unknown machine.

    That is the commit with this hash, or the newest that was measured by this time; else the machine's first commit.

    Args:
        since: "all" for the machine's first commit, the hash of a commit, a date such as 2026-11-20 (UTC) for the time
            before it, "visit" for the time of the reader's last visit, or "7d" for the time before the last seven days
            of results.
        visit: the time of the last visit, ms since 1970; 0 if there was none.
    """
    commits = results.commits(machine)
    if not commits or since == "all":
        return commits[0] if commits else None
    # "7d" always means seven days, although one hash in 256 begins with it.
    known = next((commit for commit in commits if since and commit.hash.startswith(since)), None)
    if known and since not in ("visit", "7d"):
        return known
    measured = [run.measured_at or run.date for run in results.runs_of(machine)]
    until = visit if since == "visit" and visit else start_of(since) or max(measured) - _WEEK_MS
    before = [commit for commit, at in zip(commits, measured, strict=True) if at <= until]
    return before[-1] if before else commits[0]


def start_of(date: str) -> int | None:
    """Return the time at which a date such as 2026-11-20 begins (UTC), ms since 1970; ``None`` for another text."""
    try:
        return int(datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return None


@remembered
def keys_by_name(results: Results, machine: str) -> Mapping[SeriesName, SeriesKey]:
    """Return the key of each series, by the name that alerts use for the series."""
    return {
        name: key_of(series, results.benchmarks[series.benchmark])
        for name, series in series_by_name(results, machine).items()
    }


@remembered
def names_by_key(results: Results, machine: str) -> Mapping[SeriesKey, Sequence[SeriesName]]:
    """Return the names that alerts use for the latency and the speedup of each key."""
    names: dict[SeriesKey, list[SeriesName]] = defaultdict(list)
    for name, key in keys_by_name(results, machine).items():
        names[key].append(name)
    return dict(names)


def reported_changes(results: Results, key: SeriesKey, findings: MachineFindings | None) -> tuple[FoundChange, ...]:
    """Return the changes of a series that are reported, oldest first."""
    if findings is None or not findings.changed:
        return ()
    changes = [change for name in names_by_key(results, key.machine).get(key, ()) for change in findings.reported(name)]
    return tuple(sorted(changes, key=lambda change: change.last))


def checks_of(key: SeriesKey, findings: MachineFindings | None) -> tuple[FoundChange, ...]:
    """Return the reported changes in the correctness checks of a variant and case, oldest first.

    All cache states share a check."""
    if findings is None:
        return ()
    names = (name for name in findings.changed if name.checked and (name.suite, name.variant, name.case) == key[1:4])
    return tuple(
        sorted((change for name in names for change in findings.reported(name)), key=lambda change: change.last)
    )


@remembered
def noise_by_key(results: Results, machine: str, findings: MachineFindings | None) -> Mapping[SeriesKey, float]:
    """Return the run-to-run noise (standard deviation of the logarithm) of each series for which it is known."""
    noise = {name: scale for name, scale in findings.noise.items() if math.isfinite(scale)} if findings else {}
    keys = keys_by_name(results, machine) if noise else {}
    return {keys[name]: scale for name, scale in noise.items() if name in keys}


@remembered
def statuses(
    results: Results, machine: str, since: Commit | None, findings: MachineFindings | None, thresholds: Thresholds
) -> Statuses:
    """Return the status of every series of a machine, in the order of the store.

    Args:
        since: the earlier commit, see ``reference``. ``None`` for an unknown machine, which has no series.
        findings: the detector's findings on the machine; ``None`` while the detector still runs.
    """
    rows = newest_rows(results, machine)
    before = rows_at(results, machine, since.hash) if since else rows
    first = results.place_of(machine, since.hash) if since else 0
    noise = noise_by_key(results, machine, findings)
    differences = compare_rows(before, before.place[rows.columns["key"]], rows, thresholds, noise)
    differences = not_measured(differences, first, len(results.commits(machine)) - 1)
    differences = not_new(differences, results, machine, first)
    scale = np.array([noise.get(key, math.nan) for key in rows.keys]) if noise else np.full(len(rows), np.nan)
    later = [change for change in findings.changes if change.last > first] if findings else []
    # Make the names only if there are such changes, because they are made for all series of a machine.
    keys = keys_by_name(results, machine) if later else {}
    changes: dict[int, list[FoundChange]] = defaultdict(list)
    unconfirmed = np.zeros(len(rows), dtype=bool)
    for change in sorted(later, key=lambda change: change.last):
        place = rows.find(keys[change.series]) if change.series in keys else -1
        if place >= 0 and change.suppressed == "unconfirmed":
            unconfirmed[place] = True
        elif place >= 0 and not change.suppressed:
            changes[place].append(change)
    return _statuses(differences, {place: tuple(found) for place, found in changes.items()}, scale, unconfirmed)


def _statuses(
    differences: Differences, changes: Mapping[int, tuple[FoundChange, ...]], noise: Floats, unconfirmed: Mask
) -> Statuses:
    rows, before, earlier = differences.rows, differences.before, differences.earlier
    state = rows.columns["state"]
    measured_before = earlier >= 0
    was = np.where(measured_before, before.columns["state"][earlier], -1) if len(before) else np.full(len(rows), -1)
    failed, absent = STATES.index("failed"), STATES.index("na")
    code = {verdict: LOUDEST.index(verdict) for verdict in LOUDEST}
    bare = differences.verdict
    suites = rows.series_keys.suite[rows.columns["key"]]
    newest = np.full(int(suites.max(initial=-1)) + 1, -1)
    np.maximum.at(newest, suites, rows.columns["commit"])
    known = np.zeros(len(rows), dtype=bool)
    worse = differences.worse.copy()
    found = bare.copy()
    # An exact quantity needs no detector, because any difference is a change.
    exact, changed = rows.exact, np.isin(bare, [code[verdict] for verdict in CHANGED])
    for place, row_changes in changes.items():
        if not exact[place]:
            known[place] = True
            total = replace(row_changes[-1], size=math.fsum(change.size for change in row_changes))
            worse[place] = total.size if total.measure == "ratio" else math.nan
            found[place] = code[OF_SENSE[total.sense]]
    lacking = (state == absent) & ~(measured_before & (was != absent))
    moved = bare == code["baseline moved"]
    verdict = np.where(changed & ~exact, code["unsure"], bare)
    verdict = np.where(known & ~moved, found, verdict)
    return Statuses(
        differences=differences,
        changes=changes,
        stale=~lacking & ((rows.columns["commit"] < newest[suites]) | (bare == code["not measured"])),
        news=(state == failed) & (was != failed),
        noise=noise,
        beyond_noise=~moved & (known | (changed & (unconfirmed | exact))),
        absent=lacking,
        worse=worse,
        verdict=np.where(state == failed, code["failed"], verdict).astype(np.uint8),
    )
