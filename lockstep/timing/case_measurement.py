"""Measure one case: check its variants, draw, verify and time its epochs, and make its records."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic

from lockstep.machine_code.model import CaseKey
from lockstep.record.model import TWIN, Record
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import cost_of
from lockstep.suite.variants import Family, NotInCommit
from lockstep.timing.arms.argument_rotation import draw_sets
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.arms.shared_buffers import Buffers, Contender
from lockstep.timing.arms.verify_replays import Timed, Verified, Verifier
from lockstep.timing.checks.baseline_as_reference import unchecked
from lockstep.timing.checks.check import Checked, brief
from lockstep.timing.costs.meter import CostMeter, estimates_of, reasons_of
from lockstep.timing.device import DeviceLost
from lockstep.timing.epochs import Compared, Comparison
from lockstep.timing.impossible_times import Limits
from lockstep.timing.instruments import CaseInstruments
from lockstep.timing.rules.changed_shared_code import Trusted
from lockstep.timing.rules.rule import Disqualified
from lockstep.timing.tuners.choices import chosen_by_kernel


class CaseMeasurement:
    """The measurement of one case: its epochs and records so far. If ``thorough``, an early epoch is verified too."""

    def __init__(
        self, instruments: CaseInstruments, suite: Suite, case: Case, l2: str, names: Sequence[str], *, thorough: bool
    ) -> None:
        self._instruments = instruments
        self._suite = suite
        self._case = case
        self._l2 = l2
        self._started = monotonic()
        self._blank = Record(
            suite=suite.name,
            variant="",
            case=case.label,
            l2=l2,
            state="na",
            version=suite.benchmark_version,
            baseline=suite.baseline,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self.records = {name: replace(self._blank, variant=name) for name in names}
        self._thorough = thorough
        self._checked: dict[str, Checked] = {}
        self._contenders: dict[str, Contender] = {}
        self._drawn: dict[str, Arm] = {}
        self._set_count = 0
        #: Writes the drawn values into the inputs that arms change; ``None`` without such inputs.
        self.restore: Callable[[], None] | None = None

    def fail(self, name: str, reason: str, rule: str = "") -> None:
        """Record that a variant failed."""
        if name in self.records:
            self.records[name] = replace(self.records[name], state="failed", reason=reason, rule=rule)

    def give_up(self, reason: str, state: str = "na", rule: str = "") -> list[Record]:
        """Return the records, with this reason where there is none yet."""
        records = self.records.values()
        return self._valid(r if r.reason else replace(r, state=state, reason=reason, rule=rule) for r in records)

    def result(self) -> list[Record]:
        """Return the records."""
        return self._valid(self.records.values())

    @staticmethod
    def _valid(records: Iterable[Record]) -> list[Record]:
        return [record.validated() for record in records]

    def check(self, family: Family, trusted: Trusted) -> None:
        """Check each variant. Record those that fail or refuse the case."""
        instruments = self._instruments
        for name in [name for name, record in self.records.items() if record.state != "failed"]:
            try:
                self._checked[name] = instruments.check(self._suite, self._case, self._l2, family, name, trusted)
            except DeviceLost:
                raise
            except NotImplementedError as error:
                if isinstance(error, NotInCommit) and not instruments.history:
                    self.fail(name, misspelt(error))
                else:
                    self.records[name] = replace(self.records[name], reason=str(error) or "not supported")
            except Exception as error:
                self.fail(name, brief(error), error.rule if isinstance(error, Disqualified) else "")

    def prepare(self, family: Family, twins: Sequence[str]) -> bool:
        """Decide which arms are timed, and on how many argument sets. Return False if there is none.

        Raise ``NotImplementedError`` if the case is too small for a cold series.
        """
        device = self._instruments.device
        if not self._checked:
            return False
        contenders = [Contender(name, name, family) for name in self._checked]
        self._sizes = self._instruments.checks.sizes(self._suite, self._case, contenders)
        touched = dict(self._sizes.touched)
        for name, size in self._sizes.touched.items() if self._l2 == "warm" else ():
            if size > device.cache_bytes:
                reason = f"its {size / 1e6:.0f} MB do not fit into the {device.cache_bytes / 1e6:.0f} MB cache"
                self.records[name] = replace(self.records[name], reason=reason)
                del touched[name]
        if not touched:
            return False
        again = [Contender(name + TWIN, name, family) for name in twins if name in touched]
        self._contenders = {one.arm: one for one in (*contenders, *again) if one.variant in touched}
        floor_s = self._instruments.floor_s(cost_of(self._suite, self._case)) or 0.0
        self._set_count = replace(self._sizes, touched=touched).count(floor_s, device, self._l2)
        return True

    def time(self, trusted: Trusted, reference_mhz: Mapping[str, float], costs: Sequence[str], note: str) -> None:
        """Time the arms against each other, and record the results. ``note`` is for readers of every record."""
        instruments, suite = self._instruments, self._suite
        # Free the check's tensors before the sets are drawn, because both together may not fit.
        instruments.checks.forget()
        with instruments.stages.stage("draw"):
            instruments.device.release()
        arms = list(self._contenders)
        meters, missing = instruments.meters_of(costs, suite.baseline, reference_mhz, trusted)
        result = Comparison(
            self,
            arms,
            suite.baseline,
            instruments.device,
            instruments.controls,
            instruments.plan,
            # Placement moves some ratios by percents (kda's eight products: 3.5 % from one epoch to the next), so every
            # run and commit gets the same sequence of placements.
            seed=zlib.crc32(f"{suite.name} {self._case.label}".encode()) ^ instruments.places,
            stages=instruments.stages,
            reference_mhz=reference_mhz,
            trusted=trusted,
            early=self._thorough,
            meters=meters,
        ).run()
        self._record(result, meters, (note, result.note), missing)

    def listen(self, stage: str, arm: str) -> None:
        """Report to the listener that an arm reaches a stage, by the name of the arm's variant."""
        contender = self._contenders.get(arm)
        self._instruments.listener(stage, contender.variant if contender else "")

    def draw_arms(self, seed: int, names: Sequence[str]) -> list[Arm]:
        """Bind the named arms to fresh buffers, which are drawn from ``seed``."""
        instruments, suite = self._instruments, self._suite
        self.listen("draw", "")  # drawing also runs the variants' preparation
        with instruments.stages.stage("draw"):
            # Freed before the next draw: the buffers of two draws together may not fit.
            self._drawn, self.restore = {}, None
            sets = draw_sets(suite, self._case, instruments.device, self._set_count, seed)
            buffers = Buffers(sets, seed, suite.inout)
            arms, _ = buffers.arms([self._contenders[name] for name in names])
            instruments.device.synchronize()
        self._drawn, self.restore = {arm.name: arm for arm in arms}, buffers.restore
        return arms

    def verify(self, seed: int, replays: Mapping[str, Mapping[str, ArmReplay]]) -> Verified:
        """Verify the outputs of an epoch's replays, by cost and arm; the cost "" stands for the latency."""
        verifier = Verifier(self._suite, self._case, self._instruments.device, self.listen)
        timed = [
            Timed(self._drawn[arm], replay, self._contenders[arm].family, self._contenders[arm].variant, cost)
            for cost, by_arm in replays.items()
            for arm, replay in by_arm.items()
        ]
        return verifier.verify(timed, seed)

    def _record(
        self, result: Compared, meters: Sequence[CostMeter], notes: Sequence[str], missing: Sequence[str]
    ) -> None:
        instruments, cost = self._instruments, cost_of(self._suite, self._case)
        copy_rate = instruments.controls.best_rate("copy") if instruments.device.kind == "cuda" else None
        limits = Limits.of(instruments.device, cost, self._l2, self._sizes.narrowest, copy_rate)
        outcomes, impossible = limits.plausible(result.outcomes, self._suite.baseline)
        for arm, failure in {**result.failures, **impossible}.items():
            self.records[arm] = replace(self._blank, variant=arm)
            self.fail(arm, str(failure), failure.rule if isinstance(failure, Disqualified) else "")
        wall_s = (monotonic() - self._started) / max(1, len(outcomes))
        floor_s = instruments.floor_s(cost)
        for arm, outcome in outcomes.items():
            variant = self._contenders[arm].variant
            passed, key = self._checked[variant], CaseKey(self._suite.name, variant, self._case.label)
            self.records[arm] = replace(
                self._blank,
                variant=arm,
                state="ok",
                flops=cost.flops,
                bytes=cost.bytes,
                floor_s=floor_s,
                floor_source="" if floor_s is None else "measured",
                **vars(outcome),
                check_error=passed.accuracy.norm,
                accuracy=passed.accuracy,
                deterministic=passed.deterministic,
                costs=estimates_of(meters, arm, outcome.speedup is not None),
                note="; ".join(
                    filter(
                        None,
                        (unchecked(self._suite, variant), passed.note, *notes, *reasons_of(meters, arm), *missing),
                    )
                ),
                wall_s=wall_s,
                code=instruments.observer.code(key),
                chosen=chosen_by_kernel(instruments.choices(key)),
            )


def misspelt(error: NotInCommit) -> str:
    """Return why a suite's import of a missing module is its own mistake: the working tree is measured."""
    return f"the working tree has no {error.lacks}"
