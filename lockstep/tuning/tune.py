"""Tune one variant at one case: measure all candidates briefly, then compare the best with the current configuration.

The second measurement is independent and uses the full plan, because the fastest of many brief measurements is partly
fast by chance. A candidate replaces the current configuration only if their paired ratio shows the candidate faster by
more than the interval.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

from lockstep.record.model import Estimate, Record
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.timing.device import Device
from lockstep.timing.interleave import Plan
from lockstep.timing.measure import Measurer
from lockstep.timing.verified_epochs import Listener
from lockstep.tuning.search_space import INCUMBENT, contest, name_of, search_space_of

#: The plan of the brief measurement that ranks the candidates; its numbers are not stored.
LOOK = Plan(replay_s=1e-3, rounds=4, min_epochs=2, max_epochs=2, budget_s=2.0, warmup_s=0.05)

#: Number of candidates that are measured with the full plan.
FINALISTS = 3


@dataclass(frozen=True)
class Tuned:
    """The result of tuning one variant at one case.

    Attributes:
        suite, variant, case, l2: the series that was tuned.
        choice, sizes: key of the entry in the table.
        tried: number of candidates that ran and were correct.
        refused: reasons for the other candidates, by name.
        floor_s: seconds that the task takes at the machine's measured rates, a lower bound.
        previous_s: seconds per call with the current configuration.
        best: the fastest candidate; None if no candidate ran.
        best_s: seconds per call with ``best``.
        ratio: ``previous_s`` over ``best_s``, from paired rounds.
        won: whether ``best`` is faster by more than the interval.
        problem: why there is no result, or "".
    """

    suite: str
    variant: str
    case: str
    l2: str
    choice: str
    sizes: dict[str, int]
    tried: int = 0
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    floor_s: float | None = None
    previous_s: float | None = None
    best: Any = None
    best_s: float | None = None
    ratio: Estimate | None = None
    won: bool = False
    problem: str = ""


def tune(
    device: Device,
    suite: Suite,
    variant: str,
    case: Case,
    l2: str,
    plan: Plan | None = None,
    listener: Listener = lambda stage, candidate: None,
) -> Tuned:
    """Check and time the candidate configurations of a variant at a case, and return the best with its ratio.

    Args:
        device: the device to measure on.
        suite: the suite of the case.
        variant: a variant with candidates.
        case: the shape.
        l2: "cold" or "warm".
        plan: plan of the second measurement.
        listener: called with stage and candidate before each step that may hang.

    Raises:
        SuiteError: the variant has no candidates.
        DeviceLost: a candidate broke the CUDA context.
    """
    space = search_space_of(suite, variant, case)
    rivals = contest(suite, variant, space)
    result = Tuned(suite.name, variant, case.label, l2, space.choice, dict(space.sizes))
    # Ratios refer to the incumbent, not to the suite's baseline.
    contested = _contested(suite)
    # A new measurer for each case: a measurer keeps checks by name, and the names here are configurations.
    measurer = Measurer(device, LOOK, load=lambda _: rivals, listener=listener)
    look = _by_name(measurer.measure(contested, case, l2, list(rivals.variants)))
    incumbent = look[INCUMBENT]
    if incumbent.latency is None:
        return replace(result, problem=f"the current configuration is {incumbent.state}: {incumbent.reason}")
    ran = {name: record for name, record in look.items() if name != INCUMBENT and record.speedup is not None}
    result = replace(
        result,
        tried=len(ran),
        refused={name: record.reason for name, record in look.items() if name != INCUMBENT and name not in ran},
        floor_s=incumbent.floor_s,
        previous_s=incumbent.latency.value,
    )
    finalists = sorted(ran, key=lambda name: _ratio(ran[name]).value)[-FINALISTS:]
    if not finalists:
        return replace(result, problem="no candidate runs on this machine")
    measurer.plan = plan or Plan.on(measurer.device)
    final = _by_name(measurer.measure(contested, case, l2, finalists))
    winner = max(finalists, key=lambda name: _ratio(final[name]).value)
    ratio, latency, before = _ratio(final[winner]), final[winner].latency, final[INCUMBENT].latency
    return replace(
        result,
        previous_s=before.value if before else result.previous_s,
        best=next(config for config in space.configs if name_of(config) == winner),
        best_s=latency.value if latency else None,
        ratio=ratio,
        won=ratio.low > 1,
    )


def _contested(suite: Suite) -> Suite:
    """Return the suite with the current configuration as its baseline and no skipped cases."""
    members = {"baseline": INCUMBENT, "skips": Suite.skips, "__module__": type(suite).__module__}
    contested: Suite = type(type(suite).__name__, (type(suite),), members)()
    return contested


def _by_name(records: list[Record]) -> dict[str, Record]:
    return {record.variant: record for record in records}


def _ratio(record: Record) -> Estimate:
    return record.speedup or Estimate(0.0, 0.0, 0.0)
