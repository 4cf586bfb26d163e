"""Find series that fail or are no longer measured, and silent machines.

These events raise alerts too, because nobody sees a regression of a series that is not measured. Many runs measure
only one family, and the other families have not stopped for that reason. So a commit counts for the families that were
measured at it. It counts for a family that ended if it measured at least half as many families as the last commits of
that family; if no such commit follows, ten commits of any kind count.
"""

from __future__ import annotations

import datetime
import itertools
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lockstep.alerts.analysis.machine_results import MachineResults
from lockstep.alerts.cause.found_change import Cause
from lockstep.alerts.model import Alert
from lockstep.history.model import STATES, Commit
from lockstep.history.snapshot import Results
from lockstep.record.quantity import PAIRED
from lockstep.record.series_name import SeriesName

#: Number of measured commits without a number after which a series counts as gone, if it had more numbers. A series
#: that fails is reported at its first failure.
PATIENCE = 3

#: Number of commits of any kind after which a family counts as gone, even if they measured few families.
_PARTIAL_PATIENCE = 10

_DAY_MS = 86_400_000

#: Milliseconds without a result after which a machine counts as silent.
_SILENT_MS = 7 * _DAY_MS

#: Milliseconds after which a silence is old: the machine is gone, and an alert that opens now would ask for nothing.
_OLD_SILENCE_MS = 60 * _DAY_MS

#: Number of names that a text lists.
_MOST_NAMES = 5

#: A change that is older than both limits is recorded without a report, because it is history when it is found.
OLD_COMMITS = 30
OLD_DAYS = 30

_FAILED, _ABSENT = STATES.index("failed"), STATES.index("na")

#: The parts of the name of a case, joined without a space: modules, class, benchmark or variant, case.
_Parts = tuple[str, ...]


@dataclass(frozen=True)
class Reports:
    """When a series reported, as positions among the machine's commits.

    Attributes:
        first, last: the oldest and the newest commit with an entry.
        last_number: the newest commit with a number.
        numbers: number of commits with a number.
        failing: whether the newest entry is a failure.
    """

    series: SeriesName
    first: int
    last: int
    last_number: int
    numbers: int
    failing: bool

    @property
    def parts(self) -> _Parts:
        """The parts of the name of the case. Its cache states and quantities share it, but each cost has its own."""
        first, *others = f"{self.series.suite}.{self.series.variant}".rstrip(".").split(".")
        case = f" {self.series.case} {self.series.cost}".rstrip()
        return (first, *(f".{other}" for other in others), *([case] if case else []))


def machine_reports(machine: MachineResults) -> Iterator[Reports]:
    """Yield the reports of each series that ever had a number. A ratio and its time count as one series."""
    for trend in machine.trends:
        name = machine.names[trend.series]
        numbers = np.flatnonzero((trend.state != _FAILED) & (trend.state != _ABSENT))
        if numbers.size and not (trend.benchmark.measured and name.quantity in PAIRED.values()):
            first, last, last_number = (int(trend.commit[at]) for at in (0, -1, numbers[-1]))
            yield Reports(name, first, last, last_number, numbers.size, bool(trend.state[-1] == _FAILED))


def freshness(
    machine: str, commits: Sequence[Commit], reports: Sequence[Reports], measured: Mapping[str, Collection[int]]
) -> Iterator[Alert]:
    """Yield an alert for each commit of a machine at which series failed or ended.

    Args:
        commits: the machine's commits, oldest first.
        measured: positions of the commits at which a series of the family was measured, by family.
    """
    counting = _counting(measured, len(commits))
    # What else is measured of a case reports that the case is missing, so its exact quantities need not.
    timed = {one.parts for one in reports if not one.series.exact}
    reports = [one for one in reports if not one.series.exact or one.parts not in timed]
    newest: dict[_Parts, int] = {}
    for one in reports:
        newest[one.parts] = max(newest.get(one.parts, -1), one.last_number)
    failing: dict[int, list[Reports]] = defaultdict(list)
    gone: dict[int, list[Reports]] = defaultdict(list)
    for one in reports:
        later = counting[one.series.family]
        fails = one.failing and _after(later, one.last) < PATIENCE
        last = one.last_number if fails else newest[one.parts]
        first = next(iter(later[bisect_right(later, last) :]), last)
        if fails:
            failing[first].append(one)
        elif one.numbers > PATIENCE and _after(later, last) >= PATIENCE:
            gone[first].append(one)
    for first in sorted(failing.keys() | gone.keys()):
        yield _alert(machine, commits, first, failing[first], gone[first], reports)


