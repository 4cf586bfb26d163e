"""Draw a problem's inputs from other distributions too: many problems draw uniform values in [0, 1) alone.

There a product in bfloat16 seems exact, because errors of positive terms average away, ``relu`` does nothing, and a
softmax needs no maximum. Each distribution maps values one by one. So what a problem's inputs promise stays: zeros
(triangular matrices), equal values (symmetric ones), few values (labels, masks) and sums or norms of rows (weights of a
mean, directions). A distribution on which the result is not finite or mostly rounding error is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from lockstep.suite.definition import SuiteError
from lockstep.suite.inputs import map_tensors, tensors_of

#: Number of values that count as few, and of elements and rows that are looked at.
_FEW, _SAMPLE = 16, 1 << 16

#: Share of the elements that become large.
_LARGE_SHARE = 1e-3


def _signed(values: torch.Tensor) -> torch.Tensor:
    if bool((values < 0).any()) and bool((values > 0).any()):
        return -values
    present = values != 0
    return torch.where(present, values - values.sum() / present.sum(), values)


def _few_large(values: torch.Tensor) -> torch.Tensor:
    sizes = _sample(values).abs()
    limit = sizes.kthvalue(max(1, int(len(sizes) * (1 - _LARGE_SHARE)))).values
    return torch.where(values.abs() > limit, values * 30, values)


#: The distributions by name: functions of the problem's own values in float32.
DISTRIBUTIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "signed": _signed,
    "wide": lambda values: values * 30,
    "few large": _few_large,
    "near zero": lambda values: values * 1e-4,
}


def moved(inputs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return inputs with the values of each free floating-point tensor moved to the distribution ``name``."""
    function = DISTRIBUTIONS[name]

    def change(tensor: torch.Tensor) -> torch.Tensor:
        return function(tensor.float()).to(tensor.dtype) if _is_free(tensor) else tensor

    return {name: map_tensors(value, change) for name, value in inputs.items()}


def rounded_elsewhere(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs of which each free floating-point value is moved by one rounding of its dtype, up or down."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not _is_free(tensor):
            return tensor
        step = torch.finfo(tensor.dtype).eps * (torch.randint_like(tensor, 2) * 2 - 1)
        return tensor * (1 + step)

    return {name: map_tensors(value, change) for name, value in inputs.items()}


def off(result: Any, other: Any) -> float:
    """Return how far two results are apart, relative to the norm of the first; infinite if one is not finite."""
    worst = 0.0
    for first, second in zip(tensors_of(result), tensors_of(other), strict=True):
        first, second = first.double(), second.double()
        if not (first.isfinite().all() and second.isfinite().all()):
            return float("inf")
        size = torch.linalg.vector_norm(first)
        worst = max(worst, float(torch.linalg.vector_norm(first - second) / size) if size else float(second.any()))
    return worst


def random_problem(apart: float) -> SuiteError:
    """Return the error for a problem whose results on the same inputs are ``apart``, relative to the norm."""
    return SuiteError(
        f"the result of this problem is random: two calls on the same inputs differ by {apart:.2g} of the norm. "
        "Fix its seed, or give it a comparison of its own"
    )


def _is_free(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor are free values: not labels, not normalised rows."""
    if not tensor.is_floating_point() or tensor.dtype.itemsize < 2 or tensor.numel() <= _FEW:
        return False
    if len(_sample(tensor).unique()) <= _FEW:
        return False
    if tensor.dim() < 2 or tensor.shape[-1] < 2:
        return True
    values = tensor.flatten(0, -2)[:256].float()
    rows = (values.sum(1), torch.linalg.vector_norm(values, dim=1))
    equal = max(1e-5, torch.finfo(tensor.dtype).eps / 4)
    return all(len(row) < 2 or bool(row.std() > equal * row.abs().mean()) for row in rows)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.flatten()
    return flat[:: max(1, len(flat) // _SAMPLE)]
