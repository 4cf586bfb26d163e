"""Compare a candidate with its incumbent, each in a process of its own. The judge holds clock, values and reference.

The process of a candidate serves that candidate alone. The process of the incumbent is entered by no candidate, and is
renewed for each final. While one of the two runs, the other is stopped, and its processor time proves it.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from lockstep.processes.watched_worker import WorkerDied
from lockstep.referee import sandbox
from lockstep.referee.contestant import Contestant, Inputs
from lockstep.referee.drawn_case import DrawnCase
from lockstep.referee.error_rate import EPOCHS, Evidence, Stage
from lockstep.referee.open_problem import open_problem
from lockstep.referee.problem_definition import ProblemDefinition, Refused, Submission
from lockstep.referee.verdict import Compared
from lockstep.suite.checkout import import_from
from lockstep.suite.definition import SuiteError
from lockstep.suite.inputs import tensors_of
from lockstep.timing.checks.check import Checker, WrongResult
from lockstep.timing.checks.determinism import bits_of
from lockstep.timing.device import open_device
from lockstep.timing.rules.rule import Disqualified, Rule

#: In an epoch the two run in turn, in random order, until the two fastest runs of each differ by less than ``AGREE``,
#: but ``MOST_RUNS`` times at most. The fastest counts, because other work only adds time (Chen & Revels 2016, "Robust
#: benchmarking in noisy environments").
AGREE, MOST_RUNS = 1.03, 8

#: Seconds that a run should take, maximum number of sets of a run, and bytes that all sets may take, by kind of device.
#: A run costs 0.1 to 0.4 ms beside its calls. On a GPU the sets may take ``1 / _GPU_SHARE`` of the memory.
RUN_S = {"cpu": 2e-2, "cuda": 2e-2}
MOST_SETS = {"cpu": 128, "cuda": 512}
CPU_BYTES, _GPU_SHARE = 32 << 20, 10

#: Sets of a run whose outputs are compared. Once in each stage all sets are.
SAMPLED = 3

#: The incumbent's fastest runs beside a candidate and alone may differ by this much for other reasons.
_SLOWED = 0.01


class Judge:
    """Judges the candidates of one problem. Call ``close`` at the end. Raise ``SuiteError`` if the problem cannot be
    used.

    Attributes:
        incumbent: name of the implementation that the problem itself gives as the one to beat, or "".
        unconfirmed: why no verdict is confirmed on this machine, or "".
    """

    def __init__(self, source: ProblemDefinition, silence_s: float) -> None:
        self._source, self._silence_s = source, silence_s
        self._device = open_device()
        try:
            self._problem = open_problem(source, self._device)
        except OSError as error:
            raise SuiteError(str(error)) from error
        # Imports of the code under test fail here, because a suite whose reference calls that code cannot judge it.
        import_from(Path(os.devnull), source.packages)
        self.incumbent = self._problem.name
        self.unconfirmed = sandbox.missing()
        self._chance = random.SystemRandom()
        #: The submission and its process, by role: "candidate" or "incumbent".
        self._running: dict[str, tuple[Submission | None, Contestant]] = {}
        self.notes = self._problem.facts()
        self._cases = [DrawnCase(self._problem, case, self._device) for case in self._problem.cases]
        self.notes += [case.note for case in self._cases if case.note]

    def open(self, incumbent: Submission | None) -> None:
        """Check the incumbent alone, and choose the number of sets of a run by its time.

        Raise ``Refused`` or ``WorkerDied`` or ``Disqualified`` if the incumbent does not run, or its result is wrong.
        """
        rival = self._process("incumbent", incumbent)
        for case in self._cases:
            rival.begin(case.inputs, case.out, case.results, 1)
            self._check(rival, case)
            most = max(1, min(MOST_SETS[self._device.kind], self._bytes() // max(case.set_bytes, 1)))
            case.most_sets = min(most, self._sets_for(rival, case, RUN_S[self._device.kind]))
            case.move(rival)

    def measure(self, candidate: Submission, incumbent: Submission | None, stage: Stage) -> list[Compared]:
        """Compare a candidate with the incumbent at every case. The final runs both in new processes.

        Raises:
            Disqualified: the candidate's result is wrong, or it broke another rule.
            Refused: the candidate cannot be loaded, or raises an error.
            WorkerDied: the candidate's process hung or died.
            RivalFailed: the incumbent failed.
        """
        if stage == "final":
            self.close()
        contestant = self._process("candidate", candidate)
        results = []
        for case in self._cases:
            if not any(tensors_of(case.inputs[name]) for name in case.inputs if name not in contestant.prepared):
                raise Disqualified(Rule.OUT_OF_TURN, "prepares from every input: state the activations of the suite")
            if stage == "screen":
                contestant.begin(case.inputs, case.out, case.results, 1)
                self._check(contestant, case)
                # Fewer calls of a slow candidate than of the incumbent alone.
                case.sets = min(case.most_sets, self._sets_for(contestant, case, 5 * RUN_S[self._device.kind]))
            try:
                rival = self._process("incumbent", incumbent)
                rival.begin(case.inputs, case.out, case.results, case.sets)
            except Exception as error:
                raise RivalFailed(str(error)) from error
            contestant.begin(case.inputs, case.out, case.results, case.sets)
            results.append(self._compare(contestant, rival, case, EPOCHS[stage]))
        return results

    def _sets_for(self, contestant: Contestant, case: DrawnCase, seconds: float) -> int:
        """Return how many calls of a contestant that has begun with one set take so many seconds."""
        one_s = min(contestant.run([case.draw()], [])[0] for _ in range(3)) - contestant.idle_s
        return max(1, math.ceil(seconds / max(one_s, 1e-6)))

    def alone(self, incumbent: Submission | None, beside: Sequence[Compared]) -> float:
        """Time the incumbent again without the candidate; return how much slower it was beside it (mean log, ≥ 0)."""
        rival = self._process("incumbent", incumbent)
        slowed = []
        for compared, case in zip(beside, self._cases, strict=True):
            if len(self._cases) > 1:
                rival.begin(case.inputs, case.out, case.results, case.sets)
            runs = [rival.run(case.values(), [])[0] for _ in range(2 * EPOCHS["repeat"])]
            fastest = max(min(runs) - rival.idle_s, min(runs) / 2) / case.sets
            ratio = math.log(compared.incumbent_s / fastest)
            slowed.append(ratio if ratio > _SLOWED else 0.0)
        return max(fmean(slowed), 0.0)

    def dismiss(self, role: str = "candidate") -> None:
        """End the process of the candidate, or that of the incumbent."""
        if role in self._running:
            self._running.pop(role)[1].close()

    def close(self) -> None:
        """End both processes."""
        self.dismiss()
        self.dismiss("incumbent")

    def _process(self, role: str, submission: Submission | None) -> Contestant:
        """Return the process of a submission, started if needed; another submission's in this role ends."""
        if role not in self._running or self._running[role][0] != submission:
            self.dismiss(role)
            size = max([self._bytes(), *(case.set_bytes for case in self._cases)])
            readable, device = self._problem.readable, self._device
            contestant = Contestant(self._source, submission, readable, device, size, self._silence_s)
            self._running[role] = submission, contestant
        return self._running[role][1]

    def _bytes(self) -> int:
        return CPU_BYTES if self._device.kind == "cpu" else self._device.memory_bytes * 4 // _GPU_SHARE

    def _check(self, contestant: Contestant, case: DrawnCase) -> None:
        """Check results before any timing: on the problem's own values, and on those of other distributions."""
        drawn = {"": case.draw()} | case.moved
        for name, inputs in drawn.items():
            checker = Checker.of(self._problem.suite, case.case, self._seen(contestant, inputs, case))
            _, [outputs] = contestant.run([inputs], [0])
            try:
                self._judge(contestant, checker, outputs, 0)
            except WrongResult as error:
                raise WrongResult(error.evidence + (f", on inputs that are {name}" if name else "")) from error

    def _seen(self, contestant: Contestant, drawn: Inputs, case: DrawnCase) -> dict[str, Any]:
        """Return the inputs that a call gets: those that its preparation takes keep their first values."""
        return {name: case.inputs[name] if name in contestant.prepared else value for name, value in drawn.items()}

    def _judge(self, contestant: Contestant, checker: Checker, outputs: list[torch.Tensor], number: int) -> float:
        accuracy = checker.compare(contestant.name, outputs)
        now = contestant.inputs(number)
        checker.compare_written(contestant.name, outputs, now)
        for name, value in checker.inputs.items():
            pairs = zip(map(bits_of, tensors_of(now[name])), map(bits_of, tensors_of(value)), strict=True)
            if name not in self._problem.suite.inout and not all(torch.equal(*pair) for pair in pairs):
                raise Disqualified(Rule.WRITTEN_INPUT, f"{contestant.name} wrote into its input {name}")
        return accuracy.norm

    def _compare(self, contestant: Contestant, rival: Contestant, case: DrawnCase, epochs: int) -> Compared:
        """Run both in turn, in epochs on new values, and compare the outputs of each run of the candidate."""
        ratios, own_s, rival_s, worst = [], [], [], 0.0
        complete = self._chance.randrange(epochs)  # all sets are compared after this epoch's first run
        for epoch in range(epochs):
            seconds: dict[Contestant, list[float]] = {contestant: [], rival: []}
            while not _settled(seconds.values()):
                values = case.values()
                every = epoch == complete and not seconds[rival]
                sampled = self._chance.sample(range(case.sets), case.sets if every else min(SAMPLED, case.sets))
                outputs = {}
                for one in self._chance.sample([contestant, rival], 2):
                    try:
                        taken, outputs[one] = one.run(values, sampled)
                    except (Disqualified, Refused, WorkerDied) as failure:
                        if one is rival:
                            raise RivalFailed(str(failure)) from failure
                        raise
                    seconds[one].append(taken)
                for place, number in enumerate(sampled):
                    checker = Checker.of(self._problem.suite, case.case, self._seen(contestant, values[number], case))
                    try:
                        error = self._judge(contestant, checker, outputs[contestant][place], number)
                    except WrongResult as wrong:
                        raise Disqualified(Rule.TIMED_RESULT, f"in a timed run, {wrong.evidence}") from wrong
                    worst = max(worst, error)
            times = {one: min(each) for one, each in seconds.items()}
            # The cost of a run is known from runs before the code under test was loaded. At most half is taken off.
            cost = min(contestant.idle_s, rival.idle_s, *(time / 2 for time in times.values()))
            own_s.append(times[contestant] - cost)
            rival_s.append(times[rival] - cost)
            ratios.append(math.log(rival_s[-1] / own_s[-1]))
        evidence = Evidence(fmean(ratios), stdev(ratios) / math.sqrt(epochs), epochs)
        return Compared(case.case.label, evidence, min(own_s) / case.sets, min(rival_s) / case.sets, worst)


class RivalFailed(RuntimeError):
    """The incumbent failed beside a candidate, which cannot have caused it."""


def _settled(seconds: Collection[Sequence[float]]) -> bool:
    """Return whether the runs of an epoch suffice."""
    fastest = [sorted(each)[:2] for each in seconds]
    most = max(map(len, seconds))
    return most >= MOST_RUNS or (most >= 2 and all(second < AGREE * first for first, second in fastest))
