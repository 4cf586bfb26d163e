"""Compare two toolchains in pairs of processes, because one process can import only one toolchain.

Each side is measured by separate processes, as ``lockstep measure`` does, and the two sides take turns. A process
places its code and its buffers in memory once, so the times of two processes with the same code differ: on an H200
without locked clocks, by 2 to 5 %. So the independent unit is a pair of processes. A pair gives one ratio per case, and
the tests of ``lockstep.gate.sequential`` count pairs instead of epochs. Their error rates hold, but only far larger
changes are found.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median, stdev

from lockstep.asv.client import WorkerSpec
from lockstep.asv.recorder import Recorder, Target
from lockstep.gate.case_verdict import SeriesKey, SideFacts, Verdict
from lockstep.gate.plan import Selection, groups
from lockstep.gate.process_pairs.pair_trial import PairTrial
from lockstep.gate.report.report import percent
from lockstep.gate.request import Request
from lockstep.gate.sequential import MOST_SAME, Test, interval, relative
from lockstep.gate.trees import Version
from lockstep.processes.watched_worker import WorkerDied
from lockstep.record.model import Record
from lockstep.record.provenance import clocks_of
from lockstep.timing.clocks.reference_clocks import ReferenceClocks

#: Facts of a machine for which the report shows base's and head's value if these differ.
_TOOLS = ("driver", "torch", "triton", "ptxas", "python")


class ProcessPairs:
    """Compares the selected cases in processes that alternate between the two toolchains.

    Args:
        base, head: the versions, with their toolchains.
        spec: how to start a process; tree, toolchain and seed are set for each process.
        say: called with each line of progress.
    """

    def __init__(
        self, base: Version, head: Version, request: Request, spec: WorkerSpec, say: Callable[[str], None]
    ) -> None:
        self._versions = {"base": base, "head": head}
        self._spec = spec
        self._request = request
        self._say = say
        self._clocks = ReferenceClocks()
        self._open: Recorder | None = None
        self.machine: dict[str, str] = {}
        self.verdicts: dict[SeriesKey, Verdict] = {}
        self.notes: list[str] = []
        # Results that exist only if one process measures both versions.
        self.aa_verdicts: list[Verdict] = []
        self.controls: Mapping[str, Mapping[str, float | str]] = {}
        self.absent: tuple[str, ...] = ()
        self.compared_s = 0.0

    def start(self) -> Mapping[str, str]:
        """Start a process for base and one for head. Return facts of the machine; versions that differ are "old → new".

        Raises:
            WorkerDied: a process does not start.
        """
        hosts = {side: self._host(side) for side in self._versions}
        facts = hosts["head"]
        self.machine = {**facts, "clock_state": "cpu" if facts["device"] == "cpu" else clocks_of(facts).label}
        for name in _TOOLS:
            before, after = (hosts[side].get(name, "") for side in ("base", "head"))
            if before != after:
                self.machine[name] = f"{before or 'none'} → {after or 'none'}"
        return self.machine

    def judge(
        self, selection: Selection, seed: int, budget_s: float, reasons: Callable[[SeriesKey], tuple[str, ...]]
    ) -> None:
        """Measure pairs of processes and fill ``verdicts``. Cases that are undecided when the budget ends stay unsure.

        Args:
            seed: seed from which each pair derives the seed of its buffers and its order.
            budget_s: seconds after which no further case is measured.
            reasons: returns what differs in the code of a case.
        """
        variants_of = {name: dict.fromkeys(suite.variants(), ("", 0)) for name, suite in selection.suites.items()}
        keys = list(selection.keys({name: {"head": SideFacts(variants)} for name, variants in variants_of.items()}))
        trials = {key: PairTrial(self._test(key, len(keys)), "pairs of processes") for key in keys}
        versions = {name: suite.digest() for name, suite in selection.suites.items()}
        deadline, chance, number = time.monotonic() + budget_s, random.Random(seed), 0
        self.verdicts = {key: trial.verdict(key) for key, trial in trials.items()}
        while (undecided := [key for key in keys if not trials[key].over]) and time.monotonic() < deadline:
            records: dict[str, dict[SeriesKey, Record]] = {}
            # The order alternates, so that each side is first equally often.
            sides = ("base", "head") if number % 2 else ("head", "base")
            place = chance.getrandbits(48)
            for side in sides:
                records[side] = dict(self._process(side, undecided, versions, place, deadline))
            for key in undecided:
                if key in records["base"] and key in records["head"]:
                    add_records(trials[key], key, records["base"][key], records["head"][key])
                    self.verdicts[key] = self._dressed(replace(trials[key].verdict(key), code=reasons(key)))
            number += 1
            self._say(f"pair {number} of processes: {sum(not trials[key].over for key in keys)} cases undecided")
        self._note([trial for trial in trials.values() if len(trial.seconds) > 1], number)

    def close(self) -> None:
        """End the process that is running, if any."""
        if self._open is not None:
            self._open.close()

    def _host(self, side: str) -> Mapping[str, str]:
        with_host = self._recorder(side, 0)
        try:
            return with_host.host
        except WorkerDied as died:
            raise WorkerDied("", f"{side} under {self._name(side)}: {died.how}", at_start=True) from died
        finally:
            self.close()

    def _process(
        self, side: str, undecided: Sequence[SeriesKey], versions: Mapping[str, str], seed: int, deadline: float
    ) -> Iterator[tuple[SeriesKey, Record]]:
        """Measure each case in one process of base or head (``side``) and yield its record, until the time is over."""
        recorder = self._recorder(side, seed)
        try:
            for group in groups(undecided):
                if time.monotonic() >= deadline:
                    return
                measured = recorder.measure(
                    group.suite, group.case, group.l2, list(group.variants), versions[group.suite]
                )
                records = {record.variant: record for record in measured}
                yield from ((key, records[key.variant]) for key in group.cases() if key.variant in records)
        finally:
            self.close()

    def _recorder(self, side: str, seed: int) -> Recorder:
        version = self._versions[side]
        folders = version.tree.toolchain.folders
        spec = replace(self._spec, checkout=version.tree.root, folders=folders, seed=seed)
        nowhere = Target(version.commit, "lockstep", "", "", "", None)
        self._open = Recorder(
            nowhere, spec, self._request.silence_s, say=self._say, ahead=False, reference_clocks=self._clocks
        )
        return self._open

    def _name(self, side: str) -> str:
        return self._versions[side].tree.toolchain.name

    def _test(self, key: SeriesKey, cases: int) -> Test:
        threshold = self._request.thresholds.of(key.suite, key.variant, key.case, key.l2)
        least = threshold.min_effect if self._request.min_effect is None else self._request.min_effect
        return Test(least, 1 - threshold.confidence, cases, max(MOST_SAME, least))

    def _dressed(self, verdict: Verdict) -> Verdict:
        """Return the verdict, with the reason from thresholds.toml if that file accepts the slowdown."""
        if verdict.outcome != "slower" or verdict.change is None:
            return verdict
        key, request = verdict.key, self._request
        accepted = request.thresholds.accepted(
            key.suite, key.variant, key.case, key.l2, verdict.change.value, request.about
        )
        return replace(verdict, accepted=accepted.because if accepted else "")

    def _note(self, trials: Sequence[PairTrial], pairs: int) -> None:
        self.notes.append(
            f"base ran under {self._name('base')}, head under {self._name('head')}, in {pairs} pairs of processes: "
            "one process holds one toolchain, and a pair gives one ratio a case"
        )
        if not trials:
            return
        scatter = median(stdev(ratios) for trial in trials for ratios in trial.rounds if len(ratios) > 1)
        reach = median(
            (change.high - change.low) / 2
            for trial in trials
            if (change := relative(interval(trial.rounds[0], trial.test.alpha)))
        )
        self.notes.append(
            f"ratios scatter by {percent(scatter)} from one pair of processes to the next, and intervals reach "
            f"± {percent(reach)} (medians of the cases)"
        )


def add_records(trial: PairTrial, key: SeriesKey, base: Record, head: Record) -> None:
    """Add the records of a pair of processes to the trial of their case."""
    if base.latency is None or head.latency is None:
        trial.refusal = _refused(key, base, head)
    else:
        trial.add(base.latency.value, head.latency.value)


def _refused(key: SeriesKey, base: Record, head: Record) -> Verdict:
    """Return the verdict on a case that base or head, or both, cannot run."""
    if head.state == "na":
        if base.state == "ok":
            return Verdict(key, "removed", f"head: {head.reason}")
        return Verdict(key, "na", head.reason)
    if head.state == "failed":
        return Verdict(key, "failed", head.reason, in_base=base.state == "failed")
    if base.state == "na":
        return Verdict(key, "new", base.reason or "base does not support it")
    return Verdict(key, "new", f"nothing to compare with, base failed: {base.reason}")
