"""Decide how far an output may be from its reference: by default from its dtype and the length of its sums.

**The norm.** With the unit roundoff u = ε/2 of a dtype (2⁻⁸ of bfloat16, 2⁻¹¹ of float16, 2⁻²⁴ of float32), the
accepted error is

    √(20/3) · u(coarsest)  +  2 · √n · u(accumulator).

- *Roundings.* One rounding has a relative error within ±u, u/√3 RMS where it is uniform, and independent ones add in
  quadrature. The first term is twenty of them in the coarsest dtype of inputs, reference and output: a kernel may keep
  intermediates in its inputs' dtype. That is 1.0 % for bfloat16 and 0.13 % for float16. Inputs of 8 bits do not count:
  kernels seldom round intermediates to 8 bits. An output of 8 bits is rounded once; four roundings are accepted.
- *Sums.* A sum of n terms has a relative error of about √n · u: Higham and Mary, "A new approach to probabilistic
  rounding error analysis", SIAM J. Sci. Comput. 41 (2019), and for data of mean zero "Sharper probabilistic backward
  error analysis", same journal 42 (2020). Sums are in float32, in float64 where everything is. A suite states n
  (``Suite.summands``); 65,536 without, which gives 3.1e-5 in float32. Products in TF32 or bfloat16 have 3e-4 and 2e-3.
- AMD's Composable Kernel derives tolerances from the same two facts, with n instead of √n (``get_relative_threshold``
  in its ``check_err.hpp``). KernelBench takes 1e-4 for float32 and 1e-2 for 16 bits, an element.

**Slices.** Rows, columns, tiles and elements have fewer elements than the whole, so their RMS error scatters, and
there are many of them. If the errors are independent and normal, n squares exceed n + 2√(nt) + 2t with a probability
of e⁻ᵗ (Laurent and Massart, "Adaptive estimation of a quadratic functional", Ann. Statist. 28 (2000), lemma 1). With
t = ln(10⁶ m) for m slices, one honest output in a million has a slice beyond √(1 + 2√(t/n) + 2t/n) times the accepted
norm. Twice as much is accepted, because a row shares inputs and its errors are not quite independent. Half is the most:
a slice that was never computed is off by 1.

**Centred.** Half of the variation must be right, so a constant fails. More is accepted where the reference, rounded to
the output's dtype, already is off by more than a sixth; nothing is judged where its variation is lost in rounding.

Integers and booleans must be equal, unless the suite states a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch

from lockstep.record.model import Accuracy
from lockstep.suite.model import MANY_SUMMANDS
from lockstep.timing.accuracy import TILE

#: Fewer summands than these are taken for as many: fast-math functions err by some u as well. CUDA's ``__expf(x)`` is
#: accurate to 2 + ⌊|1.173 x|⌋ ulp (CUDA C++ Programming Guide, "Intrinsic Functions").
FEW_SUMMANDS = 64

#: Roundings of intermediates and of an output of 8 bits.
ROUNDINGS, ROUNDINGS_8_BIT = 20, 4

#: Rows of gradients (``grouped.mlp_train``, quick cases) err by up to 1.5 times what independent errors would.
DEPENDENT = 2

#: Probability that some slice of an honest output is refused.
FALSE_REFUSAL = 1e-6

#: The most that a slice, or the variation of an output, may be off.
HALF = 0.5


def default_tolerance(output: torch.dtype, others: Iterable[torch.dtype], summands: int = MANY_SUMMANDS) -> float:
    """Return the accepted ‖got − want‖ / ‖want‖ of an output; 0 for integers and booleans.

    Args:
        output: dtype that was asked for, not the one that a variant chose.
        others: dtypes of inputs and reference.
        summands: terms of the longest sum behind one element.
    """
    if not _is_float(output):
        return 0.0
    wide = coarsest([output, *others])
    accumulator = torch.float64 if wide == torch.float64 else torch.float32
    rounded = _unit(wide) * math.sqrt(ROUNDINGS / 3) if wide else 0.0
    if output.itemsize == 1:
        rounded = max(rounded, _unit(output) * math.sqrt(ROUNDINGS_8_BIT / 3))
    return rounded + _summed(max(summands, FEW_SUMMANDS), accumulator)


def coarsest(dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
    """Return the floating-point dtype of more than 8 bits with the largest roundoff; ``None`` if there is none."""
    wide = [dtype for dtype in dtypes if _is_float(dtype) and dtype.itemsize > 1]
    return max(wide, key=_unit, default=None)


def refusal(accuracy: Accuracy, shape: Sequence[int], tolerance: float, at: str = "") -> str:
    """Return what is wrong with an output of this shape, as the rest of a sentence about it; "" if it is accepted.

    The norm is named first, then the measure that is furthest beyond its limit. ``at`` is the place in the sentence.
    """
    if accuracy.non_finite:
        return f"is NaN or infinite in {accuracy.non_finite} elements{at}, unlike the reference"
    norm, *others = _measures(accuracy, shape, tolerance)
    # A value is NaN where squares overflow.
    beyond = [measure for measure in (norm, *others) if not measure[0] <= measure[1]]
    if not beyond:
        return ""
    value, limit, what = norm if norm in beyond else max(beyond, key=_excess)
    return f"is off by {value:.3g} of {what}{at}, accepted is {limit:.3g}"


def _excess(measure: tuple[float, float, str]) -> float:
    value, limit, _ = measure
    return value / limit if limit else math.inf


def _measures(accuracy: Accuracy, shape: Sequence[int], tolerance: float) -> Iterator[tuple[float, float, str]]:
    """Yield each measure with its limit and its denominator."""
    columns = shape[-1] if shape else 1
    rows = math.prod(shape[:-1])
    tiles = math.ceil(rows / TILE) * math.ceil(columns / TILE)
    yield accuracy.norm, tolerance, "its norm"
    yield accuracy.row, _slice_limit(tolerance, columns, rows), "a row's norm"
    yield accuracy.column, _slice_limit(tolerance, rows, columns), "a column's norm"
    yield accuracy.tile, _slice_limit(tolerance, _smallest(rows) * _smallest(columns), tiles), "a tile's norm"
    yield accuracy.element, _slice_limit(tolerance, 1, rows * columns), "an element"
    yield accuracy.centred, _centred_limit(accuracy, tolerance), "its norm around its mean"


def _slice_limit(tolerance: float, elements: int, slices: int) -> float:
    if not elements or not slices:
        return tolerance
    t = math.log(slices / FALSE_REFUSAL) / elements
    return max(tolerance, min(DEPENDENT * tolerance * math.sqrt(1 + 2 * math.sqrt(t) + 2 * t), HALF))


def _centred_limit(accuracy: Accuracy, tolerance: float) -> float:
    if not accuracy.norm:
        return HALF
    # Norm of the reference over that of its variation.
    offset = accuracy.centred / accuracy.norm
    lost = offset * max(3 * accuracy.rounding, _summed(MANY_SUMMANDS, torch.float32))
    return max(HALF, lost, tolerance) if lost < 1 else math.inf


def _smallest(length: int) -> int:
    """Return the length of the shortest tile along a dimension."""
    return length % TILE or min(length, TILE)


def _summed(summands: int, accumulator: torch.dtype) -> float:
    return 2 * math.sqrt(summands) * _unit(accumulator)


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _unit(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2
