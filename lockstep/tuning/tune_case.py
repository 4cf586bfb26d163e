"""Tune one variant at one case: measure all candidates briefly, then compare the best with the current configuration.

The second measurement is independent and uses the full plan, because the fastest of many brief measurements is partly
fast by chance. A candidate replaces the current configuration only if their paired ratio shows the candidate faster by
more than the interval.

With ``behind``, speed is the geometric mean of the ratio in a chain of calls and of the ratio behind a fixed kernel
(``lockstep.timing.costs.behind``). A chain alone favours configurations whose calls overlap with each other.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from typing import Any

from lockstep.record.model import Estimate, Record
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.timing.device import Device
from lockstep.timing.epochs import Plan
from lockstep.timing.instruments import Listener
from lockstep.timing.measure import Measurer
from lockstep.tuning.search_space import INCUMBENT, contest, name_of, search_space_of

#: The plan of the brief measurement that ranks the candidates; its numbers are not stored.
LOOK = Plan(replay_s=1e-3, rounds=4, min_epochs=2, max_epochs=2, budget_s=2.0, warmup_s=0.05)

#: Number of candidates that are measured with the full plan.
FINALISTS = 3


@dataclass(frozen=True)
class Tuned:
    """The result of tuning one variant at one case.

    Attributes:
        choice, sizes: key of the entry in the table.
        tried: number of candidates that ran and were correct.
        refused: reasons for the other candidates, by name.
        floor_s: seconds that the task takes at the machine's measured rates, a lower bound.
        previous_s: seconds per call with the current configuration.
        best: the fastest candidate; None if no candidate ran.
        best_s: seconds per call with ``best``.
        ratio: ``previous_s`` over ``best_s``, from paired rounds. With ``behind``, its geometric mean with the ratio
            of the times behind a fixed kernel.
        behind: the ratio of the times behind a fixed kernel alone; None without ``behind``.
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
    behind: Estimate | None = None
    won: bool = False
    problem: str = ""


def tune(
    device: Device,
    suite: Suite,
    variant: str,
    case: Case,
    l2: str,
    *,
    behind: bool = False,
    listener: Listener = lambda stage, candidate: None,
) -> Tuned:
    """Check and time the candidate configurations of a variant at a case, and return the best with its ratio.

    A candidate that breaks the CUDA context raises ``DeviceLost``; a variant without candidates ``SuiteError``.

    Args:
        behind: whether the time behind a fixed kernel counts as well as the time in a chain of calls.
        listener: called with stage and candidate before each step that may hang.
    """
    space = search_space_of(suite, variant, case)
    rivals = contest(suite, variant, space)
    result = Tuned(suite.name, variant, case.label, l2, space.choice, dict(space.sizes))
    # Ratios refer to the incumbent, not to the suite's baseline.
    contested = _contested(suite)
    # A new measurer for each case: a measurer keeps checks by name, and the names here are configurations.
    measurer = Measurer(device, LOOK, load=lambda _: rivals, listener=listener)
    costs = ("behind",) if behind else ()
    look = _by_name(measurer.measure(contested, case, l2, list(rivals.variants), costs=costs))
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
    finalists = sorted(ran, key=lambda name: ratio_of(ran[name], behind).value)[-FINALISTS:]
    if not finalists:
        return replace(result, problem="no candidate runs on this machine")
    measurer.plan = Plan.on(measurer.device)
    final = _by_name(measurer.measure(contested, case, l2, finalists, costs=costs))
    winner = max(finalists, key=lambda name: ratio_of(final[name], behind).value)
    ratio, latency, before = ratio_of(final[winner], behind), final[winner].latency, final[INCUMBENT].latency
    return replace(
        result,
        previous_s=before.value if before else result.previous_s,
        best=next(config for config in space.configs if name_of(config) == winner),
        best_s=latency.value if latency else None,
        ratio=ratio,
        behind=final[winner].costs.get("behind_speedup"),
        won=ratio.low > 1,
    )


def _contested(suite: Suite) -> Suite:
    """Return the suite with the current configuration as its baseline and no skipped cases."""
    members = {"baseline": INCUMBENT, "skips": Suite.skips, "__module__": type(suite).__module__}
    contested: Suite = type(type(suite).__name__, (type(suite),), members)()
    return contested


def _by_name(records: list[Record]) -> dict[str, Record]:
    return {record.variant: record for record in records}


def ratio_of(record: Record, behind: bool) -> Estimate:
    """Return the ratio to the current configuration by which candidates are compared; 0 if there is none."""
    chain = record.speedup or Estimate(0.0, 0.0, 0.0)
    if not behind:
        return chain
    apart = record.costs.get("behind_speedup", Estimate(0.0, 0.0, 0.0))
    # Limits are combined with limits, so the interval is wider than two independent errors would make it.
    pairs = (chain.value, apart.value), (chain.low, apart.low), (chain.high, apart.high)
    return Estimate(*(math.sqrt(first * second) for first, second in pairs))