def _alert(
    machine: str,
    commits: Sequence[Commit],
    first: int,
    failing: Sequence[Reports],
    gone: Sequence[Reports],
    reports: Sequence[Reports],
) -> Alert:
    """Return the alert about what failed or ended at the commit ``first``."""
    last = max(one.last_number for one in (*failing, *gone))
    texts = []
    if failing:
        labels = sorted({one.series.label for one in failing})
        texts.append(f"{len(labels)} series {'fails' if len(labels) == 1 else 'fail'}: {_listed(labels)}")
    if gone:
        ended, begun = {one.parts for one in gone}, {one.parts for one in reports if last < one.first <= first}
        every, older = {one.parts for one in reports}, {one.parts for one in reports if one.first <= last}
        texts.append(f"there is no {_listed(_names(ended, every - ended))}")
        # What was renamed has as many cases as before.
        if len(begun - older) == len(ended):
            began = _listed(_names(begun - older, older))
            texts.append(f"{began} began there")
    text = "; ".join(texts)
    families = sorted({one.series.family for one in (*failing, *gone)})
    return Alert(
        "stopped" if failing else "vanished",
        machine,
        _shared(families),
        before=commits[last].hash,
        commits=(commits[first].hash,),
        cause=Cause("unexplained", text),
        since=commits[first].date,
        old=is_old(first, commits),
        text=text,
        failing=bool(failing),
    )


def _counting(measured: Mapping[str, Collection[int]], commits: int) -> dict[str, list[int]]:
    """Return the positions of the commits that count for each family, in ascending order."""
    families = Counter(position for positions in measured.values() for position in positions)
    counting = {}
    for family, positions in measured.items():
        own = sorted(positions)
        later = range(own[-1] + 1, commits)
        usual = max(families[position] for position in own[-PATIENCE:])
        full = [position for position in later if 2 * families[position] >= usual]
        few = len(full) < PATIENCE and len(later) >= _PARTIAL_PATIENCE
        counting[family] = [*own, *(later if few else full)]
    return counting


def _after(positions: Sequence[int], position: int) -> int:
    """Return how many of the ascending ``positions`` lie after ``position``."""
    return len(positions) - bisect_right(positions, position)


def _names(chosen: Iterable[_Parts], others: Iterable[_Parts]) -> list[str]:
    """Name cases in few words, sorted: a class or module to which no other case belongs by its own name."""
    taken = {parts[:number] for parts in others for number in range(1, len(parts) + 1)}
    names = set()
    for parts in chosen:
        number = next((n for n in range(1, len(parts)) if parts[:n] not in taken), len(parts))
        names.add(parts[:number])
    return sorted(map("".join, names))


def _shared(families: Sequence[str]) -> str:
    """Return the family, or the class or module that several families share; "" if they share none."""
    parts = [family.split(".") for family in families]
    return ".".join(same[0] for same in itertools.takewhile(lambda at: len(set(at)) == 1, zip(*parts, strict=False)))


def _listed(names: Sequence[str]) -> str:
    omitted = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + omitted


def silent_machines(
    results: Results, commits: Mapping[str, Sequence[Commit]], now: datetime.datetime
) -> tuple[list[Alert], frozenset[str]]:
    """Return the alerts of silent machines, and the dead machines: those that stopped while another continued.

    Environments and operating systems whose machine reported later raise no alert. Neither do machines that reported
    for less than a week: a continuous-integration service gives each of its runners a new name. If all machines stopped
    at about the same time, none is dead, because the results may be an old history.

    ``commits``: the commits of each analysed machine, oldest first.
    """
    of_folder: dict[str, list[int]] = defaultdict(list)
    last: dict[str, int] = {}
    for run in results.runs:
        if run.measured_at:
            of_folder[results.machines[run.machine].folder].append(run.measured_at)
            last[run.machine] = max(last.get(run.machine, 0), run.measured_at)
    silent = []
    for name, measured in commits.items():
        times = of_folder[results.machines[name].folder]
        ended = name not in last or last[name] < max(times) or max(times) - min(times) < _SILENT_MS
        quiet = now.timestamp() * 1000 - last.get(name, 0)
        if measured and not ended and quiet >= _SILENT_MS:
            alert = silence(name, measured[-1].hash, last[name])
            silent.append(replace(alert, old=quiet >= _OLD_SILENCE_MS))
    newest = max(last.values(), default=0)
    return silent, frozenset(machine for machine, at in last.items() if newest - at >= _SILENT_MS)


def silence(machine: str, newest: str, measured_at: int) -> Alert:
    """Return the alert of a silent machine, given its newest commit and the time of its newest measurement."""
    # The text does not state the number of days, which would change every day.
    day = datetime.datetime.fromtimestamp(measured_at / 1000, datetime.UTC).date().isoformat()
    text = f"{machine} has reported nothing since {day}"
    return Alert("silent", machine, "", newest, (), Cause("unexplained", text), text=text)


def is_old(position: int, commits: Sequence[Commit]) -> bool:
    """Return whether a commit is too far behind the machine's newest commit for its changes to be reported."""
    behind = len(commits) - 1 - position
    return behind > OLD_COMMITS and commits[-1].date - commits[position].date > OLD_DAYS * _DAY_MS
