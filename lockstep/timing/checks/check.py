"""Check results before timing: draw fresh inputs, fill outputs with NaN, compare with a high-precision reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from lockstep.record.model import Accuracy
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import bind, blamed, buffers_of, inputs_of, reference_of, summands_of
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.suite.missing_files import first_line
from lockstep.suite.variants import Family, takes_out
from lockstep.timing.checks.accuracy import accuracy_of, worst
from lockstep.timing.checks.determinism import difference
from lockstep.timing.checks.output_memory import outputs_of, poison, refuse_aliases, refuse_overlaps
from lockstep.timing.checks.refill_arguments import checksums, write
from lockstep.timing.checks.tolerance import coarsest, default_tolerance, is_float, refusal
from lockstep.timing.checks.without_gpu import INTERPRETED, misjudged, without_gpu
from lockstep.timing.checks.written_inputs import after_call, inout_of, not_returned, same_bits
from lockstep.timing.rules.rule import Disqualified, Rule


class WrongResult(Disqualified):
    """A variant's result differs from the reference, so the variant is not timed."""

    def __init__(self, evidence: str) -> None:
        super().__init__(Rule.WRONG_RESULT, evidence)


@dataclass(frozen=True)
class Checked:
    """A passed check. ``deterministic`` is ``None`` if there was too little memory to find out.

    ``note`` says what the check could not see; "" if nothing.
    """

    accuracy: Accuracy
    deterministic: bool | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Checker:
    """Checks the results of variants at one case. All checks share the inputs and the reference.

    Attributes:
        drawn: copies of the inputs ``inout`` from before any call, by name.
        written: what a call must leave in inputs ``inout``, by name, as far as it is known; ``None`` for an input that
            the outputs of the reference include.
    """

    suite: Suite
    case: Case
    inputs: dict[str, Any]
    reference: tuple[torch.Tensor, ...]
    out: Any
    seed: int | None = None
    drawn: dict[str, Any] = field(default_factory=dict)
    written: dict[str, Any] = field(default_factory=dict)
    _prepared: dict[Any, dict[str, Any]] = field(default_factory=dict)
    #: Inputs ``inout`` whose expected value is the baseline's, although the suite has a reference.
    _asked: list[str] = field(default_factory=list)

    @classmethod
    def draw(cls, suite: Suite, case: Case, device: torch.device | str, seed: int) -> Checker:
        """Draw fresh inputs of a case, and return their checker; ``SuiteError`` if a function of the suite fails."""
        new = Draw(device, seed)
        with blamed(suite, "draw"):
            inputs = inputs_of(suite, case, new)
        with blamed(suite, "buffers"):
            out = buffers_of(suite, case, new)
        return cls.of(suite, case, inputs, out, seed)

    @classmethod
    def of(cls, suite: Suite, case: Case, inputs: dict[str, Any], out: Any = None, seed: int | None = None) -> Checker:
        """Compute the reference of these inputs, and return their checker; ``SuiteError`` if the reference fails."""
        drawn = inout_of(suite, inputs)
        if suite.standard is not None and not suite.has_reference:
            reference, written = suite.standard(case, inputs)
            return cls(suite, case, inputs, reference, out, seed, drawn, written)
        with blamed(suite, "reference"):
            result = reference_of(suite, case, inputs)
        if not suite.inout:
            return cls(suite, case, inputs, tuple(tensors_of(result)), out, seed)
        reference, left = after_call(suite, inputs, result)
        write(inputs, drawn, set())
        written = {name: value for name, value in left.items() if value is None or not same_bits(value, drawn[name])}
        return cls(suite, case, inputs, reference, out, seed, drawn, written)

    def arguments(self, family: Family, variant: str) -> dict[str, Any]:
        """Return the keyword arguments with which the check calls ``variant``, without ``out``.

        Variants with the same ``prepare`` function share the result of that function.
        """
        prepare = family.prepare.get(variant)
        if prepare not in self._prepared:
            self._prepared[prepare] = family.prepared(variant, self.inputs)
        return bind(family.variants[variant], {**self.inputs, **self._prepared[prepare]})

    @cached_property
    def _expected_dtypes(self) -> tuple[torch.dtype | None, ...]:
        """Return the expected dtype of each output: the dtype of the suite's buffers, never the dtype that a variant
        chose.

        Without buffers the expected dtype is the coarsest dtype of the inputs. It is ``None`` for an output that is an
        integer or a boolean in the reference, or if no input has a floating-point dtype.
        """
        # Buffers on the "meta" device take no memory.
        out = self.out if self.out is not None else buffers_of(self.suite, self.case, Draw("meta", 0))
        buffers = [tensor.dtype for tensor in tensors_of(out)]
        if len(buffers) == len(self.reference):
            return tuple(buffers)
        if buffers:
            return (coarsest(buffers) or buffers[0],) * len(self.reference)
        input_dtype = coarsest([tensor.dtype for tensor in tensors_of(self.inputs)])
        return tuple(
            input_dtype if tensor.is_floating_point() or tensor.is_complex() else None for tensor in self.reference
        )

    @cached_property
    def tolerances(self) -> tuple[float, ...]:
        """Return the accepted ``‖out − ref‖ / ‖ref‖`` of each output: the suite's tolerance, or a default for the
        output's dtype.
        """
        pairs = zip(self._expected_dtypes, (tensor.dtype for tensor in self.reference), strict=True)
        return tuple(self._tolerance(expected or reference, reference) for expected, reference in pairs)

    def _tolerance(self, expected: torch.dtype, reference: torch.dtype) -> float:
        if (stated := self.suite.tolerance) is not None:
            return stated if is_float(reference) else 0.0
        inputs = [tensor.dtype for tensor in tensors_of(self.inputs)]
        return default_tolerance(expected, [*inputs, reference], summands_of(self.suite, self.case))

    @cached_property
    def _sums(self) -> list[int]:
        """Checksums of the drawn inputs that a variant must not change, by which a write into an input is noticed."""
        return checksums([tensor for _, tensor in named_tensors(self.inputs, self.suite.inout)])

    def accuracy(self, family: Family, variant: str) -> Accuracy:
        """Return the errors of ``variant``, the worst over its outputs.

        Raises:
            WrongResult: an error exceeds its limit, an output is NaN, or the outputs differ from the reference in
                number or shape or have a narrower dtype.
            Disqualified: the variant wrote into an input, or its outputs are not tensors with memory of their own.
            NotImplementedError: the variant does not support this case, or it launches Triton kernels without a GPU.
        """
        return self._accepted(family, variant, self._call(family, variant))

    def check(self, family: Family, variant: str) -> Checked:
        """Return ``variant``'s errors, and whether a second call gives the same bits; raise as ``accuracy`` does."""
        outputs = self._call(family, variant)
        accuracy = self._accepted(family, variant, outputs)
        try:
            first = [tensor.clone() for tensor in self._results(outputs)]
        except torch.cuda.OutOfMemoryError:
            return Checked(accuracy, None, self._note(variant))
        second = self._results(self._call(family, variant))
        return Checked(accuracy, not difference(first, second), self._note(variant))

    def _note(self, variant: str) -> str:
        """Return which inputs ``inout`` of the baseline are not checked, because the reference does not write them."""
        if variant != self.suite.baseline or not self._asked:
            return ""
        return f"what it leaves in {', '.join(self._asked)} is not checked: the reference does not write it"

    def repeated(self, family: Family, variant: str) -> Iterator[str]:
        """Call the variant repeatedly on the same inputs; yield how each result differs from the first, "" for the same
        bits.

        ``Disqualified``, ``NotImplementedError``: as ``accuracy``. The outputs are not compared with the reference.
        Raise ``torch.cuda.OutOfMemoryError`` if the device has too little memory for a copy of the outputs.
        """
        first = [tensor.clone() for tensor in self._results(self._call(family, variant))]
        while True:
            yield difference(first, self._results(self._call(family, variant)))

    def _results(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs of a call, and the inputs ``inout`` that are not among them."""
        names = not_returned(outputs, self.inputs, self.suite.inout)
        return [*outputs, *tensors_of([self.inputs[name] for name in names])]

    def _accepted(self, family: Family, variant: str, outputs: Sequence[torch.Tensor]) -> Accuracy:
        try:
            accuracy = self.compare(variant, outputs)
            self.compare_written(variant, outputs, self.inputs)
        except WrongResult as wrong:
            if misjudged(self.inputs):
                raise NotImplementedError(INTERPRETED) from wrong
            raise
        refuse_aliases(variant, outputs, named_tensors(self.arguments(family, variant), self.suite.inout))
        refuse_overlaps(variant, outputs)
        return accuracy

    def compare(self, variant: str, outputs: Sequence[torch.Tensor]) -> Accuracy:
        """Compare outputs of ``variant`` with the reference; return the worst errors, or raise ``WrongResult``."""
        if len(outputs) != len(self.reference):
            raise WrongResult(f"{variant} returned {len(outputs)} tensors, the reference has {len(self.reference)}")
        with blamed(self.suite, "compare"):
            own = self.suite.compare(outputs, self.reference, self.inputs)
        if own is not None:
            if own:
                raise WrongResult(f"{variant} {own} at {self.case.label}")
            return worst(())
        return worst(self._judged(variant, index, output) for index, output in enumerate(outputs))

    def compare_written(self, variant: str, outputs: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> None:
        """Raise ``WrongResult`` if a call left a wrong value in an input ``inout`` that is not among its outputs.

        Expected is what the reference wrote there. Where the reference wrote nothing, expected is what the baseline
        leaves there. An input that they return is checked as an output, of which a call may return a copy.
        ``arguments`` are those of the call, read after it.
        """
        for name in not_returned(outputs, arguments, self.suite.inout):
            if name not in self.written and self.suite.standard is not None:
                _, left = self.suite.standard(self.case, self.inputs | self.drawn)
                self._asked.extend(left.keys() - self.written.keys())
                self.written.update(left | self.written)
            now, expected = (tensors_of(values.get(name)) for values in (arguments, self.written))
            for tensor, right in zip(now, expected, strict=False):
                tolerance = self._tolerance(right.dtype, right.dtype)
                where = f" at {self.case.label}"
                if wrong := refusal(accuracy_of(tensor, right), right.shape, tolerance, where, self.suite.centred):
                    unwritten = same_bits(arguments[name], self.drawn.get(name))
                    did = "did not write" if unwritten else "wrote a wrong value into"
                    raise WrongResult(f"{variant} {did} its input {name}, which {wrong}")

    def _judged(self, variant: str, index: int, output: torch.Tensor) -> Accuracy:
        reference = self.reference[index]
        if output.shape != reference.shape:
            raise WrongResult(
                f"{variant} output {index} has shape {list(output.shape)}, expected {list(reference.shape)}"
            )
        accuracy = accuracy_of(output, reference)
        if wrong := refusal(
            accuracy, reference.shape, self.tolerances[index], f" at {self.case.label}", self.suite.centred
        ):
            raise WrongResult(f"{variant} output {index} {wrong}")
        expected = self._expected_dtypes[index]
        if expected is not None and output.element_size() < min(expected.itemsize, reference.element_size()):
            # A variant with narrower outputs writes fewer bytes than the baseline, however exact its values are.
            raise WrongResult(
                f"{variant} output {index} is of {output.dtype}, narrower than {expected}, the expected dtype"
            )
        return accuracy

    def _call(self, family: Family, variant: str) -> list[torch.Tensor]:
        """Call the variant with output buffers full of NaN; return its outputs after checks that it wrote no input."""
        before = self._sums
        write(self.inputs, self.drawn, set())  # an earlier call may have written the inputs
        function = family.variants[variant]
        arguments = self.arguments(family, variant)
        if self.out is not None and takes_out(function):
            map_tensors(self.out, poison)
            arguments["out"] = self.out
        self.poison_free_memory()
        try:
            result = function(**arguments)
        except (RuntimeError, AssertionError) as error:
            if absent := without_gpu(error, self.reference[0].device):
                raise absent from error
            raise
        named_inputs = named_tensors(self.inputs, self.suite.inout)
        after = checksums([tensor for _, tensor in named_inputs])
        written = {name for (name, _), is_now, was in zip(named_inputs, after, before, strict=True) if is_now != was}
        if written:
            self._restore()
            raise Disqualified(Rule.WRITTEN_INPUT, f"{variant} wrote into its input {', '.join(sorted(written))}")
        outputs = outputs_of(variant, result, self.reference[0].device)
        # An in-place operation need not return the tensors that it wrote.
        return outputs or [tensor for name in self.suite.inout for tensor in tensors_of(self.inputs[name])]

    def _restore(self) -> None:
        """Write the drawn values into the inputs again, after a variant that changed one which it must only read."""
        if self.seed is not None and self.reference:
            new = Draw(self.reference[0].device, self.seed)
            write(self.inputs, inputs_of(self.suite, self.case, new), set())

    def poison_free_memory(self) -> None:
        """Fill free memory with NaN, so that a variant that leaves part of an output unwritten shows NaN there.

        The variant's next allocations are likely to get this memory.
        """
        for expected in self.reference:
            poison(torch.empty_like(expected))


def named_tensors(arguments: Mapping[str, Any], inout: Sequence[str] = ()) -> list[tuple[str, torch.Tensor]]:
    """Return every tensor that a variant may only read, with its argument's name: all but ``out`` and ``inout``."""
    read = {name: value for name, value in arguments.items() if name != "out" and name not in inout}
    return [(name, tensor) for name, value in read.items() for tensor in tensors_of(value)]


def without_frames(error: Exception) -> Exception:
    """Return the error without its stack frames, which would keep a case's tensors in memory."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def brief(error: BaseException) -> str:
    """Return one line about an error for a record: its type or broken rule, its first line, and a noted place."""
    if isinstance(error, Disqualified):
        return first_line(error) if isinstance(error, WrongResult) else first_line(error, error.rule.value)
    place = next((f" ({note})" for note in getattr(error, "__notes__", ()) if note.startswith("at ")), "")
    return f"{first_line(error)}{place}"
