"""Compute the time of a call from whole runs of a contestant, which can pretend to be slower but not faster.

The slope between short and long runs could be forged: a contestant that waits in the short runs has a slope of zero. So
the time of a call is the time of a whole long run, minus the cost of a run without code under test, divided by the
number of calls. The fastest run counts, because other work only adds time (Chen & Revels 2016, "Robust benchmarking in
noisy environments").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lockstep.record.model import Estimate
from lockstep.timing.rules.rule import Disqualified, Rule

#: Seconds that a run of an honest contestant may cost beyond its calls and an idle run, by kind of device. On a CPU the
#: code of the variant is cold after the pause: 28 contestants with products of 4 × 64 × 64 and 64 × 64 × 64, two cores,
#: cost 0.12 to 0.77 ms (median 0.35; intercepts of the fastest of 21 runs over the number of calls). On a GPU the run
#: launches more work, and the GPU switches between two processes: contestants with products of 8 × 4096 × 2048 cost
#: 0.25 to 0.39 ms, with products of 4 × 64 × 64 and 64 × 64 × 64 0.16 to 0.27 ms (H200; the judge drew nothing before
#: those idle runs).
SLACK_S = {"cpu": 1e-3, "cuda": 4e-4}

#: Time does not grow with the calls if half the calls, or fewer, take at least this share of the time of all calls …
ALIKE = 0.9

#: … and this many seconds more than their proportional part, or as many as other work was seen to add, if that is more.
WAITED_S = 1e-3


@dataclass(frozen=True)
class Isolated:
    """The time of a call, as a judge measured it from outside the process that runs the variant.

    Attributes:
        seconds: seconds of one call in the fastest of the long runs.
        low: least seconds that a call of an honest contestant takes; 0 if the runs are too short to resolve them.
        high: seconds of one call in the median long run: an upper bound, because other work only adds time.
        notes: remarks for readers of the record, such as restrictions that were not enforced on the contestant.
    """

    seconds: float
    low: float
    high: float
    notes: tuple[str, ...] = ()


def time_of_call(
    idle: Sequence[float], runs: Mapping[int, Sequence[float]], slack_s: float, notes: tuple[str, ...] = ()
) -> Isolated:
    """Compute the time of a call from the seconds of whole runs.

    Args:
        idle: seconds of runs that were timed before the code under test was imported.
        runs: seconds of the runs, by their number of calls.
        slack_s: see ``SLACK_S``.
    """
    calls, idle_s = max(runs), min(idle)
    times = [(seconds - idle_s) / calls for seconds in runs[calls]]
    fastest = max(min(times), 0.0)
    least = fastest - slack_s / calls
    return Isolated(fastest, least if least > fastest / 2 else 0.0, max(median(times), 0.0), notes)


def speedup(own: Isolated, baseline: Isolated) -> Estimate:
    """Return the baseline's time over a variant's time, with bounds, from the times of their runs.

    Each time of a call lies between its ``low`` and its ``high``, because other work only adds time.

    Args:
        own: the variant's runs; ``low`` is above 0.
    """
    return Estimate(baseline.seconds / own.seconds, baseline.low / own.high, baseline.high / own.low)


def waiting(idle: Sequence[float], runs: Mapping[int, Sequence[float]]) -> str:
    """Return evidence that a variant's time does not grow with the number of calls; "" if there is none.

    On a busy machine other work can delay every one of the few short runs, so a wait must exceed what other work was
    seen to add: the range of the idle runs, or the median of the long runs minus their fastest, if that is more. A
    variant that slows its long runs to raise that median only raises the upper bound of its time (``Isolated.high``).
    """
    few, calls = min(runs), max(runs)
    short, long = (min(runs[count]) - min(idle) for count in (few, calls))
    added = max(max(idle) - min(idle), median(runs[calls]) - min(runs[calls]))
    if short < ALIKE * long or short - long * few / calls < max(WAITED_S, added):
        return ""
    return f"{few} calls take {short * 1e3:.3g} ms, {calls} calls {long * 1e3:.3g} ms"


def require_growth(variant: str, idle: Sequence[float], runs: Mapping[int, Sequence[float]]) -> None:
    """Refuse a variant whose time does not grow with the number of calls.

    Args:
        variant: its name, for the message.
        idle: seconds of runs without a call.
        runs: seconds of the runs with calls, by their number of calls.

    Raises:
        Disqualified: ``CONSTANT_TIME``.
    """
    if evidence := waiting(idle, runs):
        raise Disqualified(Rule.CONSTANT_TIME, f"seen from another process, {variant} waits: {evidence}")
