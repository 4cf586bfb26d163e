"""Measure one case: check every variant, then time all variants in turn with the baseline."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic

import torch

from lockstep.machine_code.model import CaseKey
from lockstep.machine_code.observed import Observer
from lockstep.record.model import TWIN, Record
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import cost_of, in_history, skip_reason
from lockstep.suite.inputs import tensors_of
from lockstep.suite.variants import Family, NotInCommit, load_family
from lockstep.timing.arms.argument_sets import set_count, size_of
from lockstep.timing.checks.check import Checked, Checker, brief, without_frames
from lockstep.timing.controls import Controls
from lockstep.timing.cost_meters import CostMeter, estimates_of, reasons_of
from lockstep.timing.costs.behind import Behind
from lockstep.timing.costs.energy import CudaMark, Energy, cuda_counter
from lockstep.timing.costs.host_time import NO_HOST, CudaSpinner, HostTime
from lockstep.timing.device import Device, DeviceLost
from lockstep.timing.estimates import Outcome
from lockstep.timing.interleave import Plan, compare
from lockstep.timing.plausible import Limits, plausible
from lockstep.timing.rules.rule import Disqualified
from lockstep.timing.rules.trusted import Trusted
from lockstep.timing.stage_times import Stages
from lockstep.timing.verified_epochs import Epochs, Listener

#: Share of a history's cases, chosen at random, that are verified more thoroughly: also after an early epoch, and by
#: rotations on unseen values. ``lockstep measure`` verifies every case this way, because its run time matters less.
THOROUGH = 0.1


@dataclass
class Measurer:
    """Measures cases on one device. Controls and checks are kept for the life of the process.

    Attributes:
        plan: duration and precision.
        seed: seed of the inputs on which results are checked; random unless given.
        places: changes the placement of buffers and the order of arms. With 0, as in a history, every run and commit
            has the same placement and order.
        listener: called before each stage.
        load: returns a suite's variants; by default those that the module of its family defines.
        observer: records the machine code of the kernels that run.
        history: whether to leave out cases that a history does not measure. If false, the working tree is measured: a
            missing module that a suite imports is a failure, while in an older commit of a history it is "na".
        stages: seconds spent in each stage.
        trusted: the original functions that measuring relies on; they must be taken before a variant is imported.
    """

    device: Device
    plan: Plan
    seed: int = field(default_factory=lambda: random.SystemRandom().getrandbits(32))
    places: int = 0
    listener: Listener = lambda stage, variant: None
    load: Callable[[Suite], Family] = load_family
    observer: Observer = field(default_factory=Observer)
    history: bool = False
    stages: Stages = field(default_factory=Stages)
    trusted: Trusted = field(default_factory=Trusted)
    _controls: Controls | None = None
    _checked: dict[tuple[str, str, str], Checked | Exception] = field(default_factory=dict)
    _touched: dict[tuple[str, str, tuple[str, ...]], tuple[dict[str, int], int]] = field(default_factory=dict)
    _narrowest: dict[tuple[str, str], int] = field(default_factory=dict)
    _checker: Checker | None = None

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

    def measure(
        self,
        suite: Suite,
        case: Case,
        l2: str,
        variants: Sequence[str],
        failed: Mapping[str, str] | None = None,
        twins: Sequence[str] = (),
        reference_mhz: Mapping[str, float] | None = None,
        costs: Sequence[str] = (),
    ) -> list[Record]:
        """Measure variants of a case and return their records, always including the baseline's.

        Args:
            l2: "cold" or "warm".
            variants: names of the variants; unknown names get the state "na".
            failed: variants known to kill or hang a process, with the reason; they are not run.
            twins: variants measured a second time as an A/A comparison, under their name + ``TWIN``.
            reference_mhz: clock to which a variant's speedup is normalised; by default the variant's mean clock in this
                measurement.
            costs: what to measure besides latency and speedup, names of ``lockstep.record.quantity.COSTS``.

        Raises:
            DeviceLost: a variant broke the CUDA context, or replaced a trusted function while several were timed.
        """
        started_at, started = datetime.now(UTC), monotonic()
        names = list(dict.fromkeys([suite.baseline, *variants]))
        blank = Record(
            suite=suite.name,
            variant="",
            case=case.label,
            l2=l2,
            state="na",
            version=suite.benchmark_version,
            baseline=suite.baseline,
            started_at=started_at.isoformat(timespec="seconds"),
        )
        records = {name: replace(blank, variant=name) for name in names}
        for name, reason in (failed or {}).items():
            if name in records:
                records[name] = replace(records[name], state="failed", reason=reason)

        def give_up(reason: str, state: str = "na", rule: str = "") -> list[Record]:
            return [r if r.reason else replace(r, state=state, reason=reason, rule=rule) for r in records.values()]

        if self.device.kind == "cpu" and (case not in suite.quick or l2 == "cold"):
            return give_up("no GPU here; a CPU measures only the suite's quick cases, with a warm cache")
        if self.device.kind == "cuda" and suite.inout and l2 == "warm":
            return give_up("it writes its inputs, so a replay calls each set once, and one call is too short to time")
        if self.device.kind == "cuda" and case not in suite.cases:
            return give_up("a quick case, which only machines without a GPU measure")
        self.listener("load", "")
        try:
            try:
                family = self.load(suite)
            finally:
                self.trusted.accept_settings()
                self.trusted.require()
        except NotInCommit as error:
            return give_up(str(error)) if self.history else give_up(_misspelt(error), "failed")
        except Disqualified as error:
            return give_up(f"the import of {suite.module} {error.evidence}", "failed", error.rule)
        except (Exception, SystemExit) as error:
            return give_up(f"{suite.module} cannot be imported: {brief(error)}", "failed")
        trusted = self.trusted.with_variants(family.variants)

        checked = {}
        for name in [name for name, record in records.items() if record.state != "failed"]:
            try:
                with self.stages.stage("check"):
                    checked[name] = self._check(suite, case, l2, family, name, trusted)
            except NotImplementedError as error:
                if isinstance(error, NotInCommit) and not self.history:
                    records[name] = replace(records[name], state="failed", reason=_misspelt(error))
                    continue
                records[name] = replace(records[name], reason=str(error) or "not supported")
            except Exception as error:
                rule = error.rule if isinstance(error, Disqualified) else ""
                records[name] = replace(records[name], state="failed", reason=brief(error), rule=rule)
                if not self.device.healthy():
                    raise DeviceLost(name, records[name].reason) from error
        ready = list(checked)
        if not ready:
            return list(records.values())
        try:
            with self.stages.stage("check"):
                sizes, set_bytes = self._sizes(suite, case, family, ready)
            touched = dict(sizes)
            if l2 == "warm":
                for name, size in sizes.items():
                    if size > self.device.cache_bytes:
                        cache = self.device.cache_bytes / 1e6
                        reason = f"its {size / 1e6:.0f} MB do not fit into the {cache:.0f} MB cache"
                        records[name] = replace(records[name], reason=reason)
                        del touched[name]
            if not touched:
                return list(records.values())
            arms = {name: name for name in touched} | {name + TWIN: name for name in twins if name in touched}
            cost = cost_of(suite, case)
            floor = self.controls.floor(*cost) if self.device.kind == "cuda" else 0.0
            sets = set_count(min(touched.values()), set_bytes, floor, self.device, l2)
            meters, missing = self._meters(costs, suite.baseline, list(arms), reference_mhz or {}, trusted)
            outcomes, failures, note = self._compare(suite, case, family, arms, sets, reference_mhz, trusted, meters)
        except NotImplementedError as error:
            return give_up(str(error))
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            return give_up("out of memory for this case's argument sets", "failed")
        except Disqualified as error:
            raise DeviceLost("", error.evidence, error.rule) from error
        copy_rate = self.controls.best_rate("copy") if self.device.kind == "cuda" else None
        narrowest, limits = self._narrowest[suite.name, case.label], Limits.of(self.device)
        outcomes, impossible = plausible(outcomes, suite.baseline, cost, l2, limits, narrowest, copy_rate)
        for arm, failure in {**failures, **impossible}.items():
            rule = failure.rule if isinstance(failure, Disqualified) else ""
            records[arm] = replace(blank, variant=arm, state="failed", reason=str(failure), rule=rule)
        wall = monotonic() - started
        for arm, outcome in outcomes.items():
            passed = checked[arms[arm]]
            records[arm] = replace(
                blank,
                variant=arm,
                state="ok",
                latency=outcome.latency,
                speedup=outcome.ratio,
                flops=cost.flops,
                bytes=cost.bytes,
                # A CPU's caches hold what its copy control moves, so its rates are not limits.
                floor_s=self.controls.floor(*cost) if self.device.kind == "cuda" else None,
                floor_source="measured" if self.device.kind == "cuda" else "",
                mde=outcome.mde,
                rounds=outcome.rounds,
                epochs=outcome.epochs,
                voided=outcome.voided,
                converged=outcome.converged,
                clocks=outcome.clocks,
                latency_samples=outcome.latency_samples,
                speedup_samples=outcome.ratio_samples,
                check_error=passed.accuracy.norm,
                accuracy=passed.accuracy,
                deterministic=passed.deterministic,
                costs=estimates_of(meters, arm, outcome.ratio is not None),
                note="; ".join(filter(None, (family.note, note, *reasons_of(meters, arm), *missing))),
                wall_s=wall / len(outcomes),
                code=self.observer.code(CaseKey(suite.name, arms[arm], case.label)),
            )
        return list(records.values())

    def _check(self, suite: Suite, case: Case, l2: str, family: Family, name: str, trusted: Trusted) -> Checked:
        """Check the variant, or return its earlier result: the cold and the warm series of a case share one check."""
        if name not in family.variants:
            raise NotImplementedError("the variant is not in this commit")
        if reason := skip_reason(suite, name, case):
            raise NotImplementedError(reason)
        if self.history and not in_history(suite, name, case, l2):
            raise NotImplementedError("a history measures this variant at other cases only (full_history of its suite)")
        key = suite.name, case.label, name
        if key not in self._checked:
            self.listener("check", name)
            cuda = self.device.kind == "cuda"
            try:
                # A CPU loads no kernel, and watching imports Triton, which takes 0.1 s.
                watched = self.observer.watch(CaseKey(suite.name, name, case.label)) if cuda else nullcontext()
                with watched:
                    self._checked[key] = trusted.guarded(lambda: self._checker_of(suite, case).check(family, name))
            except torch.cuda.OutOfMemoryError:
                self.device.release()
                self._checked[key] = MemoryError("the device has too little memory for its check")
            except Exception as error:
                self._checked[key] = without_frames(error)
        known = self._checked[key]
        if isinstance(known, Exception):
            raise known
        return known

    def _checker_of(self, suite: Suite, case: Case) -> Checker:
        """Return the inputs and reference of a case. Only those of the last case stay in memory."""
        if self._checker is None or self._checker.suite is not suite or self._checker.case != case:
            self._checker = Checker.draw(suite, case, self.device.torch_device, self.seed)
        return self._checker

    def _sizes(self, suite: Suite, case: Case, family: Family, names: Sequence[str]) -> tuple[dict[str, int], int]:
        """Return the bytes that one call of each variant touches, and the bytes of all their tensors together."""
        key = suite.name, case.label, tuple(names)
        if key not in self._touched:
            checker = self._checker_of(suite, case)
            widths = [tensor.element_size() for tensor in tensors_of(checker.inputs) if tensor.dtype != torch.bool]
            self._narrowest[suite.name, case.label] = min(widths, default=1)
            out = [checker.out] if checker.out is not None else list(checker.reference)
            touched = {name: tensors_of([checker.arguments(family, name), out]) for name in names}
            together = {id(tensor): tensor for tensors in touched.values() for tensor in tensors}
            self._touched[key] = (
                {name: size_of(tensors) for name, tensors in touched.items()},
                size_of(together.values()),
            )
        return self._touched[key]

    def _compare(
        self,
        suite: Suite,
        case: Case,
        family: Family,
        arms: Mapping[str, str],
        sets: int,
        reference_mhz: Mapping[str, float] | None,
        trusted: Trusted,
        meters: Sequence[CostMeter],
    ) -> tuple[dict[str, Outcome], dict[str, Exception], str]:
        """Time the arms against each other; return outcomes and failures by arm, and a note for the records.

        ``arms`` maps an arm's name to its variant's name.
        """
        # Free the check's tensors before the sets are drawn, because both together may not fit.
        self._checker = None
        with self.stages.stage("draw"):
            self.device.release()

        thorough = not self.history or random.SystemRandom().random() < THOROUGH
        epochs = Epochs(suite, case, self.device, family, arms, sets, thorough, self.stages, self.listener)
        # Placement moves some ratios by percents (kda's eight products: 3.5 % from one epoch to the next), so every run
        # and commit gets the same sequence of placements.
        seed = zlib.crc32(f"{suite.name} {case.label}".encode()) ^ self.places
        result = compare(
            epochs.draw_arms,
            list(arms),
            suite.baseline,
            self.device,
            self.controls,
            self.plan,
            seed,
            self.stages,
            reference_mhz,
            epochs.listen,
            trusted,
            epochs.verify,
            epochs.restore if suite.inout else None,
            early=thorough,
            meters=meters,
        )
        return result.outcomes, result.failures, result.note

    def _meters(
        self,
        costs: Sequence[str],
        baseline: str,
        arms: Sequence[str],
        reference_mhz: Mapping[str, float],
        trusted: Trusted,
    ) -> tuple[list[CostMeter], list[str]]:
        """Create the meters of the requested costs, always in the same order. Return why others have no meter here."""
        cuda = self.device.kind == "cuda"
        meters: list[CostMeter] = []
        missing = []
        if "behind" in costs:
            meters.append(Behind(self.device, self.plan, baseline, arms, reference_mhz, trusted))
        if "host" in costs:
            if cuda:
                meters.append(HostTime(self.device, CudaSpinner()))
            else:
                missing.append(f"no host: {NO_HOST}")
        if "energy" in costs:
            if cuda and (counter := cuda_counter()):
                meters.append(Energy(self.device, self.plan, counter, CudaMark, trusted))
            else:
                missing.append("no energy: no GPU here that counts its energy")
        return meters, missing


def _misspelt(error: NotInCommit) -> str:
    return f"the working tree has no {error.lacks}"
