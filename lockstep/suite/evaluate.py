"""Evaluate a suite at one case: call each of its methods with the arguments that the method names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lockstep.suite.case import Case
from lockstep.suite.model import Cost, Suite, SuiteError, bind

if TYPE_CHECKING:
    from lockstep.suite.inputs import Draw


def inputs_of(suite: Suite, case: Case, new: Draw) -> dict[str, Any]:
    """Return freshly drawn inputs of a case, by name."""
    return suite.draw(new, **bind(suite.draw, case, leading=1))


def buffers_of(suite: Suite, case: Case, new: Draw) -> Any:
    """Return the output buffers of a case; None for a suite without buffers."""
    return suite.buffers(new, **bind(suite.buffers, case, leading=1))


def reference_of(suite: Suite, case: Case, inputs: Mapping[str, Any]) -> Any:
    """Return the correct result for these inputs."""
    return suite.reference(**bind(suite.reference, {**case, **inputs}))


def cost_of(suite: Suite, case: Case) -> Cost:
    """Return operations and bytes of a case."""
    flops, moved = suite.cost(**bind(suite.cost, case))
    return Cost(float(flops), float(moved))


def summands_of(suite: Suite, case: Case) -> int:
    """Return the number of terms of the longest sum behind one element of an output.

    Raises:
        SuiteError: the suite returns something other than a positive integer.
    """
    count = suite.summands(**bind(suite.summands, case))
    if not isinstance(count, int) or count < 1:
        raise SuiteError(
            f"suite {suite.name}: summands() returned {count!r} at {case.label}; it must return an integer above 0"
        )
    return count


def skip_reason(suite: Suite, variant: str, case: Case) -> str:
    """Return why the suite does not measure a variant at a case that the variant supports, or ""."""
    return suite.skips(variant, **bind(suite.skips, case, leading=1))
