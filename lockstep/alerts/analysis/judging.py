"""Judge changes by the thresholds: their better direction, whether they are reported, why not, and who owns them."""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lockstep.alerts.analysis.stopped_series import is_old
from lockstep.alerts.cause.found_change import CODE, FoundChange, Suppressed, Waiver
from lockstep.history.model import Commit
from lockstep.record.series_name import SeriesName
from lockstep.suite.thresholds import Threshold, Thresholds


def judged(changes: Iterable[FoundChange], thresholds: Thresholds) -> Iterator[FoundChange]:
    """Yield the changes with what the thresholds say: the better direction, and why a change is not reported.

    ``changes``: all changes of some series; those of one series and benchmark version follow each other, oldest first.
    """
    for (name, _), group_of_series in itertools.groupby(changes, lambda change: (change.series, change.version)):
        series_changes = list(group_of_series)
        if name.foreign:
            better = thresholds.better(*_place(name), otherwise=series_changes[0].better)
            series_changes = [change.directed(better) for change in series_changes]
        threshold = _threshold_of(series_changes[0], thresholds)
        # A change of changed code must be larger than the changes that occur in unchanged code.
        largest = max((abs(change.size) for change in series_changes if change.cause.kind == "noise"), default=0.0)
        confirmed = [change for change in series_changes if change.confirmed]
        for place, change in enumerate(series_changes):
            suppressed = _suppression(change, threshold, largest)
            yield replace(change, suppressed=suppressed, left=_left(change, confirmed[place + 1 :]))


def _left(change: FoundChange, later: Sequence[FoundChange]) -> float:
    """Return how much of a change is left; of a loss that was mended before a later one, what was left then."""
    # A dip of a series that did not move to and fro before mends nothing.
    left, level = change.left, change.size
    for one, following in itertools.zip_longest(later, later[1:]) if change.sense == "worse" else ():
        level += one.size
        if change.flips or following is None or not following.flips:
            left = min(left, level)
    return left


def _threshold_of(change: FoundChange, thresholds: Thresholds) -> Threshold:
    """Return the threshold for a change. Each difference of an exact quantity counts."""
    threshold = thresholds.of(*_place(change.series))
    return replace(threshold, min_effect=0.0) if change.counted else threshold


def _place(name: SeriesName) -> tuple[str, str, str, str, str]:
    return name.suite, name.variant, name.case, name.l2, name.quantity


def _suppression(change: FoundChange, threshold: Threshold, unchanged: float) -> Suppressed:
    if change.cause.kind == "noise" or (abs(change.size) <= unchanged and change.cause.kind in CODE):
        return "noise"
    if change.cause.gpu_moved:
        return "moved"
    if change.share < threshold.min_effect:
        return "small"
    if not change.confirmed:
        return "unconfirmed"
    return "unsure" if change.confidence < threshold.confidence else ""


#: Why a suppressed change is in no alert.
_REASONS: Mapping[Suppressed, str] = {
    "small": "it is smaller than min_effect in thresholds.toml",
    "unsure": "it is less sure than confidence in thresholds.toml asks for",
    "noise": "unchanged work or machine code changes by as much",
    "unconfirmed": "a third point must confirm it",
    "moved": "the series moved to another GPU, which explains it",
}


def commits_of_gains(changes: Iterable[FoundChange]) -> dict[tuple[str, str, str], set[str]]:
    """Return the commits that may have made a variant's case faster, on any machine, by suite, variant and case."""
    gains: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for change in changes:
        if change.sense == "better" and change.series.timed and not change.suppressed:
            gains[_case(change)].update(change.between)
    return gains


def _case(change: FoundChange) -> tuple[str, str, str]:
    return change.series.suite, change.series.variant, change.series.case


def unreported_because(
    change: FoundChange, thresholds: Thresholds, gains: Mapping[tuple[str, str, str], Collection[str]]
) -> str:
    """Return why a change is in no alert; "" if it is in one. Compile times and falls of exact quantities never are.

    ``gains``: see ``commits_of_gains``.
    """
    if change.suppressed:
        return _REASONS[change.suppressed]
    if change.series.quantity == "compile":
        return "compile times open no alert; `changes` lists them"
    if not change.series.exact or change.old is None or change.new is None:
        return ""
    quantity, budget = change.series.quantity, thresholds.budget_of(*_place(change.series))
    if budget is None:
        return f"{quantity} explain a time; without a budget in thresholds.toml they open no alert"
    if change.new - change.old <= budget:
        return f"the budget in thresholds.toml lets {quantity} rise by {budget:g}"
    if not set(change.between).isdisjoint(gains.get(_case(change), ())):
        return "the time of the case fell in the same commits"
    return ""


def with_waivers(
    changes: Iterable[FoundChange],
    thresholds: Thresholds,
    commits: Mapping[str, Sequence[Commit]],
    subjects: Mapping[str, str],
    today: datetime.date,
) -> Iterator[FoundChange]:
    """Yield the reported changes with their owner and age, and the waiver that applies today.

    Args:
        commits: the commits of each machine, oldest first.
        subjects: the subject of each commit.
    """
    for change in changes:
        name, threshold, measured = change.series, _threshold_of(change, thresholds), commits[change.series.machine]
        place = (name.suite, name.variant, name.case, name.l2)
        texts = [text for commit in change.between for text in (commit, subjects.get(commit, ""))]
        accept = None
        if change.sense != "better":
            accept = thresholds.accepted(*place, change.share, texts, name.quantity)
        mute = thresholds.muted(*place, today, name.quantity)
        yield replace(
            change,
            owner=threshold.owner,
            waiver=Waiver(accept.because) if accept else Waiver(mute.because, mute.until) if mute else None,
            since=measured[change.last].date,
            min_effect=threshold.min_effect,
            too_old=is_old(change.last, measured),
        )
