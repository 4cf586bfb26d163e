"""Measure one case: check every variant, then time all variants in turn with the baseline."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from lockstep.record.model import Record
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.variants import Family, NotInCommit, load_family
from lockstep.timing.case_measurement import CaseMeasurement, misspelt
from lockstep.timing.checks.baseline_as_reference import take_as_standard
from lockstep.timing.checks.check import brief
from lockstep.timing.device import DeviceLost
from lockstep.timing.instruments import CaseInstruments
from lockstep.timing.rules.changed_shared_code import Trusted
from lockstep.timing.rules.rule import Disqualified

#: Share of a history's cases, chosen at random, that are also verified after an early epoch. ``lockstep measure``
#: verifies every case this way, because its run time matters less.
THOROUGH = 0.1


@dataclass
class Measurer(CaseInstruments):
    """Measures cases on one device.

    Attributes:
        load: returns a suite's variants; by default those that the module of its family defines.
        trusted: the original functions that measuring relies on; they must be taken before a variant is imported.
    """

    load: Callable[[Suite], Family] = load_family
    trusted: Trusted = field(default_factory=Trusted)

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

        Raise ``DeviceLost`` if a variant broke the CUDA context, or replaced a trusted function while several were
        timed.

        Args:
            variants: names of the variants; unknown names get the state "na".
            failed: variants known to kill or hang a process, with the reason; they are not run.
            twins: variants measured a second time as an A/A comparison, under their name + ``TWIN``.
            reference_mhz: clock to which a variant's speedup is normalised; by default the variant's mean clock in this
                measurement.
            costs: what to measure besides latency and speedup, names of ``lockstep.record.quantity.COSTS``.
        """
        names = list(dict.fromkeys([suite.baseline, *variants]))
        thorough = not self.history or random.SystemRandom().random() < THOROUGH
        measurement = CaseMeasurement(self, suite, case, l2, names, thorough=thorough)
        for name, reason in (failed or {}).items():
            measurement.fail(name, reason)
        if reason := self._cannot_time(suite, case, l2):
            return measurement.give_up(reason)
        self.listener("load", "")
        try:
            try:
                with self.stages.stage("import"):
                    family = self.load(suite)
            finally:
                self.trusted.accept_settings()
                self.trusted.require()
        except NotInCommit as error:
            return measurement.give_up(*((str(error),) if self.history else (misspelt(error), "failed")))
        except Disqualified as error:
            reason = f"the import of {suite.module} {error.evidence}"
            return measurement.give_up(reason, "failed", error.rule)
        except (Exception, SystemExit) as error:
            return measurement.give_up(f"{suite.module} cannot be imported: {brief(error)}", "failed")
        take_as_standard(suite, family)
        trusted = self.trusted.with_variants(family.variants)
        with self.stages.stage("check"):
            measurement.check(family, trusted)
        try:
            with self.stages.stage("check"):
                timed = measurement.prepare(family, twins)
            if timed:
                measurement.time(trusted, reference_mhz or {}, costs, family.note)
        except NotImplementedError as error:
            return measurement.give_up(str(error))
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            return measurement.give_up("out of memory for this case's argument sets", "failed")
        except Disqualified as error:
            raise DeviceLost("", error.evidence, error.rule) from error
        return measurement.result()

    def _cannot_time(self, suite: Suite, case: Case, l2: str) -> str:
        """Return why this device times nothing of a case; "" if it does."""
        if self.device.kind == "cpu" and (case not in suite.quick or l2 == "cold"):
            return "no GPU here; a CPU measures only the suite's quick cases, with a warm cache"
        if self.device.kind == "cuda" and suite.inout and l2 == "warm":
            return "it writes its inputs, so a replay calls each set once, and one call is too short to time"
        if self.device.kind == "cuda" and case not in suite.cases:
            return "a quick case, which only machines without a GPU measure"
        return ""
