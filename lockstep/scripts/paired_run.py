"""Compare two versions that one process cannot hold: one process for each, which wait for each other at each call.

The processes time a call alternately, an epoch each, so that drift of clocks and temperature cancels. The times of two
processes with the same code differ by 0.5 to 1.3 %, because each places its code and its heap elsewhere. So a change
below ``LEAST`` never counts, and two other processes must find each difference again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.gate.case_verdict import Measured, Trial
from lockstep.gate.model import Verdict, is_release
from lockstep.gate.sequential_decision import MOST_SAME, Test
from lockstep.processes.watched_worker import Watched, WorkerDied
from lockstep.processes.worker import spelled
from lockstep.record.file import record_from
from lockstep.scripts.client import MOST_DEATHS, SILENCE_S, Outcome
from lockstep.scripts.judge_call import judged, refused
from lockstep.scripts.plan import BASE, HEAD, Plan

#: Smallest change that counts, as a share.
LEAST = 0.02

#: What a report says about such a comparison.
APART = (
    "each version ran in a process of its own, whose placement in memory moves times by about 1 %: changes count from "
    f"{LEAST:.0%} on"
)

#: Seconds that a call needs for a verdict, about.
LEAST_S = 4.0

#: Case and variant of a call.
Label = tuple[str, str]


@dataclass
class _Pair:
    """The processes of both versions. Each stands at a call of its script, or at the script's end."""

    workers: Mapping[str, Watched]
    found: Mapping[str, Mapping[str, Any]]
    at: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def ask(self, side: str, answer: str, **request: Any) -> dict[str, Any]:
        """Return the answer of a version's process to a request; ``WorkerDied`` names the side."""
        try:
            self.workers[side].ask(request)
            return self.workers[side].wait(answer)
        except WorkerDied as died:
            raise WorkerDied(side, died.how) from died

    def calls(self, side: str) -> list[Label]:
        """Return the calls that a version's script makes."""
        return [(case, variant) for case, variant in self.found[side]["calls"]]

    def walk(self, labels: Sequence[Label]) -> Iterator[Label]:
        """Yield each of these calls when both processes stand at it, without those that a version cannot set up."""
        numbers = {side: [self.calls(side).index(label) for label in labels] for side in self.workers}
        self.at = {side: self.ask(side, "at", take=taken) for side, taken in numbers.items()}
        for position, label in enumerate(labels):
            there = [side for side, at in self.at.items() if at["number"] == numbers[side][position]]
            if len(there) == len(self.workers):
                yield label
            self.at |= {side: self.ask(side, "at", next=True) for side in there}


