"""Compare a candidate with its incumbent, each in a process of its own. The judge holds clock, values and reference.

The process of a candidate serves that candidate alone. The process of the incumbent is entered by no candidate, and is
renewed for each final. While one of the two runs, the other is stopped, and its processor time proves it.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from lockstep.referee import sandbox
from lockstep.referee.contestant import Contestant, Inputs
from lockstep.referee.distributions import DISTRIBUTIONS, moved, off, random_problem, rounded_elsewhere
from lockstep.referee.error_rate import EPOCHS, Evidence, Stage
from lockstep.referee.open_problem import open_problem
from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.referee.verdict import Compared
from lockstep.suite.case import Case
from lockstep.suite.checkout import import_from
from lockstep.suite.definition import SuiteError
from lockstep.suite.evaluate import inputs_of
from lockstep.suite.inputs import Draw, tensors_of
from lockstep.timing.arms.argument_sets import size_of
from lockstep.timing.checks.check import Checker, WrongResult, bits_of
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


@dataclass
class _Shape:
    """An argument set of a case, by which both processes lay out their memory, and the numbers of sets.

    Attributes:
        set_bytes: bytes of a set.
        most_sets: sets of a run by the time of the incumbent.
        sets: sets of a run by the times of incumbent and candidate.
        moved: inputs of other distributions, by name.
    """

    inputs: Inputs
    out: Any
    results: Any
    set_bytes: int
    most_sets: int = 1
    sets: int = 1
    moved: dict[str, Inputs] = field(default_factory=dict)


class Judge:
    """Judges the candidates of one problem. Call ``close`` at the end.

    Args:
        silence_s: seconds without an answer after which a candidate counts as hung.

    Attributes:
        incumbent: name of the implementation that the problem itself gives as the one to beat, or "".
        notes: what a reader of the verdicts must know about the problem.
        unconfirmed: why no verdict is confirmed on this machine, or "".

    Raises:
        SuiteError: the problem cannot be used.
    """

    def __init__(self, source: ProblemDefinition, silence_s: float) -> None:
        self._source, self._silence_s = source, silence_s
        # Imports of the code under test fail here, because a suite whose reference calls that code cannot judge it.
        import_from(Path(os.devnull), source.packages)
        self._device = open_device()
        try:
            self._problem = open_problem(source, self._device)
        except OSError as error:
            raise SuiteError(str(error)) from error
        self.incumbent = self._problem.name
        self.unconfirmed = sandbox.missing()
        self._chance = random.SystemRandom()
        self._rival: tuple[Submission | None, Contestant] | None = None
        self._candidate: tuple[Submission, Contestant] | None = None
        self.notes = self._problem.facts()
        self._shapes = {case: self._shape(case) for case in self._problem.cases}

    def open(self, incumbent: Submission | None) -> None:
        """Check the incumbent alone, and choose the number of sets of a run by its time.

        Raises:
            Refused, WorkerDied, Disqualified: the incumbent does not run, or its result is wrong.
        """
        rival = self._rival_of(incumbent)
        for case, shape in self._shapes.items():
            rival.begin(shape.inputs, shape.out, shape.results, 1)
            self._check(rival, case, shape)
            most = max(1, min(MOST_SETS[self._device.kind], self._bytes() // max(shape.set_bytes, 1)))
            shape.most_sets = min(most, self._sets_for(rival, case, RUN_S[self._device.kind]))
            shape.moved = self._usable(rival, case)

    def measure(self, candidate: Submission, incumbent: Submission | None, stage: Stage) -> list[Compared]:
        """Compare a candidate with the incumbent at every case. The final runs both in new processes.

        Raises:
            Disqualified: the candidate's result is wrong, or it broke another rule.
            Refused: the candidate cannot be loaded, or raises an error.
            WorkerDied: the candidate's process hung or died.
            RivalFailed: the incumbent failed.
        """
        if stage == "final":
            self.dismiss()
            self._end_rival()
        contestant = self._contestant_of(candidate)
        results = []
        for case, shape in self._shapes.items():
            if not any(tensors_of(shape.inputs[name]) for name in shape.inputs if name not in contestant.prepared):
                raise Disqualified(Rule.OUT_OF_TURN, "prepares from every input: state the activations of the suite")
            if stage == "screen":
                contestant.begin(shape.inputs, shape.out, shape.results, 1)
                self._check(contestant, case, shape)
                # Fewer calls of a slow candidate than of the incumbent alone.
                shape.sets = min(shape.most_sets, self._sets_for(contestant, case, 5 * RUN_S[self._device.kind]))
            try:
                rival = self._rival_of(incumbent)
                rival.begin(shape.inputs, shape.out, shape.results, shape.sets)
            except Exception as error:
                raise RivalFailed(str(error)) from error
            contestant.begin(shape.inputs, shape.out, shape.results, shape.sets)
            results.append(self._compare(contestant, rival, case, shape, EPOCHS[stage]))
        return results

    def _sets_for(self, contestant: Contestant, case: Case, seconds: float) -> int:
        """Return how many calls of a contestant that has begun with one set take so many seconds."""
        one_s = min(contestant.run([self._draw(case)], [])[0] for _ in range(3)) - contestant.idle_s
        return max(1, math.ceil(seconds / max(one_s, 1e-6)))

    def alone(self, incumbent: Submission | None, beside: Sequence[Compared]) -> float:
        """Time the incumbent once more when the candidate's process is gone.

        Returns:
            How much slower it was beside the candidate, as the mean log ratio over the cases; 0 if no slower.
        """
        rival = self._rival_of(incumbent)
        slowed = []
        for compared, (case, shape) in zip(beside, self._shapes.items(), strict=True):
            if len(self._shapes) > 1:
                rival.begin(shape.inputs, shape.out, shape.results, shape.sets)
            runs = [rival.run(self._values(case, shape), [])[0] for _ in range(2 * EPOCHS["repeat"])]
            fastest = max(min(runs) - rival.idle_s, min(runs) / 2) / shape.sets
            ratio = math.log(compared.incumbent_s / fastest)
            slowed.append(ratio if ratio > _SLOWED else 0.0)
        return max(fmean(slowed), 0.0)

    def dismiss(self) -> None:
        """End the candidate's process."""
        if self._candidate is not None:
            self._candidate[1].close()
            self._candidate = None

    def close(self) -> None:
        """End both processes."""
        self.dismiss()
        self._end_rival()

    def _end_rival(self) -> None:
        if self._rival is not None:
            self._rival[1].close()
            self._rival = None

    def _rival_of(self, incumbent: Submission | None) -> Contestant:
        if self._rival is None or self._rival[0] != incumbent:
            self._end_rival()
            self._rival = incumbent, self._start(incumbent)
        return self._rival[1]

    def _contestant_of(self, candidate: Submission) -> Contestant:
        if self._candidate is None or self._candidate[0] != candidate:
            self.dismiss()
            self._candidate = candidate, self._start(candidate)
        return self._candidate[1]

    def _start(self, submission: Submission | None) -> Contestant:
        size = max([self._bytes(), *(shape.set_bytes for shape in self._shapes.values())])
        return Contestant(self._source, submission, self._problem.readable, self._device, size, self._silence_s)

    def _bytes(self) -> int:
        return CPU_BYTES if self._device.kind == "cpu" else self._device.memory_bytes * 4 // _GPU_SHARE

    def _shape(self, case: Case) -> _Shape:
        """Draw an argument set of a case.

        Raises:
            SuiteError: the problem's result is random.
        """
        first = Checker.draw(self._problem.suite, case, self._device.torch_device, self._chance.getrandbits(63))
        self._examine(case, first)
        buffers = tensors_of(first.out)
        if [buffer.shape for buffer in buffers] == [tensor.shape for tensor in first.reference]:
            results = first.out
        else:
            results = [torch.empty(t.shape, dtype=_narrowed(t.dtype), device=t.device) for t in first.reference]
        own = [] if results is first.out else tensors_of(results)
        size = size_of([*tensors_of(first.inputs), *buffers, *own])
        return _Shape(first.inputs, first.out, results, size + 512 * 64)

    def _examine(self, case: Case, first: Checker) -> None:
        """Name a problem whose result is random or the same for all inputs.

        Raises:
            SuiteError: two references of the same inputs differ.
        """
        suite = self._problem.suite
        if self._problem.compares:
            return  # the problem's own comparison decides
        again = Checker.of(suite, case, first.inputs)
        apart = off(first.reference, again.reference)
        if first.reference and apart > max(first.tolerances) and math.isfinite(apart):
            raise random_problem(apart)
        other = Checker.of(suite, case, self._draw(case))
        if off(first.reference, other.reference) <= 1e-6:
            self.notes.append(f"the result is the same for all inputs at {case.label}")

    def _usable(self, rival: Contestant, case: Case) -> dict[str, Inputs]:
        """Return inputs of the distributions on which the problem is well conditioned and the incumbent right.

        There a rounding of each input moves the result by less than a third of the tolerance.
        """
        if not self._problem.varied or self._problem.compares:
            return {}
        usable: dict[str, Inputs] = {}
        for name in DISTRIBUTIONS:
            inputs: dict[str, Any] = moved(self._draw(case), name)
            try:
                checker = Checker.of(self._problem.suite, case, dict(inputs))
                rounded = Checker.of(self._problem.suite, case, rounded_elsewhere(inputs))
                if off(checker.reference, rounded.reference) < max(checker.tolerances) / 3:
                    _, [outputs] = rival.run([inputs], [0])
                    checker.compare(rival.name, outputs)
                    usable[name] = inputs
            except (SuiteError, WrongResult):
                continue
        return usable

    def _check(self, contestant: Contestant, case: Case, shape: _Shape) -> None:
        """Check results before any timing: on the problem's own values, and on those of other distributions.

        Raises:
            Disqualified: a result is wrong, or an input was written.
        """
        drawn = {"": self._draw(case)} | shape.moved
        for name, inputs in drawn.items():
            checker = Checker.of(self._problem.suite, case, self._seen(contestant, inputs, shape))
            _, [outputs] = contestant.run([inputs], [0])
            try:
                self._judge(contestant, checker, outputs, 0)
            except WrongResult as error:
                raise WrongResult(error.evidence + (f", on inputs that are {name}" if name else "")) from error

    def _seen(self, contestant: Contestant, drawn: Inputs, shape: _Shape) -> dict[str, Any]:
        """Return the inputs that a call gets: those that its preparation takes keep their first values."""
        return {name: shape.inputs[name] if name in contestant.prepared else value for name, value in drawn.items()}

    def _judge(self, contestant: Contestant, checker: Checker, outputs: list[torch.Tensor], number: int) -> float:
        accuracy = checker.compare(contestant.name, outputs)
        now = contestant.inputs(number)
        for name, value in checker.inputs.items():
            pairs = zip(map(bits_of, tensors_of(now[name])), map(bits_of, tensors_of(value)), strict=True)
            if name not in self._problem.suite.inout and not all(torch.equal(*pair) for pair in pairs):
                raise Disqualified(Rule.WRITTEN_INPUT, f"{contestant.name} wrote into its input {name}")
        return accuracy.norm

    def _draw(self, case: Case) -> dict[str, Any]:
        seed = self._chance.getrandbits(63)
        return inputs_of(self._problem.suite, case, Draw(self._device.torch_device, seed))

    def _values(self, case: Case, shape: _Shape) -> list[Inputs]:
        return [self._draw(case) for _ in range(shape.sets)]

    def _compare(self, contestant: Contestant, rival: Contestant, case: Case, shape: _Shape, epochs: int) -> Compared:
        """Run both in turn, in epochs on new values, and compare the outputs of each run of the candidate."""
        ratios, own_s, rival_s, worst = [], [], [], 0.0
        complete = self._chance.randrange(epochs)  # all sets are compared after this epoch's first run
        for epoch in range(epochs):
            seconds: dict[Contestant, list[float]] = {contestant: [], rival: []}
            while not _settled(seconds.values()):
                values = self._values(case, shape)
                every = epoch == complete and not seconds[rival]
                sampled = self._chance.sample(range(shape.sets), shape.sets if every else min(SAMPLED, shape.sets))
                outputs = {}
                for one in self._chance.sample([contestant, rival], 2):
                    taken, outputs[one] = one.run(values, sampled)
                    seconds[one].append(taken)
                for place, number in enumerate(sampled):
                    checker = Checker.of(self._problem.suite, case, self._seen(contestant, values[number], shape))
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
        return Compared(case.label, evidence, min(own_s) / shape.sets, min(rival_s) / shape.sets, worst)


class RivalFailed(RuntimeError):
    """The incumbent failed beside a candidate, which cannot have caused it."""


def _settled(seconds: Collection[Sequence[float]]) -> bool:
    """Return whether the runs of an epoch suffice."""
    fastest = [sorted(each)[:2] for each in seconds]
    most = max(map(len, seconds))
    return most >= MOST_RUNS or (most >= 2 and all(second < AGREE * first for first, second in fastest))


def _narrowed(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of an output: that of the reference, but float32 for a reference in float64."""
    return torch.float32 if dtype == torch.float64 else dtype
