"""Rank alerts by what is lost: the lost share of a time, times how sure the loss is, times how new it is.

Times, failures and wrong results come first, then other numbers, then what no longer reports. Losses that are probably
not the code's come last. Lists show them below the others, and no message reports them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from lockstep.alerts.model import Alert, FoundChange

#: Milliseconds after which a loss counts half as much.
_HALF_LIFE_MS = 30 * 86_400_000

#: Units of time of other projects' benchmarks, alone or as in ``ms/frame``.
_TIME = re.compile(r"(s|ms|us|µs|ns|seconds|milliseconds|microseconds|nanoseconds)(/.*)?")

#: A step smaller than this many standard deviations of the run-to-run noise is within the scatter of its series.
_SCATTER = 2.0

#: Larger than every score within a group of alerts.
_GROUP = 1e6

#: Alerts of a lower rank report losses that are probably not the code's.
DOUBTED = -2.5 * _GROUP


@dataclass(frozen=True)
class Loss:
    """What an alert says is lost, at least.

    Attributes:
        change: the change with the largest loss, one without a doubt if there is one; ``None`` if a series fails.
        share: the part of today's number that the change added, 0 … 1; at the lower end of its interval.
        sure: how sure the loss is, 0 … 1.
        factor: by how much the change alone made the number worse, at the lower end of its interval.
        doubt: why the loss is probably not the code's; "" if nothing says so.
    """

    change: FoundChange | None
    share: float
    sure: float
    factor: float = math.inf
    doubt: str = ""

    @property
    def score(self) -> float:
        """The share weighed by how sure it is."""
        return self.share * self.sure

    @property
    def order(self) -> tuple[bool, float]:
        """The key that orders losses, the least first: those with a doubt, then by score."""
        return not self.doubt, self.score


def loss_of(alert: Alert) -> Loss | None:
    """Return the largest loss of an alert; ``None`` if nothing measurable is lost."""
    if alert.failing:
        return Loss(None, 1.0, 1.0)
    losses = [loss for member in alert.members if (loss := loss_of_change(member))]
    largest = max(losses, key=lambda loss: loss.order, default=None)
    changed = next((note.commit[:8] for note in alert.notes if note.touches == "benchmark"), "")
    return replace(largest, doubt=f"{changed} changes the benchmark") if largest and changed else largest


def loss_of_change(change: FoundChange) -> Loss | None:
    """Return what a change of a series loses; ``None`` if it is not worse, or is undone."""
    if change.sense != "worse":
        return None
    # The last points may be better than their level.
    known = [size for size in (change.size, change.left, change.recent) if size is not None and not math.isnan(size)]
    least = (min(known) - (0.0 if change.counted else (change.high - change.low) / 2)) / change.scale
    if least <= 0:
        return None
    if change.measure == "ratio":
        # What later changes of the series added is a loss of their own, and a part of today's number.
        share = -math.expm1(-least) * (math.exp(change.size - change.left) if change.left > change.size else 1.0)
    else:
        share = min(least, 1.0)
    return Loss(change, share, change.confidence, math.exp(min(least, 700.0)), _doubt(change))


def _doubt(change: FoundChange) -> str:
    kind = change.cause.kind
    # Machine code that a toolchain compiled differently is the kernel's, and a wrong result is nobody else's.
    known = change.counted or change.series.checked or any(fact.kernel for fact in change.cause.evidence)
    if kind in ("machine", "protocol") or (kind == "toolchain" and not known):
        return f"the {kind} is the probable cause"
    if known:
        return ""
    if change.flips:
        return "the series moves between these levels"
    if change.few:
        return "few points show it yet"
    within = change.noise is not None and abs(change.size) < _SCATTER * change.noise
    return "the step is within the scatter of the series" if within else ""


def rank_of(alert: Alert) -> float:
    """Return the number by which lists order alerts, the largest first.

    The loss halves every thirty days, so the order of two alerts does not depend on the day.
    """
    loss = loss_of(alert)
    age = alert.since / _HALF_LIFE_MS
    if alert.topic != "slower" and not alert.failing:
        return age - 2 * _GROUP
    if loss is None or loss.doubt:
        group = 3
    else:
        group = 0 if loss.change is None or is_time(loss.change) or loss.change.series.checked else 1
    return math.log2(max(loss.score if loss else 0.0, 1e-9)) + age - _GROUP * group


def doubted(alert: Alert) -> bool:
    """Return whether what an alert reports is probably not the code's."""
    return rank_of(alert) < DOUBTED


def explain(alert: Alert) -> str:
    """Return the line that says why an alert stands where it does; "" if nothing measurable is lost."""
    loss = loss_of(alert)
    if loss is None or alert.topic not in ("slower", "stopped"):
        return "nothing is certainly lost at its newest points" if alert.topic == "slower" else ""
    if loss.change is None:
        return "a result is lost"
    change = loss.change
    if change.series.exact:
        words = f"{change.series.quantity} rose beyond their budget"
    elif change.counted and not change.old:
        words = "it was zero before"
    elif change.measure == "difference":
        words = "the number is worse"
    else:
        words = _of_ratio(change, loss)
    if change is not alert.members[0]:
        words += f" in {change.series.short_label}"
    sure = "" if change.series.exact or loss.doubt else f", {confidence(change.confidence)} sure"
    return f"{words}{sure}{loss.doubt and f'; {loss.doubt}'}"


def _of_ratio(change: FoundChange, loss: Loss) -> str:
    """Say what a ratio loses: a share of today's time, or by how much another number is worse."""
    if is_time(change) and loss.share < 0.5:
        lost = "under 0.1 %" if loss.share < 0.0005 else f"at least {_percent(loss.share)}"
        return f"{lost} of its time is lost"
    if is_time(change):
        return f"at least {loss.factor:.3g} times as slow"
    if change.better != "lower":
        return f"at least {_percent(1 - 1 / loss.factor)} lower"
    return f"at least {f'{loss.factor:.3g}-fold' if loss.factor >= 3 else _percent(loss.factor - 1)} higher"


def _percent(share: float) -> str:
    """Return a share as a percentage that is not above it: with two digits, whole from 10 % on."""
    percent = 100 * share
    unit = 10.0 ** min(0, math.floor(math.log10(percent)) - 1) if percent > 0 else 1.0
    return f"{math.floor(percent / unit + 1e-9) * unit:.10g} %"


def confidence(share: float) -> str:
    """Return a confidence as text: ``99.8 %``, or ``> 99.9 %``."""
    return "> 99.9 %" if share > 0.9995 else f"{100 * share:.1f} %"


def is_time(change: FoundChange) -> bool:
    """Return whether the number of a change is a time, or a ratio of times."""
    return change.series.timed or bool(_TIME.fullmatch(change.series.quantity))