@dataclass
class PairedRun:
    """A comparison of two versions by a script.

    Attributes:
        plan: the settings; its sides are the versions. ``min_effect`` should be at least ``LEAST``.
        names: the name of each version, by side; its packages are in the side's root.
    """

    plan: Plan
    names: Mapping[str, str]
    say: Callable[[str], None]
    _trials: dict[Label, Trial] = field(default_factory=dict)
    _notes: dict[Label, str] = field(default_factory=dict)
    _places: dict[Label, tuple[str, int]] = field(default_factory=dict)
    _test: Test = field(default_factory=lambda: Test(LEAST, 0.01, 1))

    def run(self, outcome: Outcome) -> Iterator[int]:
        """Fill ``outcome``, and yield the number of each call that is done (``lockstep.scripts.client.run_plan``)."""
        try:
            with tempfile.TemporaryDirectory(prefix="lockstep-outputs-") as folder:
                file = Path(folder, "outputs")
                for label in self._pass(None, outcome, file):
                    if self._trials[label].over:
                        yield self._give(label, outcome)
                again = [label for label, trial in self._trials.items() if len(trial.passes) == 2 and not trial.over]
                for label in self._pass(again, outcome, file):
                    yield self._give(label, outcome)
        except WorkerDied as died:
            outcome.trouble = f"{self.names[died.variant]}: {died.how}"
        for label in self._trials:
            if outcome.calls.index(label) not in outcome.verdicts:
                yield self._give(label, outcome)

    def _pass(self, labels: Sequence[Label] | None, outcome: Outcome, file: Path) -> Iterator[Label]:
        """Compare calls in new processes, for ``None`` those that the plan chooses; yield each that was compared.

        Where one process dies, two others go on with the next call. Base writes its outputs to ``file``.
        """
        left_s, deaths = self.plan.budget_s / 2, 0
        while labels is None or (labels and left_s > 0 and deaths < MOST_DEATHS):
            with self._pair(outcome) as pair:
                labels = self._chosen(pair, outcome) if labels is None else labels
                before = deaths
                for label in pair.walk(labels):
                    labels = labels[labels.index(label) + 1 :]
                    seconds, started = max(left_s / (2 if labels else 1), LEAST_S), time.monotonic()
                    deaths += not self._compare(pair, label, seconds, file)
                    left_s -= time.monotonic() - started
                    yield label
                    if left_s <= 0 or deaths > before:
                        break
                else:
                    outcome.errors |= {side: at["error"] for side, at in pair.at.items() if at["error"]}
                    for side, at in pair.at.items():
                        calls = pair.calls(side)
                        known = {outcome.calls.index(calls[int(of)]): why for of, why in at["refused"].items()}
                        outcome.refused.setdefault(side, {}).update(known)
                    return

    @contextmanager
    def _pair(self, outcome: Outcome) -> Iterator[_Pair]:
        """Start the processes of both versions, and end them after the block."""
        with ExitStack() as stack:
            workers = {}
            for side, own in self.plan.sides.items():
                plan, folders = replace(self.plan, sides={HEAD: own}, served=True), []
                if is_release(self.names[side]):  # maybe of torch or Triton, which Lockstep imports itself
                    plan, folders = replace(plan, packages=()), [Path(own.root)]
                words = [spelled(plan)]
                workers[side] = Watched("lockstep.scripts.worker", words, SILENCE_S, folders=folders, warm=True)
                workers[side].say = self.say
                stack.callback(workers[side].close, 1.0)
            found = {}
            for side, worker in workers.items():
                try:
                    ready = worker.started()
                    found[side] = worker.wait("found")
                except WorkerDied as died:
                    raise WorkerDied(side, died.how) from died
            outcome.machine = {**ready["host"], "clock_state": ready["clock_state"]}
            yield _Pair(workers, found)

    def _chosen(self, pair: _Pair, outcome: Outcome) -> list[Label]:
        """Return the calls to compare; tell of those that one version alone makes."""
        calls = {side: pair.calls(side) for side in pair.workers}
        outcome.calls = calls[HEAD]
        outcome.errors = {side: found["errors"][HEAD] for side, found in pair.found.items() if found["errors"][HEAD]}
        if calls[HEAD] and not calls[BASE] and (error := outcome.errors.get(BASE)):
            outcome.trouble = f"{self.names[BASE]}: the script ended before its first timed call: {error}"
        for side, other in ((HEAD, BASE), (BASE, HEAD)):
            lacks = f"the script makes no such call with {self.names[other]}"
            for label in (calls[side][number] for number in self.plan.selected(calls[side])):
                if label not in calls[other] and side == HEAD:
                    outcome.verdicts[calls[HEAD].index(label)] = Verdict(self.plan.key(label), "new", lacks)
                elif label not in calls[other] and not outcome.errors.get(HEAD):
                    removed = Verdict(self.plan.key(label), "removed", lacks)
                    outcome.extra += [removed] if removed not in outcome.extra else []
        chosen, least = sorted(self.plan.chosen(calls[HEAD], outcome.done)), self.plan.min_effect
        self._test = Test(least, 1 - self.plan.confidence, len(self.plan.selected(calls[HEAD])), max(MOST_SAME, least))
        return [calls[HEAD][number] for number in chosen]

    def _compare(self, pair: _Pair, label: Label, seconds: float, file: Path) -> bool:
        """Add measurements to a call's trial until its pass or the time ends; return whether both processes live."""
        trial = self._trials.setdefault(label, Trial(self._test, "pairs"))
        started, passes = time.monotonic(), len(trial.passes)
        self._places[label] = tuple(pair.at[HEAD]["place"])
        try:
            trial.refusal = self._checked(pair, label, file)
            while not trial.over and len(trial.passes) == passes:
                if trial.count and time.monotonic() > started + seconds:
                    break
                order = (BASE, HEAD) if trial.count % 2 else (HEAD, BASE)
                records = {side: record_from(pair.ask(side, "record", time=True)["record"]) for side in order}
                times = {side: record.latency.value for side, record in records.items() if record.latency}
                if len(times) == 2:
                    trial.add(Measured(times[BASE], times[HEAD]))
                else:
                    errors = {side: record.reason for side, record in records.items() if not record.latency}
                    trial.refusal = self._refused(label, errors)
        except WorkerDied as died:
            trial.refusal = self._refused(label, {died.variant: died.how})
            return False
        finally:
            trial.wall_s += time.monotonic() - started
        return True

    def _checked(self, pair: _Pair, label: Label, file: Path) -> Verdict | None:
        """Return the verdict on a call that a version cannot run or whose result is wrong; ``None`` on others."""
        file.unlink(missing_ok=True)
        outputs = {side: pair.ask(side, "output", output=str(file)) for side in (BASE, HEAD)}
        if errors := {side: output["error"] for side, output in outputs.items() if output["error"]}:
            return self._refused(label, errors)
        base, head = outputs[BASE], outputs[HEAD]

        def changes() -> bool:
            return bool(pair.ask(BASE, "output", output=str(file), keep=head["differing"])["wrong"])

        key, unequal = self.plan.key(label), {*head["differing"]}
        verdict, self._notes[label] = judged(key, head["given"], head["wrong"], unequal, base["changed"], changes)
        return verdict

    def _refused(self, label: Label, errors: Mapping[str, str]) -> Verdict:
        return refused(self.plan.key(label), {side: f"{self.names[side]}: {why}" for side, why in errors.items()})

    def _give(self, label: Label, outcome: Outcome) -> int:
        number, trial = outcome.calls.index(label), self._trials[label]
        verdict = trial.verdict(self.plan.key(label))
        reason = "; ".join(filter(None, (verdict.reason, self._notes.get(label, ""))))
        file, line = self._places.get(label, ("", 0))
        outcome.verdicts[number] = replace(verdict, reason=reason, file=file, line=line)
        return number
