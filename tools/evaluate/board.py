"""Run every method on every series, and format the outcomes as tables."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from rich.table import Table

from lockstep.detect import Analysis, continue_many
from lockstep.detect.series_state import SeriesState
from lockstep.processes.end_with_parent import pool
from tools.evaluate.rivals import RIVALS, Rival, oracle
from tools.evaluate.samples import Floats, Sample, on_scale
from tools.evaluate.scoring import Alarm, Outcome, Score, Told, judge, total

OURS, ORACLE = "lockstep", "oracle"
#: Rows (kinds of standard series) whose precision, recall and F1 are reported together. The smallest size is separate.
STANDARD = ("no step", "1 %", "2 %", "3 %", "5 %", "10 %")
SMALLEST = "0.5 %"

#: An online alarm within this many commits of an earlier alarm is the same alarm, reported for another commit.
_SAME = 5
#: Another method replays as many series of each kind as it analyses in this many milliseconds.
_BUDGET = 60.0
#: Longer series are not replayed by other methods, because a replay would take hours.
LONG = 200


@dataclass(frozen=True)
class Board:
    """The outcomes of all methods: by method, then by row of the tables (the kind of series).

    Attributes:
        seconds: the CPU time of our detector.
    """

    outcomes: dict[str, dict[str, list[Outcome]]]
    seconds: float

    def score(self, method: str, rows: Iterable[str]) -> Score:
        """Return the score of one method over the series of all these rows."""
        return total([outcome for row in rows for outcome in self.outcomes.get(method, {}).get(row, ())])

    @property
    def rows(self) -> list[str]:
        """Return the rows of the tables (the kinds of series), in the order of the samples."""
        return list(self.outcomes[OURS])

    def share(self, method: str, row: str) -> float | None:
        """Return a method's recall as a share of the oracle's; ``None`` if either has no recall."""
        recall, best = self.score(method, [row]).recall, self.score(ORACLE, [row]).recall
        return recall / best if recall is not None and best else None


def fill(
    samples: Sequence[Sample], *, rivals: Sequence[Rival] = RIVALS, processes: int = 1, online: bool = True
) -> Board:
    """Run our detector and other methods (``rivals``) on all samples, the oracle where it can tell, and score them.

    Other methods are replayed commit by commit if ``online``.
    """
    outcomes: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    began = _cpu_seconds()
    found = continue_many([sample.trend for sample in samples], [None] * len(samples), processes=processes)
    seconds = _cpu_seconds() - began
    for sample, (analysis, state) in zip(samples, found, strict=True):
        outcomes[OURS][sample.kind].append(_outcome(sample, told(analysis), alarms(state)))
    for rival in rivals:
        jobs = list(_rival_jobs(rival, samples, online))
        with pool(processes) as workers:
            work = partial(_run_rival, rival)
            for outcome in workers.map(work, jobs, chunksize=8) if processes > 1 else map(work, jobs):
                outcomes[rival.name][outcome.kind].append(outcome)
    for sample in samples:
        place = oracle(sample)
        if place is not None:
            outcomes[ORACLE][sample.kind].append(_outcome(sample, [Told(place, sample.sizes[0])], None))
    return Board({method: dict(rows) for method, rows in outcomes.items()}, seconds)


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def told(analysis: Analysis) -> list[Told]:
    """Return the final changes of our detector."""
    return [Told(change.index, change.size, change.low, change.high) for change in analysis.changes]


def between(values: Floats, places: Sequence[int]) -> list[Told]:
    """Return the changes at ``places``, each with the distance of the medians of its neighbouring segments."""
    medians = [np.median(part) for part in np.split(on_scale(values), places)]
    return [
        Told(place, float(after - before))
        for place, (before, after) in zip(places, itertools.pairwise(medians), strict=True)
    ]


def alarms(state: SeriesState) -> list[Alarm]:
    """Return each change of our detector as it was first reported online, also if later points contradict it."""
    shifts = sorted(state.shifts, key=lambda shift: shift.reported_at)
    return [Alarm(shift.reported_as, shift.reported_at) for shift in shifts]


def replay(rival: Rival, values: Floats) -> list[Alarm]:
    """Run a method again after every commit, and return its alarms. An alarm that later vanishes counts too."""
    raised: list[Alarm] = []
    for stop in range(2, values.size + 1):
        for index in rival.detect(values[:stop]):
            if all(abs(index - alarm.index) > _SAME for alarm in raised):
                raised.append(Alarm(index, stop - 1))
    return raised


def _rival_jobs(rival: Rival, samples: Sequence[Sample], online: bool) -> Iterable[tuple[Sample, bool]]:
    replayed: dict[str, int] = defaultdict(int)
    for sample in samples:
        length = len(sample.trend)
        limit = _BUDGET / rival.milliseconds if rival.milliseconds else np.inf
        here = online and replayed[sample.kind] < limit and length <= LONG
        replayed[sample.kind] += here
        # Only the oracle uses the density; other processes do not need it.
        yield replace(sample, density=None), here


def _run_rival(rival: Rival, job: tuple[Sample, bool]) -> Outcome:
    sample, online = job
    measured = np.flatnonzero(np.isfinite(sample.trend.values))
    values = sample.trend.values[measured]
    rung = [Alarm(int(measured[one.index]), int(measured[one.at])) for one in replay(rival, values)] if online else None
    changes = [replace(change, index=int(measured[change.index])) for change in between(values, rival.detect(values))]
    return _outcome(sample, changes, rung)


def _outcome(sample: Sample, changes: Sequence[Told], rung: Sequence[Alarm] | None) -> Outcome:
    return judge(sample.kind, len(sample.trend), sample.steps, changes, rung, sample.sizes, sample.slacks)


def standard_table(board: Board) -> Table:
    """Return a table of the standard series, a line for each method: final changes, recall by size, online alarms."""
    table = _plain_table("Standard series: 1 % noise, 2 % outliers, 0.3 % drift; recall by size (and of the oracle's)")
    for name in ("method", "precision", "recall", "F1", SMALLEST, *STANDARD[1:]):
        table.add_column(name, no_wrap=True, justify="left" if name == "method" else "right")
    for name in ("false /1000", "no step", "misplaced", "delay at 3 %", "within 20"):
        table.add_column(name, no_wrap=True, justify="right")
    for method in board.outcomes:
        overall, three = board.score(method, STANDARD), board.score(method, ["3 %"])
        sizes = [_recall(board, method, size) for size in (SMALLEST, *STANDARD[1:])]
        quiet = board.score(method, ["no step"])
        table.add_row(
            method,
            *map(_number, (overall.precision, overall.recall, overall.f1)),
            *sizes,
            *(_number(value) for value in (overall.false, quiet.false, overall.misplaced)),
            _delay(three.delay),
            _number(three.within),
        )
    return table


#: Columns of what a method reports of the true steps.
_TOLD = ("± 2", "± 1", "sign", "size", "interval", "size off by")


def _told(score: Score) -> list[str]:
    error = "" if score.error is None else f"{score.error:.1%}"
    return [*map(_number, (score.recall, score.near, score.signed, score.sized, score.held)), error]


def shape_table(board: Board) -> Table:
    """Return a table of what each method reports of the steps in the series of each kind."""
    table = _plain_table("Shares of the true steps: within ± 2 commits, ± 1; sign; size within 10 %, interval")
    for name in ("series", "method", *_TOLD, "precision", "false /1000", "in the end", "delay", "n", "replayed"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("series", "method") else "right")
    for row in board.rows:
        for method in board.outcomes:
            score = board.score(method, [row])
            if not score.series:
                continue
            table.add_row(
                row if method == OURS else "",
                method,
                *_told(score),
                *map(_number, (score.precision, score.false, score.wrong)),
                _delay(score.delay),
                str(score.series),
                str(score.replayed),
            )
    return table


def tree_table(board: Board) -> Table:
    """Return a table of what each method reports of the clear steps in each tree of recorded series."""
    table = _plain_table(
        "Shares of the clear steps: within ± 2 points, ± 1; with the right sign; size within 10 %, interval"
    )
    for name in ("tree", "method", *_TOLD, "clear steps", "series", "changes /1000"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("tree", "method") else "right")
    for row in board.rows:
        for method in board.outcomes:
            score = board.score(method, [row])
            counts = str(score.steps), str(score.series), _number(score.claims)
            table.add_row(row if method == OURS else "", method, *_told(score), *counts)
    return table


def _plain_table(title: str) -> Table:
    """Return an empty table in the style of the scores."""
    return Table(title=title, title_justify="left", header_style="bold", show_edge=False, pad_edge=False)


def _recall(board: Board, method: str, row: str) -> str:
    recall = board.score(method, [row]).recall
    share = board.share(method, row)
    if recall is None or method == ORACLE or share is None:
        return _number(recall)
    return f"{recall:.2f} ({share:.0%})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _delay(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:g}" if np.isfinite(value) else "never"
