"""Define a series as the detector takes it: numbers with their errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Trend:
    """The numbers of one series over the commits, oldest first.

    Attributes:
        values: float64 [commits], in any unit; NaN where a commit has no number.
        errors: float64 [commits], NaN where unknown; ``None`` if no point has an error. Where ``ratio`` is True, the
            standard error of each value's *logarithm* (0.001 is 0.1 %), otherwise of the value. A 95 % interval is
            about four standard errors wide.

    Raises:
        ValueError: a value is infinite, or an array has a wrong shape.
    """

    values: NDArray[np.float64]
    errors: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        values = _row(self.values, "values")
        if np.any(np.isinf(values)):
            index = int(np.flatnonzero(np.isinf(values))[0])
            raise ValueError(f"values[{index}] is {values[index]}: a trend takes finite numbers, or NaN for none")
        object.__setattr__(self, "values", values)
        if self.errors is None:
            return
        errors = _row(self.errors, "errors")
        if errors.shape != values.shape:
            raise ValueError(f"errors has {errors.size} entries, values has {values.size}: each value has one error")
        # No measurement is perfectly certain, so an error of zero counts as unknown.
        object.__setattr__(self, "errors", np.where(np.isfinite(errors) & (errors > 0), errors, np.nan))

    def __len__(self) -> int:
        return int(self.values.size)

    @property
    def ratio(self) -> bool:
        """Whether all numbers are positive, so that changes are ratios. Otherwise they are differences in the unit."""
        return not bool(np.any(self.values <= 0))


def _row(numbers: ArrayLike, name: str) -> NDArray[np.float64]:
    row = np.array(numbers, dtype=np.float64)
    if row.ndim != 1:
        raise ValueError(f"{name} has shape {row.shape}: a trend has one number per commit")
    row.setflags(write=False)
    return row
