"""Run every method on every series, and format the outcomes as a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from rich.table import Table

from lockstep.detect import continue_many
from lockstep.processes.end_with_parent import pool
from lockstep.record.console import plain_table
from tools.evaluate.rivals import RIVALS, Rival, oracle
from tools.evaluate.samples import Floats, Sample, on_scale
from tools.evaluate.scoring import SCORES, Alarm, Outcome, Told, judge, total

#: An online alarm within this many commits of an earlier alarm is the same alarm, reported for another commit.
_SAME = 5
#: Longer series are not replayed by other methods, because a replay would take hours.
_LONG = 200

#: Title of the row of the kinds that are scored together.
TOGETHER = "all but 0.5 %"

#: The outcomes by kind of series and by method.
Board = Mapping[str, Mapping[str, Sequence[Outcome]]]


def fill(
    samples: Sequence[Sample], *, rivals: Sequence[Rival] = RIVALS, processes: int = 1, online: bool = True
) -> Board:
    """Run our detector and other methods (``rivals``) on all samples, the oracle where it can tell, and score them.

    Other methods are replayed commit by commit if ``online``.
    """
    board: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    found = continue_many([sample.trend for sample in samples], [None] * len(samples), processes=processes)
    for sample, (analysis, state) in zip(samples, found, strict=True):
        changes = [Told(change.index, change.size, change.low, change.high) for change in analysis.changes]
        # Each change as it was first reported online, also if later points contradict it.
        alarms = [Alarm(shift.reported_as, shift.reported_at) for shift in state.shifts]
        board[sample.kind]["lockstep"].append(judge(sample, changes, alarms))
    for rival in rivals:
        count, jobs = Counter[str](), list[tuple[Sample, bool]]()
        for sample in samples:
            replayed = online and count[sample.kind] < rival.replays and len(sample.trend) <= _LONG
            count[sample.kind] += replayed
            jobs.append((sample, replayed))
        with pool(processes) as workers:
            work = partial(_run, rival)
            done = workers.map(work, jobs, chunksize=8) if processes > 1 else map(work, jobs)
            for sample, outcome in zip(samples, done, strict=True):
                board[sample.kind][rival.name].append(outcome)
    for sample in samples:
        place = oracle(sample)
        if place is not None:
            board[sample.kind]["oracle"].append(judge(sample, [Told(place, sample.sizes[0])], None))
    return board


def between(values: Floats, places: Sequence[int]) -> list[Told]:
    """Return the changes at ``places``, each with the distance of the medians of its neighbouring segments."""
    medians = [np.median(part) for part in np.split(on_scale(values), places)]
    return [
        Told(place, float(after - before)) for place, (before, after) in zip(places, pairwise(medians), strict=True)
    ]


def replay(rival: Rival, values: Floats) -> list[Alarm]:
    """Run a method again after every commit, and return its alarms. An alarm that later vanishes counts too."""
    raised: list[Alarm] = []
    for stop in range(2, values.size + 1):
        for index in rival.detect(values[:stop]):
            if all(abs(index - alarm.index) > _SAME for alarm in raised):
                raised.append(Alarm(index, stop - 1))
    return raised


def _run(rival: Rival, job: tuple[Sample, bool]) -> Outcome:
    sample, replayed = job
    measured = np.flatnonzero(np.isfinite(sample.trend.values))
    values = sample.trend.values[measured]
    changes = [replace(one, index=int(measured[one.index])) for one in between(values, rival.detect(values))]
    if not replayed:
        return judge(sample, changes, None)
    alarms = [Alarm(int(measured[one.index]), int(measured[one.at])) for one in replay(rival, values)]
    return judge(sample, changes, alarms)


def board_table(board: Board, together: Sequence[str] = ()) -> Table:
    """Return a table with the scores of each method on the series of each kind.

    Args:
        together: kinds of which the last row has the scores; () for none.
    """
    table = plain_table(("series", "method"), (*SCORES, "steps", "series"))
    groups = {kind: [kind] for kind in board} | ({TOGETHER: together} if together else {})
    for title, kinds in groups.items():
        for method in board[kinds[-1]]:
            sums = total([outcome for kind in kinds for outcome in board[kind].get(method, ())])
            scores = (score(sums) for score in SCORES.values())
            texts = ("" if value is None else f"{value:.2f}" for value in scores)
            table.add_row(title, method, *texts, str(sums.steps), str(sums.series))
            title = ""
    return table
