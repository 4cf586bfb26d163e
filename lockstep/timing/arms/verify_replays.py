"""Verify what was timed: run the timed replays again on other input values, and compare with the reference.

Inputs change in place, and outputs are filled with NaN first. This detects a replay that returns a stored result, skips
work, or worked only during its capture. A replay takes several argument sets in turn. All sets have the same values
while they are timed, and different values in this check: a copy of another set's output is then wrong. The sets that
are checked are chosen at random after timing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import bind, inputs_of
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.suite.variants import Family
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.checks.check import Checker, WrongResult, named_tensors, without_frames
from lockstep.timing.checks.output_memory import outputs_of, poison, refuse_aliases
from lockstep.timing.checks.refill_arguments import bits, fits, floats, write
from lockstep.timing.device import Device
from lockstep.timing.rules.rule import Disqualified, Rule

#: Number of different draws among the sets, if there are enough sets. Each draw needs a reference and the preparation.
DRAWS = 2

#: Number of sets that change and are compared. Comparing all of up to 48 sets, twice per case, took 15 % of a suite's
#: time on an H200. A variant that works in one call of eight passes on eight random sets less than once in ten million
#: times.
SETS = 8

#: One set is compared in full. Another set is compared in full if its error is larger by more than this factor.
ALIKE = 1.5


#: How a replay was timed, by the cost that it measured.
_TIMED = {
    "": "timed",
    "behind": "timed behind another kernel",
    "energy": "run for its energy",
    "host": "called outside a graph",
}


@dataclass(frozen=True)
class Timed:
    """An arm whose timed replay is to be verified. It measured ``cost``, or the latency if that is ""."""

    arm: Arm
    replay: ArmReplay
    family: Family
    variant: str
    cost: str = ""


@dataclass(frozen=True)
class Verified:
    """The result of verifying the arms of an epoch."""

    failures: Mapping[str, Exception]
    note: str = ""


@dataclass(frozen=True)
class Verifier:
    """Verifies that the timed replays of one case compute right results from other input values.

    ``listener``: called with "verify" and an arm before the arm's code runs.
    """

    suite: Suite
    case: Case
    device: Device
    listener: Callable[[str, str], None] = lambda stage, arm: None

    def verify(self, timed: Sequence[Timed], seed: int) -> Verified:
        """Write other values into the arguments of all arms, replay each arm, and compare its outputs.

        ``seed`` is that of the values that were timed. A suite's function that fails raises ``SuiteError``, a replay
        that breaks the CUDA context ``RuntimeError``.
        """
        for draws in range(min(DRAWS, len(timed[0].arm.calls)), 0, -1):
            try:
                return self._verify(timed, seed, draws)
            except torch.cuda.OutOfMemoryError:
                self.device.release()
        return Verified({}, "results were not checked after timing: out of memory")

    def _verify(self, timed: Sequence[Timed], seed: int, draws: int) -> Verified:
        chance = random.SystemRandom()
        failures: dict[str, Exception] = {}
        notes: dict[str, None] = {}
        checkers = []
        for _ in range(draws):
            checker, note = self._redraw(timed, seed, chance.getrandbits(32))
            checkers.append(checker)
            notes |= {note: None} if note else {}
        sets = len(timed[0].arm.calls)
        compared_sets = chance.sample(range(sets), min(SETS, sets))
        of_set = {number: checkers[place % draws] for place, number in enumerate(compared_sets)}

        written: set[int] = set()
        for timed_arm in timed:
            self._write(timed_arm, of_set, written)
        for timed_arm in chance.sample(timed, len(timed)):
            self.listener("verify", timed_arm.arm.name)
            try:
                self._replay(timed_arm, of_set)
                self._compare(timed_arm, of_set, chance)
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:
                if not self.device.healthy():
                    raise
                failures[timed_arm.arm.name] = without_frames(error)
            if changed := self._changed(timed_arm, of_set):
                evidence = f"{timed_arm.variant} wrote into its input {', '.join(changed)}"
                failures[timed_arm.arm.name] = Disqualified(Rule.WRITTEN_INPUT, evidence)
                self._write(timed_arm, of_set, set())
        return Verified(failures, "; ".join(notes))

    def restore(self, timed: Sequence[Timed], seed: int) -> None:
        """Write the values that were timed into the arguments of all arms again."""
        inputs = inputs_of(self.suite, self.case, Draw(self.device.torch_device, seed))
        checker, written = Checker(self.suite, self.case, inputs, (), None), set[int]()
        for timed_arm in timed:
            self._write(timed_arm, dict.fromkeys(range(len(timed_arm.arm.calls)), checker), written)

    def _redraw(self, timed: Sequence[Timed], seed: int, new_seed: int) -> tuple[Checker, str]:
        """Return other values for the arms' arguments with their reference, and a note on inputs that do not change.

        The shapes and numbers of a replay are fixed. An input whose shape or number differs between draws keeps its
        timed values. All inputs that may depend on this input keep their values as well.
        """
        torch_device = self.device.torch_device
        checker = Checker.draw(self.suite, self.case, torch_device, new_seed)
        fixed: set[str] = set()
        while True:
            misfits = self._misfits(timed, checker) - fixed
            if not misfits:
                break
            old = inputs_of(self.suite, self.case, Draw(torch_device, seed))
            if any(not fits(old[name], checker.inputs.get(name)) for name in misfits):
                # Offsets depend on sizes: only floating-point inputs are independent of the other inputs.
                misfits |= {name for name, value in old.items() if not floats(value)}
            fixed |= misfits
            values = {name: old[name] if name in fixed else value for name, value in checker.inputs.items()}
            checker = Checker.of(self.suite, self.case, values)
        names = ", ".join(sorted(fixed))
        return checker, f"checked after timing with the timed values of {names}: other draws differ in size" * bool(
            fixed
        )

    def _misfits(self, timed: Sequence[Timed], checker: Checker) -> set[str]:
        """Return the names of inputs whose new values cannot be written into the arms' arguments in place."""
        misfits: set[str] = set()
        for timed_arm in timed:
            arguments = self._arguments(timed_arm, checker)
            for name, value in timed_arm.arm.calls[0].arguments.items():
                if name == "out" or fits(value, arguments.get(name)):
                    continue
                prepare = timed_arm.family.prepare.get(timed_arm.variant)
                is_input = name in checker.inputs and arguments.get(name) is checker.inputs[name]
                misfits |= {name} if is_input or prepare is None else set(bind(prepare, checker.inputs))
        return misfits

    def _arguments(self, timed: Timed, checker: Checker) -> dict[str, Any]:
        with timed.arm.active():
            return checker.arguments(timed.family, timed.variant)

    def _write(self, timed: Timed, of_set: Mapping[int, Checker], written: set[int]) -> None:
        """Copy each set's values into the arm's arguments.

        Addresses in ``written`` are skipped, and the addresses written by this call are added.
        """
        for number, checker in of_set.items():
            arguments = self._arguments(timed, checker)
            for name, value in timed.arm.calls[number].arguments.items():
                if name != "out":
                    write(value, arguments.get(name), written)

    def _replay(self, timed: Timed, of_set: Mapping[int, Checker]) -> None:
        """Fill the arm's outputs with NaN and run the arm's replay."""
        self._poison(timed, of_set)
        if self.suite.inout:
            self._write(timed, of_set, set())
        if self.device.kind == "cpu":
            next(iter(of_set.values())).poison_free_memory()
        timed.replay()
        self.device.synchronize()

    def _poison(self, timed: Timed, sets: Iterable[int]) -> None:
        """Fill the arm's outputs of these sets with NaN."""
        results = timed.replay.results()
        for number in sets:
            call = timed.arm.calls[number]
            map_tensors(call.arguments.get("out"), poison)
            outputs = outputs_of(timed.variant, results[number], self.device.torch_device)
            refuse_aliases(timed.variant, outputs, named_tensors(call.arguments, self.suite.inout))
            for output in outputs:
                poison(output)

    def _compare(self, timed: Timed, of_set: Mapping[int, Checker], chance: random.Random) -> None:
        """Compare the arm's outputs with the reference: those of one set in full, those of the others by their norm.

        A set whose error exceeds ``ALIKE`` times that of the fully compared set is compared in full as well. Where a
        suite has inputs ``inout``, all sets are compared in full: a norm of outputs says nothing of these inputs.
        """
        results, outputs = timed.replay.results(), {}
        for number in of_set:
            outputs[number] = outputs_of(timed.variant, results[number], self.device.torch_device)
            if not outputs[number]:
                arguments = timed.arm.calls[number].arguments
                outputs[number] = [tensor for name in self.suite.inout for tensor in tensors_of(arguments[name])]
        sample = chance.choice(list(of_set))
        for number in of_set if self.suite.inout else [sample]:
            self._expect(timed, of_set[number], outputs[number], number)
        relative_errors = torch.stack([_error(outputs[number], checker) for number, checker in of_set.items()]).tolist()
        errors = dict(zip(of_set, relative_errors, strict=True))
        for number, error in errors.items():
            if not error <= ALIKE * errors[sample]:
                self._expect(timed, of_set[number], outputs[number], number)

    def _expect(self, timed: Timed, checker: Checker, outputs: Sequence[torch.Tensor], number: int) -> None:
        try:
            checker.compare(timed.variant, outputs)
            checker.compare_written(timed.variant, outputs, timed.arm.calls[number].arguments)
        except WrongResult as wrong:
            how = _TIMED[timed.cost]
            raise Disqualified(Rule.TIMED_RESULT, f"{how}, and wrong on other values: {wrong.evidence}") from wrong

    def _changed(self, timed: Timed, of_set: Mapping[int, Checker]) -> list[str]:
        """Return the names of inputs that no longer hold the values written into them."""
        names, changed = [], []
        for number, checker in of_set.items():
            arguments = self._arguments(timed, checker)
            for name, value in checker.inputs.items():
                if arguments.get(name) is value and name not in self.suite.inout:
                    argument = timed.arm.calls[number].arguments[name]
                    pairs = zip(tensors_of(argument), tensors_of(value), strict=True)
                    names += [name] * len(tensors_of(value))
                    changed += [(bits(actual) != bits(written)).any() for actual, written in pairs]
        flags = torch.stack(changed).tolist() if changed else []
        return sorted({name for name, is_changed in zip(names, flags, strict=True) if is_changed})


def _error(outputs: Sequence[torch.Tensor], checker: Checker) -> torch.Tensor:
    """Return the largest ``‖out − ref‖ / ‖ref‖`` as a tensor on the device; NaN if a shape differs."""
    device = checker.reference[0].device
    if [output.shape for output in outputs] != [reference.shape for reference in checker.reference]:
        return torch.tensor(float("nan"), device=device)
    errors = []
    for output, reference in zip(outputs, checker.reference, strict=True):
        # torch promotes no float8.
        wide = torch.float32 if reference.itemsize == 1 else torch.promote_types(reference.dtype, torch.float32)
        reference = reference.to(wide)
        norms = [torch.linalg.vector_norm(values) for values in (output.to(wide) - reference, reference)]
        errors.append((norms[0] / norms[1]).double())
    return torch.stack(errors).max()
