"""Turn the detector's changes into steps, which add the data that may explain a change.

These data are the facts before and after the change, the commits in between, and the moves of other times.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from lockstep.alerts.analysis.followed_series import Followed
from lockstep.alerts.analysis.machine_results import MachineResults, series_by_name
from lockstep.alerts.analysis.points_beside import WINDOW, few_and_unclear, moves_between, recent_loss
from lockstep.alerts.cause.change_facts import Facts, GpuMove, Move, Step
from lockstep.alerts.cause.code_evidence import code_of
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.cause.found_change import FoundChange
from lockstep.detect import Change
from lockstep.history.hex_digits import packed, unpacked
from lockstep.history.model import Control, Floats, Point, Run, Series, Trend, gpu_moves
from lockstep.history.snapshot import Results
from lockstep.record.script_facts import script_digest, script_packages
from lockstep.record.series_name import BEST, SeriesName

#: Host facts (``lockstep.record.provenance.host_facts``) whose change means another machine or another protocol.
_MACHINE = ("gpu", "gpu_uuid", "vbios", "power_limit_w", "capability", "sm_count", "cpu", "os")
_PROTOCOL = ("tf32_matmul", "bf16_reduced_precision_reduction", "fp16_reduced_precision_reduction", "cublas_workspace")

#: Facts about a machine that asv itself records.
_ASV_MACHINE = ("arch", "cpu", "gpu", "num_cpu", "os", "ram")


class StepBuilder:
    """Builds the steps of one machine."""

    def __init__(self, machine: MachineResults, ranges: Ranges) -> None:
        self._results = machine.results
        self._machine = machine.name
        self._ranges = ranges
        self._commits = machine.commits
        self._digits = np.array([packed(commit.hash) for commit in machine.commits], dtype=np.int64)
        self._at = cache(self._points)
        self._works = cache(self._works_at)
        self._shared: dict[Hashable, Facts] = {}

    def step(self, followed: Followed, change: Change, start: int, stop: int) -> Step:
        """Return a change of a series as a step, with the data that may explain the change.

        Args:
            start: the first point at the level before the change.
            stop: the first point that may be at the level after the next change.
        """
        trend = followed.trend
        # The first point has no level before it, so it cannot begin a new level.
        first = max(change.earliest, 1)
        levels = slice(min(start, first - 1), first), slice(change.latest, max(stop, change.latest + 1))
        (good, before_like), (last, after_like) = self._ends(followed, *levels)
        host = self._results.runs[int(trend.run[change.latest])].host
        ranges = self._ranges.of_packages(script_packages(host, trend.benchmark.suite))
        commit_range = ranges.between(self._commits[good].hash, self._commits[last].hash)
        measured = tuple(commit.hash for commit in self._commits[good + 1 : last + 1])
        between = measured if commit_range.unknown else commit_range.commits
        before, after = slice(max(change.index - WINDOW, 0), change.index), slice(change.index, change.index + WINDOW)
        old, new = _numbers_of(followed, change, trend.value[before], trend.value[after])
        better = followed.better
        worse = -1.0 if better == "higher" else 1.0
        low, high = sorted((worse * change.low, worse * change.high))
        after_facts = self._facts(followed, change.index)
        best = _move(followed.best, before, after)
        found = FoundChange(
            series=followed.name,
            reported_at=self._commits[int(trend.commit[change.reported_at])].hash,
            size=worse * change.size,
            low=low,
            high=high,
            confidence=change.confidence,
            confirmed=change.confirmed,
            left=worse * change.left,
            before=self._commits[good].hash,
            after=between[-1] if between else "",
            old=old,
            new=new,
            better=better,
            measure=change.measure,
            recent=recent_loss(followed, change, worse),
            noise=followed.noise if math.isfinite(followed.noise) else None,
            clock=self._results.runs[int(trend.run[change.index])].clock_state,
            flips=not followed.exact and moves_between(followed, change),
            few=not followed.exact and few_and_unclear(followed, change, start),
            copied=_copied(followed.copies, trend.commit[before.start], trend.commit[after][-1]),
            before_like=before_like,
            after_like=after_like,
            version=followed.version,
            first=min(max(int(trend.commit[first]), good + 1), last),
            last=last,
            commit=after_facts.commit,
            between=between,
            unknown=commit_range.unknown,
            best_moved=worse * best.log if best else None,
            best_takes=self._taken(trend.series, after_facts.commit) if best else "",
        )
        return Step(
            found,
            # The toolchain may have changed anywhere in the range.
            before=replace(
                self._facts(followed, change.index - 1), toolchain=self._facts(followed, first - 1).toolchain
            ),
            after=replace(after_facts, toolchain=self._facts(followed, change.latest).toolchain),
            touched=commit_range.touched,
            own=_move(followed.own, before, after),
            baseline=_move(followed.baseline, before, after),
            controls=self._controls(followed, before, after),
            gpu_move=None if followed.exact else _gpu_move(trend, slice(first - 1, change.latest + 1), worse),
        )

    def _ends(self, followed: Followed, before: slice, after: slice) -> tuple[tuple[int, str], tuple[int, str]]:
        """Return the last commit known at the level before a change, and the first one at the level after it.

        Each comes with the measured commit whose work it has, or with "" if it was measured itself.

        Args:
            before, after: the points at the levels.
        """
        trend, copies = followed.trend, followed.copies
        good, last = (int(trend.commit[before.stop - 1]), ""), (int(trend.commit[after.start]), "")
        if copies is None:
            return good, last
        within = (copies.commit > good[0]) & (copies.commit < last[0])
        known = [
            [
                (int(copies.commit[at]), self._results.commit_of(int(copies.same_work_as[at])))
                for at in np.flatnonzero(within & np.isin(copies.same_work_as, self._digits[trend.commit[level]]))
            ]
            for level in (before, after)
        ]
        good = max(known[0], default=good)
        return good, min((end for end in known[1] if end > good), default=last)

    def _facts(self, followed: Followed, index: int) -> Facts:
        trend = followed.trend
        commit = self._commits[int(trend.commit[index])].hash
        run = self._results.runs[int(trend.run[index])]
        version = self._results.versions[int(trend.version[index])]
        lockstep_series = trend.series if trend.benchmark.ours else None
        gpu = int(trend.gpu[index])
        facts_key = (int(trend.run[index]), version, gpu, trend.benchmark.suite, lockstep_series)
        # Thousands of changes have the same facts and share one object.
        if facts_key not in self._shared:
            self._shared[facts_key] = Facts(
                commit=commit,
                version=version,
                protocol=_protocol(run, trend.benchmark.suite),
                toolchain={**run.toolchain, **({} if run.host else {"environment": run.environment})},
                # A run may have measured its series on several GPUs.
                machine=_hardware(run) | ({"gpu_uuid": unpacked(gpu)[:8]} if gpu else {}),
                **(self._measured(lockstep_series, commit) if lockstep_series else {}),
            )
        return self._shared[facts_key]

    def _measured(self, series: Series, commit: str) -> dict[str, Any]:
        """Return machine code, work and clock of the series at a commit.

        Code and work of a ratio include the baseline's, because they affect the ratio as well.
        """
        if (point := self._at(commit).get(series)) is None:
            return {}
        code, work, clock = code_of(point.code), point.work, {"sm_mhz": point.sm_mhz}
        if not (point.baseline and self._results.benchmarks[series.benchmark].is_ratio):
            return clock | {"code": code, "work": work}
        baseline = self._at(commit).get(_variant(series, point.baseline))
        if code:
            base = (code_of(baseline.code) if baseline else None) or {}
            hosts = code.get("host"), base.get("host")
            kernels = [kernel for part in (code, base) for kernel in part.get("kernels") or ()]
            code = {"kernels": kernels, "host": f"{hosts[0]} {hosts[1]}" if all(hosts) else ""}
        return clock | {"code": code, "work": f"{work} {baseline.work}" if work and baseline and baseline.work else ""}

    def _points(self, commit: str) -> dict[Series, Point]:
        return {point.series: point for point in self._results.at(commit, self._machine)}

    def _taken(self, series: Series, commit: str) -> str:
        """Return another variant whose work for the GPU equals that of ``best`` at a commit; "" if unknown."""
        works = self._works(commit).get(_variant(series, BEST), {})
        same = [name for name, work in works.items() if work == works.get(BEST)]
        return next((name for name in same if name != BEST and series.axis("variant") not in same), "")

    def _works_at(self, commit: str) -> Mapping[Series, Mapping[str, str]]:
        works: dict[Series, dict[str, str]] = defaultdict(dict)
        for series, point in self._at(commit).items():
            if point.work:
                works[_variant(series, BEST)][series.axis("variant")] = point.work
        return works

    def _controls(self, followed: Followed, before: slice, after: slice) -> dict[str, Move]:
        trend, runs = followed.trend, self._results.runs
        measured = [
            [runs[run].gpu_controls.get(gpu, runs[run].controls) for run, gpu in zip(*both, strict=True)]
            for both in ((trend.run[side].tolist(), trend.gpu[side].tolist()) for side in (before, after))
        ]
        moves = {}
        for name in sorted({name for side in measured for controls in side for name in controls}):
            move = _apart(*(np.array([_seconds(controls, name) for controls in side]) for side in measured))
            if move is not None:
                moves[name] = move
        return moves


def levels(results: Results, series: SeriesName, before: str, after: str) -> tuple[float, float]:
    """Return the levels of a series up to commit ``before`` and from commit ``after`` on, as natural logs.

    A level is the median of at most ``WINDOW`` points; NaN without points. More is worse, so the level of a speedup is
    the log of its inverse.
    """
    place = {commit.hash: at for at, commit in enumerate(results.commits(series.machine))}
    series_of_name = series_by_name(results, series.machine)
    if series not in series_of_name or before not in place or after not in place:
        return math.nan, math.nan
    [trend] = results.trends([series_of_name[series]])
    if trend.benchmark.is_ratio and np.isfinite(trend.log_ratio).any():
        log = -trend.log_ratio
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(trend.value) * (-1 if trend.benchmark.better == "higher" else 1)
    log = np.where(trend.same_work_as == 0, log, np.nan)
    sides = log[trend.commit <= place[before]], log[trend.commit >= place[after]]
    old, new = (side[np.isfinite(side)] for side in sides)
    return tuple(float(np.median(side)) if side.size else math.nan for side in (old[-WINDOW:], new[:WINDOW]))  # type: ignore[return-value]


def _variant(series: Series, variant: str) -> Series:
    """Return the series of another variant in the same case."""
    return replace(series, axes=tuple((name, variant if name == "variant" else value) for name, value in series.axes))


def _numbers_of(
    followed: Followed, change: Change, before: Floats, after: Floats
) -> tuple[float, float] | tuple[None, None]:
    """Return the numbers of an exact change, or the levels of a change that is a difference; else ``None`` twice.

    The two levels differ by the size of the change. One is the median of the points on the side that scatters less,
    so a level of exactly zero is zero.
    """
    if followed.exact:
        return float(followed.trend.value[change.index - 1]), float(followed.trend.value[change.index])
    if change.measure == "ratio":
        return None, None
    if np.ptp(before) <= np.ptp(after):
        old = float(np.median(before))
        return old, old + change.size
    new = float(np.median(after))
    return new - change.size, new


def _copied(copies: Trend | None, first: int, last: int) -> int:
    """Return the number of copies between two commits, given by their positions."""
    return 0 if copies is None else int(((copies.commit >= first) & (copies.commit <= last)).sum())


def _gpu_move(trend: Trend, around: slice, worse: float) -> GpuMove | None:
    """Return the move of a series to another GPU among its points ``around`` a change.

    ``None`` if it did not move, or moved back: then both levels are of one GPU.
    """
    gpu, bridge = trend.gpu[around], trend.bridge[around]
    turns = np.flatnonzero(gpu_moves(gpu))
    if not turns.size or gpu[turns[0]] == gpu[turns[-1] + 1]:
        return None
    # A commit that both GPUs measured is shown as the last point on one or as the first point on the other.
    at = int(turns[0])
    log = bridge[at + 1] if np.isfinite(bridge[at + 1]) else -bridge[at]
    before, after = (unpacked(int(gpu[place]))[:8] for place in (at, turns[-1] + 1))
    return GpuMove(before, after, worse * float(log) if turns.size == 1 else math.nan)


def _seconds(controls: Mapping[str, Control], name: str) -> float:
    return (controls[name].seconds if name in controls else None) or math.nan


def _protocol(run: Run, suite: str) -> dict[str, str]:
    flags = {name: run.host[name] for name in _PROTOCOL if name in run.host}
    script = script_digest(run.host, suite)
    facts = {"protocol": str(run.protocol or ""), "clock state": run.clock_state, "benchmark script": script}
    return flags | {name: value for name, value in facts.items() if value}


def _hardware(run: Run) -> dict[str, str]:
    strings = {name: run.strings[name] for name in _ASV_MACHINE if run.strings.get(name)}
    return strings | {name: run.host[name] for name in _MACHINE if run.host.get(name)}


def _move(seconds: Floats | None, before: slice, after: slice) -> Move | None:
    """Return how far the median of a time moved between two stretches of points; ``None`` if unknown."""
    return None if seconds is None else _apart(seconds[before], seconds[after])


def _apart(before: Floats, after: Floats) -> Move | None:
    sides = [np.log(part[np.isfinite(part) & (part > 0)]) for part in (before, after)]
    if not all(side.size for side in sides):
        return None
    # The factor 1.4826 turns a median absolute deviation into a standard deviation. Both stretches share one estimate,
    # because an estimate from a few points is uncertain.
    residuals = np.concatenate([side - np.median(side) for side in sides])
    scatter = 1.4826 * float(np.median(np.abs(residuals)))
    error = scatter * float(np.sqrt(sum(1 / side.size for side in sides)))
    return Move(float(np.median(sides[1]) - np.median(sides[0])), error)
