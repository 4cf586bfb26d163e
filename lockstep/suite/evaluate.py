"""Evaluate a suite at one case: call each of its methods with the axes and inputs that are parameters of the method."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lockstep.suite.case import Case
from lockstep.suite.definition import Cost, Suite, SuiteError
from lockstep.suite.missing_files import first_line

if TYPE_CHECKING:
    from lockstep.suite.inputs import Draw


def bind(function: Callable[..., Any], available: Mapping[str, Any], leading: int = 0) -> dict[str, Any]:
    """Return the entries of ``available`` that ``function`` names as parameters (all, if it takes ``**kwargs``).

    ``out`` may be missing: the owner of the output buffers adds it. The first ``leading`` parameters are left out: the
    caller passes them by position. Raise ``SuiteError`` if a required parameter is missing.
    """
    parameters = list(inspect.signature(function).parameters.values())[leading:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(available)
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_POSITIONAL
        and parameter.name not in {"out", *available}
    ]
    if missing:
        raise SuiteError(
            f"{function.__module__}.{function.__qualname__} needs the parameters {', '.join(missing)}, "
            f"but only these exist: {', '.join(available) or 'none'}"
        )
    return {parameter.name: available[parameter.name] for parameter in parameters if parameter.name in available}


@contextlib.contextmanager
def blamed(suite: Suite, part: str) -> Iterator[None]:
    """Raise ``SuiteError`` for an error in the suite's function, except for out of memory, which the shape causes."""
    try:
        yield
    except SuiteError:
        raise
    except Exception as error:
        # Imported here: suites are discovered without torch.
        import torch

        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        raise SuiteError(f"{part} of suite {suite.name} failed: {first_line(error)}") from error


def inputs_of(suite: Suite, case: Case, new: Draw) -> dict[str, Any]:
    """Return freshly drawn inputs of a case, by name."""
    return suite.draw(new, **bind(suite.draw, case, leading=1))


def buffers_of(suite: Suite, case: Case, new: Draw) -> Any:
    """Return the output buffers of a case; None for a suite without buffers."""
    return suite.buffers(new, **bind(suite.buffers, case, leading=1))


def reference_of(suite: Suite, case: Case, inputs: Mapping[str, Any]) -> Any:
    """Return the suite's correct result for these inputs of a case."""
    return suite.reference(**bind(suite.reference, {**case, **inputs}))


def cost_of(suite: Suite, case: Case) -> Cost:
    """Return operations and bytes of a case."""
    flops, moved = suite.cost(**bind(suite.cost, case))
    return Cost(float(flops), float(moved))


def summands_of(suite: Suite, case: Case) -> int:
    """Return the terms of the longest sum behind an element of an output; ``SuiteError`` unless a positive integer."""
    count = suite.summands(**bind(suite.summands, case))
    if not isinstance(count, int) or count < 1:
        raise SuiteError(
            f"suite {suite.name}: summands() returned {count!r} at {case.label}; it must return an integer above 0"
        )
    return count


def skip_reason(suite: Suite, variant: str, case: Case) -> str:
    """Return why the suite does not measure a variant at a case that the variant supports, or ""."""
    return suite.skips(variant, **bind(suite.skips, case, leading=1))


def in_history(suite: Suite, variant: str, case: Case, l2: str) -> bool:
    """Return whether a history measures a variant at a case and cache state; always at a case not among ``cases``."""
    if type(suite).full_history is Suite.full_history or case not in suite.cases:
        return True
    if l2 == "cold" and suite.full_history(**bind(suite.full_history, case)):
        return True
    is_measured = l2 == "cold" or suite.warm_history(**bind(suite.warm_history, case))
    return is_measured and variant in (suite.baseline, *suite.tracked)
