"""Check results before timing: fresh inputs, poisoned outputs, relative norm against a float reference."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from lockstep.suite.case import Case
from lockstep.suite.evaluate import buffers_of, inputs_of, reference_of
from lockstep.suite.family import Family, takes_out
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.suite.missing_files import hint, without_tree
from lockstep.suite.model import Suite, SuiteError, bind
from lockstep.timing.in_place import checksums, write
from lockstep.timing.outputs import outputs_of, poison, refuse_aliases, refuse_overlaps
from lockstep.timing.rules import Disqualified, Rule

#: What Triton (``triton/runtime/driver.py``) says of the first launch on a machine without a GPU.
NO_TRITON_DRIVER = "0 active drivers"


class WrongResult(Disqualified):
    """A variant's result differs from the reference; it is not timed."""

    def __init__(self, evidence: str) -> None:
        super().__init__(Rule.WRONG_RESULT, evidence)


@dataclass(frozen=True, eq=False)
class Checker:
    """Inputs and reference of one case, shared by the checks of all its variants."""

    suite: Suite
    case: Case
    inputs: dict[str, Any]
    reference: tuple[torch.Tensor, ...]
    out: Any
    seed: int | None = None
    _prepared: dict[Any, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def draw(cls, suite: Suite, case: Case, device: torch.device | str, seed: int) -> Checker:
        """Draw fresh inputs and compute the reference.

        Raises:
            SuiteError: a function of the suite itself fails.
        """
        new = Draw(device, seed)
        with _blamed(suite, "draw"):
            inputs = inputs_of(suite, case, new)
        with _blamed(suite, "buffers"):
            out = buffers_of(suite, case, new)
        return cls.of(suite, case, inputs, out, seed)

    @classmethod
    def of(cls, suite: Suite, case: Case, inputs: dict[str, Any], out: Any = None, seed: int | None = None) -> Checker:
        """Compute the reference of these inputs.

        Raises:
            SuiteError: the suite's reference fails.
        """
        with _blamed(suite, "reference"):
            reference = reference_of(suite, case, inputs)
        return cls(suite, case, inputs, tuple(tensors_of(reference)), out, seed)

    def arguments(self, family: Family, variant: str) -> dict[str, Any]:
        """Return keyword arguments of ``variant`` without ``out``; variants with the same preparation share it."""
        prepare = family.prepare.get(variant)
        if prepare not in self._prepared:
            self._prepared[prepare] = family.prepared(variant, self.inputs)
        return bind(family.variants[variant], {**self.inputs, **self._prepared[prepare]})

    def error(self, family: Family, variant: str) -> float:
        """Return the largest ``‖out − ref‖ / ‖ref‖`` over the outputs of ``variant``.

        Raises:
            WrongResult: above the suite's tolerance, NaN, or outputs of another number or shape.
            Disqualified: it wrote into an input, or its outputs are not tensors of their own.
            NotImplementedError: the variant does not support this case, or launches Triton kernels where no GPU is.
        """
        function = family.variants[variant]
        arguments = self.arguments(family, variant)
        if self.out is not None and takes_out(function):
            map_tensors(self.out, poison)
            arguments["out"] = self.out
        self.poison_free_memory()
        given = named_tensors(self.inputs)
        before = checksums([tensor for _, tensor in given])
        try:
            result = function(**arguments)
        except RuntimeError as error:
            if NO_TRITON_DRIVER in str(error) and self.reference[0].device.type == "cpu":
                raise NotImplementedError("Triton finds no GPU here") from error
            raise
        after = checksums([tensor for _, tensor in given])
        written = {name for (name, _), is_now, was in zip(given, after, before, strict=True) if is_now != was}
        if written:
            self._restore()
            raise Disqualified(Rule.WRITTEN_INPUT, f"{variant} wrote into its input {', '.join(sorted(written))}")
        outputs = outputs_of(variant, result, self.reference[0].device)
        off = self.compare(variant, outputs)
        refuse_aliases(variant, outputs, named_tensors(arguments))
        refuse_overlaps(variant, outputs)
        return off

    def _restore(self) -> None:
        """Write the drawn values into the inputs again."""
        if self.seed is not None and self.reference:
            new = Draw(self.reference[0].device, self.seed)
            write(self.inputs, inputs_of(self.suite, self.case, new), set())

    def poison_free_memory(self) -> None:
        """Fill memory with NaN and free it: what a variant allocates next is likely to lie there."""
        for expected in self.reference:
            poison(torch.empty_like(expected))

    def compare(self, variant: str, outputs: Sequence[torch.Tensor]) -> float:
        """Return the largest ``‖out − ref‖ / ‖ref‖`` over these outputs of ``variant``.

        Raises:
            WrongResult: above the suite's tolerance, NaN, or outputs of another number or shape.
        """
        if len(outputs) != len(self.reference):
            raise WrongResult(f"{variant} returned {len(outputs)} tensors, the reference has {len(self.reference)}")
        return max(
            self._distance(variant, index, got, want)
            for index, (got, want) in enumerate(zip(outputs, self.reference, strict=True))
        )

    def _distance(self, variant: str, index: int, got: torch.Tensor, want: torch.Tensor) -> float:
        if got.shape != want.shape:
            raise WrongResult(f"{variant} output {index} has shape {list(got.shape)}, expected {list(want.shape)}")
        # In chunks of rows, so that a large output never has a whole float64 copy.
        squares = norms = 0.0
        got, want = (tensor.reshape(1) if tensor.dim() == 0 else tensor for tensor in (got, want))
        for part, target in zip(got.split(4096), want.split(4096), strict=True):
            difference = part.double() - target.double()
            squares += float(difference.square().sum())
            norms += float(target.double().square().sum())
        error = math.sqrt(squares / norms) if norms > 0 else math.sqrt(squares)
        if not error <= self.suite.tolerance:
            raise WrongResult(
                f"{variant} output {index} is off by {error:.3g} of its norm at {self.case.label}, "
                f"accepted is {self.suite.tolerance:g}"
            )
        return error


def named_tensors(arguments: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Return every tensor that a variant only reads, with the name of its argument: all but those of ``out``."""
    return [(name, tensor) for name, value in arguments.items() if name != "out" for tensor in tensors_of(value)]


@contextlib.contextmanager
def _blamed(suite: Suite, part: str) -> Iterator[None]:
    """Raise ``SuiteError`` for an error of the suite; running out of memory is due to the shape."""
    try:
        yield
    except (SuiteError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise SuiteError(f"{part} of suite {suite.name} failed: {brief(error)}") from error


def without_frames(error: Exception) -> Exception:
    """Return the error without its frames, which would keep a case's tensors alive."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def brief(error: BaseException) -> str:
    """Return type or rule of an error and its first line, with a hint about files that a commit lacks."""
    first = without_tree(str(error).strip().split("\n", 1)[0])
    kind = error.rule.value if type(error) is Disqualified else type(error).__name__
    parts = [f"{kind}: {first}" if first else kind, hint(error)]
    return "; ".join(part for part in parts if part)
