"""The state of a machine, from which readers judge its numbers: last report, clocks, noise, controls and toolchain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.gpu.nvml import THROTTLING
from lockstep.history.model import STATES, Commit, Floats, Run, Series
from lockstep.history.row_keys import PARTS
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered

#: Maximum points of a control's trend.
TREND = 120


@dataclass(frozen=True)
class Turn:
    """A commit from which on the machine's toolchain differs. ``changes`` has name, old and new value of each part."""

    commit: Commit
    changes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Upkeep:
    """The state of a machine apart from its kernels' numbers.

    Attributes:
        machine: the machine's name.
        run: the machine's newest run.
        commit: the commit of the newest run.
        commits, series: the machine's number of commits and series.
        failed: number of series that failed at the newest commit.
        reported_at: time of the newest number of any commit, ms since 1970; 0 if unknown.
        points: number of points of the newest commit that state clocks.
        throttled: number of these points that were throttled.
        reasons: number of points by reason for throttling.
        sm_mhz: the median clock of these points; ``None`` if unknown.
        noise: median standard error of the logarithm of the latencies and plain values at the newest commit (0.001 is
            0.1 %); ``None`` if unknown.
        mde: median of the smallest effects that one run can detect, as a share; ``None`` if unknown.
        controls: for each control, pairs of the commit's index and the control's rate (calls per second) at the last
            commits, oldest first.
        turns: the changes of the toolchain, the newest first.
    """

    machine: str
    run: Run
    commit: Commit
    commits: int
    series: int
    failed: int
    reported_at: int
    points: int
    throttled: int
    reasons: tuple[tuple[str, int], ...]
    sm_mhz: float | None
    noise: float | None
    mde: float | None
    controls: Mapping[str, tuple[tuple[int, float], ...]]
    turns: tuple[Turn, ...]


@remembered
def upkeep(results: Results, machine: str) -> Upkeep:
    """Return the state of a known machine, computed once per snapshot of the results."""
    runs, commits = results.runs_of(machine), results.commits(machine)
    index = results.keys(machine)
    points = results.columns(machine, ("sm_mhz", "clock_reasons", "mde"), commits[-1].hash)
    # The overview shows a series as one row, although latency and speedup are two points.
    failed = np.unique(index.key_at[points["rank"][points["state"] == STATES.index("failed")]])
    clocked = np.flatnonzero(points["sm_mhz"] > 0)
    texts = (text.split("\n") for text in points["clock_reasons"][clocked].tolist())
    reasons = [[reason for reason in some if reason in THROTTLING] for some in texts]
    error, mde = points["error"], points["mde"]
    ratio = index.part_at[points["rank"]] == PARTS.index("speedup")
    return Upkeep(
        machine=machine,
        run=runs[-1],
        commit=commits[-1],
        commits=len(commits),
        series=len(index.keys),
        failed=len(failed),
        reported_at=max(run.measured_at for run in runs),
        points=len(clocked),
        throttled=sum(bool(one) for one in reasons),
        reasons=tuple(Counter(reason for one in reasons for reason in one).most_common()),
        sm_mhz=_median(points["sm_mhz"][clocked]),
        noise=_median(error[(error > 0) & ~ratio & ~_costs(results, [index.series[rank] for rank in points["rank"]])]),
        mde=_median(mde[mde > 0]),
        controls=_controls(runs),
        turns=_turns(runs, commits),
    )


def _costs(results: Results, series: Sequence[Series]) -> NDArray[np.bool_]:
    """Return a mask of the series whose quantity is a cost besides the latency, such as energy or compile time."""
    return np.array([results.benchmarks[one.benchmark].cost for one in series], dtype=bool)


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def _controls(runs: tuple[Run, ...]) -> dict[str, tuple[tuple[int, float], ...]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for at, run in list(enumerate(runs))[-TREND:]:
        for name, control in run.controls.items():
            if control.seconds:
                found.setdefault(name, []).append((at, 1 / control.seconds))
    return {name: tuple(values) for name, values in sorted(found.items())}


def _turns(runs: tuple[Run, ...], commits: tuple[Commit, ...]) -> tuple[Turn, ...]:
    turns = []
    for at in range(1, len(runs)):
        before, after = (_facts(run) for run in runs[at - 1 : at + 1])
        if before == after:
            continue
        names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        turns.append(Turn(commits[at], tuple((name, before.get(name, ""), after.get(name, "")) for name in names)))
    return tuple(reversed(turns))


def _facts(run: Run) -> dict[str, str]:
    settings = {"clocks": run.clock_state, "protocol": str(run.protocol) if run.protocol else ""}
    return {name: value for name, value in {**run.toolchain, **settings}.items() if value}
