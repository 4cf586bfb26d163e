"""Decide how far an output may be from its reference: by default from its dtype and the length of its sums.

**The norm.** With the unit roundoff u = ε/2 of a dtype (2⁻⁸ of bfloat16, 2⁻¹¹ of float16, 2⁻²⁴ of float32), the
accepted error is

    √(20/3) · u(coarsest)  +  2 · √n · u(accumulator).

- *Roundings.* One rounding has a relative error within ±u; if it is uniform, its RMS is u/√3. Independent errors add in
  quadrature. The first term allows twenty roundings in the coarsest dtype of inputs, reference and output, because a
  kernel may hold intermediates in its inputs' dtype. That is 1.0 % for bfloat16 and 0.13 % for float16. 8-bit inputs do
  not count: kernels seldom round intermediates to 8 bits. For an 8-bit output, which is rounded once, four roundings
  are accepted.
- *Sums.* A sum of n terms has a relative error of about √n · u: Higham and Mary, "A new approach to probabilistic
  rounding error analysis", SIAM J. Sci. Comput. 41 (2019), and for data of mean zero "Sharper probabilistic backward
  error analysis", same journal 42 (2020). Sums are assumed to accumulate in float32, or in float64 if all tensors are
  float64. A suite states n (``Suite.summands``). Without it, n is 65,536, and the accepted error in float32 is 3.1e-5.
  Products in TF32 or bfloat16 have errors of 3e-4 and 2e-3, so both are refused if all tensors are float32.
- AMD's Composable Kernel derives tolerances from the same two facts, with n instead of √n (``get_relative_threshold``
  in its ``check_err.hpp``). KernelBench accepts an error per element of 1e-4 for float32 and 1e-2 for 16-bit dtypes.

**Slices.** Rows, columns, tiles and elements have fewer elements than the whole, so their RMS error scatters, and
there are many of them. If the errors are independent and normal, n squares exceed n + 2√(nt) + 2t with a probability
of e⁻ᵗ (Laurent and Massart, "Adaptive estimation of a quadratic functional", Ann. Statist. 28 (2000), lemma 1). With
t = ln(10⁶ m) for m slices, one honest output in a million has a slice beyond √(1 + 2√(t/n) + 2t/n) times the accepted
norm. Twice that is accepted, because the elements of a row share inputs and their errors are not quite independent. The
limit is capped at 0.5, because a slice that was never computed has an error of 1.

**Centred.** The error may be at most half of the reference's variation about its mean, so a constant output fails, or
``Suite.centred`` times the variation: rounding errors of positive values average away in a sum, but not beside its
variation. The limit is raised where rounding the reference to the output's dtype already costs more than a sixth of
that variation. There is no limit where rounding loses the whole variation.

Integers and booleans must be equal, unless the suite brings a comparison of its own (``Suite.compare``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch

from lockstep.record.model import Accuracy
from lockstep.suite.definition import MANY_SUMMANDS
from lockstep.timing.checks.accuracy import TILE

#: Least number of summands, because fast-math functions have an error of some u as well. CUDA's ``__expf(x)`` is
#: accurate to 2 + ⌊|1.173 x|⌋ ulp (CUDA C++ Programming Guide, "Intrinsic Functions").
FEW_SUMMANDS = 64

#: Accepted number of roundings, for intermediates and for an 8-bit output.
ROUNDINGS, ROUNDINGS_8_BIT = 20, 4

#: A slice may exceed the limit for independent errors by this factor. Errors in rows of gradients
#: (``grouped.mlp_train``, quick cases) are not independent, and reach 1.5 times the limit.
DEPENDENT = 2

#: Probability that some slice of a correct output is refused.
FALSE_REFUSAL = 1e-6

#: Upper limit of the relative error of a slice, and of the error relative to an output's variation.
HALF = 0.5


def default_tolerance(output: torch.dtype, others: Iterable[torch.dtype], summands: int = MANY_SUMMANDS) -> float:
    """Return the accepted ‖got − want‖ / ‖want‖ of an output; 0 for integers and booleans.

    Args:
        output: the expected dtype, not the dtype that a variant chose.
        others: dtypes of inputs and reference.
        summands: terms of the longest sum behind one element.
    """
    if not is_float(output):
        return 0.0
    wide = coarsest([output, *others])
    accumulator = torch.float64 if wide == torch.float64 else torch.float32
    rounded = _unit(wide) * math.sqrt(ROUNDINGS / 3) if wide else 0.0
    if output.itemsize == 1:
        rounded = max(rounded, _unit(output) * math.sqrt(ROUNDINGS_8_BIT / 3))
    return rounded + _summed(max(summands, FEW_SUMMANDS), accumulator)


def coarsest(dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
    """Return the floating-point dtype of more than 8 bits with the largest roundoff; ``None`` if there is none."""
    wide = [dtype for dtype in dtypes if is_float(dtype) and dtype.itemsize > 1]
    return max(wide, key=_unit, default=None)


def refusal(
    accuracy: Accuracy, shape: Sequence[int], tolerance: float, where: str = "", centred: float | None = None
) -> str:
    """Return what is wrong with an output of this shape, as the predicate of a sentence; "" if the output is accepted.

    The norm is checked first, then the error that exceeds its limit by the largest factor. ``where`` names the case in
    the sentence. ``centred`` is the suite's limit for the error relative to the output's variation.
    """
    if accuracy.non_finite:
        return f"is NaN or infinite in {accuracy.non_finite} elements{where}, unlike the reference"
    norm, *others = _measures(accuracy, shape, tolerance, centred)
    # An error is NaN if squares overflow. The comparison must then fail.
    beyond = [measure for measure in (norm, *others) if not measure[0] <= measure[1]]
    if not beyond:
        return ""
    value, limit, name = norm if norm in beyond else max(beyond, key=_excess)
    return f"is off by {value:.3g} of {name}{where}, accepted is {limit:.3g}"


def _excess(measure: tuple[float, float, str]) -> float:
    value, limit, _ = measure
    return value / limit if limit else math.inf


def _measures(
    accuracy: Accuracy, shape: Sequence[int], tolerance: float, centred: float | None
) -> Iterator[tuple[float, float, str]]:
    """Yield each error of an output, its limit, and words for the norm to which it is relative."""
    columns = shape[-1] if shape else 1
    rows = math.prod(shape[:-1])
    tiles = math.ceil(rows / TILE) * math.ceil(columns / TILE)
    yield accuracy.norm, tolerance, "its norm"
    yield accuracy.row, _slice_limit(tolerance, columns, rows), "a row's norm"
    yield accuracy.column, _slice_limit(tolerance, rows, columns), "a column's norm"
    yield accuracy.tile, _slice_limit(tolerance, _smallest(rows) * _smallest(columns), tiles), "a tile's norm"
    yield accuracy.element, _slice_limit(tolerance, 1, rows * columns), "an element"
    yield (
        accuracy.centred,
        _centred_limit(accuracy, tolerance, HALF if centred is None else centred),
        "its norm around its mean",
    )


def _slice_limit(tolerance: float, elements: int, slices: int) -> float:
    if not elements or not slices:
        return tolerance
    t = math.log(slices / FALSE_REFUSAL) / elements
    return max(tolerance, min(DEPENDENT * tolerance * math.sqrt(1 + 2 * math.sqrt(t) + 2 * t), HALF))


def _centred_limit(accuracy: Accuracy, tolerance: float, most: float) -> float:
    if not accuracy.norm:
        return most
    # Norm of the reference divided by the norm of its variation.
    offset = accuracy.centred / accuracy.norm
    lost = offset * max(3 * accuracy.rounding, _summed(MANY_SUMMANDS, torch.float32))
    return max(most, lost, tolerance) if lost < 1 else math.inf


def _smallest(length: int) -> int:
    """Return the length of the shortest tile along a dimension."""
    return length % TILE or min(length, TILE)


def _summed(summands: int, accumulator: torch.dtype) -> float:
    return 2 * math.sqrt(summands) * _unit(accumulator)


def is_float(dtype: torch.dtype) -> bool:
    """Return whether a dtype is real or complex floating point."""
    return dtype.is_floating_point or dtype.is_complex


def _unit(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2
