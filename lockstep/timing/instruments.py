"""Hold what every measurement on one device uses: the controls, the meters of costs, and the choices of tuners."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from lockstep.machine_code.model import CaseKey
from lockstep.machine_code.observed import Observer
from lockstep.suite.case import Case
from lockstep.suite.definition import Cost, Suite
from lockstep.suite.evaluate import in_history, skip_reason
from lockstep.suite.variants import Family
from lockstep.timing.arms.shared_buffers import Contender
from lockstep.timing.case_checks import Checks
from lockstep.timing.checks.check import Checked
from lockstep.timing.controls import Controls
from lockstep.timing.costs.available_meters import Meters
from lockstep.timing.costs.meter import CostMeter
from lockstep.timing.device import Device
from lockstep.timing.epochs import Plan
from lockstep.timing.rules.changed_shared_code import Trusted
from lockstep.timing.stage_times import Stages
from lockstep.timing.tuners.choices import Choice
from lockstep.timing.tuners.held_choices import Tuners

#: Called before each step that may hang or crash, with the stage ("load", "check", "draw", "capture", "time", "verify")
#: and the variant ("" for a step that concerns all variants).
Listener = Callable[[str, str], None]


@dataclass
class Instruments:
    """What every measurement on a device uses, for the life of the process. Without ``tuners`` no choice is noted."""

    device: Device
    stages: Stages = field(default_factory=Stages, kw_only=True)
    tuners: Tuners | None = field(default=None, kw_only=True)
    _choices: dict[tuple[CaseKey, str], list[Choice]] = field(default_factory=dict, kw_only=True)
    _controls: Controls | None = field(default=None, kw_only=True)
    _meters: Meters | None = field(default=None, kw_only=True)

    @property
    def controls(self) -> Controls:
        """Return the device's controls, fixed work whose time shows whether the machine changed.

        The controls are created at first use.
        """
        if self._controls is None:
            with self.stages.stage("controls"):
                self._controls = Controls.of(self.device)
        return self._controls

    def controls_summary(self) -> dict[str, dict[str, float | str]]:
        """Return median, spread and rate of each control so far; empty before the first timing."""
        return self._controls.summary() if self._controls else {}

    def floor_s(self, cost: Cost) -> float | None:
        """Return the seconds that a task takes at the rates of the fastest controls.

        ``None`` on a CPU: its caches hold what its copy control moves, so its rates are not limits.
        """
        return self.controls.floor(*cost) if self.device.kind == "cuda" else None

    @property
    def meters(self) -> Meters:
        """Return what creates the meters of costs on the device."""
        self._meters = self._meters or Meters.on(self.device)
        return self._meters

    def choices(self, key: CaseKey, tree: str = "") -> list[Choice]:
        """Return the choices in which the tuned kernels of a checked case run, by the tree of the contender."""
        return self._choices.get((key, tree), [])

    @contextmanager
    def noted(self, suite: Suite, case: Case, contender: Contender) -> Iterator[None]:
        """Note within the block what the tuners of a contender choose."""
        if self.tuners is None:
            yield
            return
        with self.tuners.noted() as self._choices[CaseKey(suite.name, contender.variant, case.label), contender.tree]:
            yield


@dataclass
class CaseInstruments(Instruments):
    """What measuring the cases of one version uses besides. Results of checks are kept for the life of the process.

    Attributes:
        seed: seed of the inputs on which results are checked; random unless given.
        places: changes the placement of buffers and the order of arms. With 0, as in a history, every run and commit
            has the same placement and order.
        history: whether to leave out cases that a history does not measure. If false, the working tree is measured: a
            missing module that a suite imports is a failure, while in an older commit of a history it is "na".
    """

    plan: Plan
    seed: int = field(default_factory=lambda: random.SystemRandom().getrandbits(32))
    places: int = 0
    listener: Listener = lambda stage, variant: None
    observer: Observer = field(default_factory=Observer)
    history: bool = False

    def __post_init__(self) -> None:
        def listener(stage: str, contender: Contender) -> None:
            self.listener(stage, contender.variant)

        self.checks = Checks(self.device, lambda: self.seed, listener, self._watched)

    def check(self, suite: Suite, case: Case, l2: str, family: Family, name: str, trusted: Trusted) -> Checked:
        """Check the variant, or return its earlier result. Raise its error if it cannot be measured."""
        if name not in family.variants:
            raise NotImplementedError("the variant is not in this commit")
        if reason := skip_reason(suite, name, case):
            raise NotImplementedError(reason)
        if self.history and not in_history(suite, name, case, l2):
            raise NotImplementedError("a history measures this variant at other cases only (full_history of its suite)")
        return self.checks.of(suite, case, Contender(name, name, family), trusted, twice=True)

    def meters_of(
        self, costs: Sequence[str], baseline: str, reference_mhz: Mapping[str, float], trusted: Trusted
    ) -> tuple[list[CostMeter], list[str]]:
        """Create the meters of the requested costs, always in the same order. Return why others have no meter here."""
        made: list[CostMeter] = []
        missing = []
        for cost in [cost for cost in ("behind", "host", "energy") if cost in costs]:
            if refusal := self.meters.refusal(cost):
                missing.append(f"no {cost}: {refusal}")
            else:
                meter = self.meters.new(cost, self.plan.pace, trusted)
                meter.baseline, meter.reference_mhz = baseline, reference_mhz
                made.append(meter)
        return made, missing

    @contextmanager
    def _watched(self, suite: Suite, case: Case, contender: Contender) -> Iterator[None]:
        """Record within the block which kernels a contender launches, and what their tuners choose."""
        key = CaseKey(suite.name, contender.variant, case.label)
        # A CPU loads no kernel, and watching imports Triton, which takes 0.1 s.
        watched = self.observer.watch(key) if self.device.kind == "cuda" else nullcontext()
        with watched, self.noted(suite, case, contender):
            yield
