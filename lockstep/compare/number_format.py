"""Format numbers for readers, in the same way on every page. ``assets/grid.js`` formats the numbers in grids alike."""

from __future__ import annotations

import math

#: Separator of thousands: a narrow space that does not break. Half of the readers would read a comma as a decimal
#: point.
THIN = "\N{NARROW NO-BREAK SPACE}"

#: Numbers outside these limits are written with an exponent.
_LEAST, _MOST = 1e-6, 1e12


def whole(number: float) -> str:
    """Format a number without decimals: ``2 480``."""
    return f"{number:,.0f}".replace(",", THIN)


def decimals(value: float, count: int) -> int:
    """Return the number of decimals that show ``count`` significant digits of ``value``, which must not be zero."""
    size = abs(value)
    exponent = math.floor(math.log10(size))
    # Count after rounding: 9.9996 is 10.00 with four digits.
    if size >= 10.0 ** (exponent + 1) * (1 - 0.5 * 10.0**-count):
        exponent += 1
    return max(count - 1 - exponent, 0)


def significant(value: float, count: int) -> str:
    """Format a number with ``count`` significant digits, trailing zeros included: ``1.400``, ``200 000``."""
    if not _LEAST <= abs(value) < _MOST:
        return f"{value:.{count}g}"
    return f"{value:,.{decimals(value, count)}f}".replace(",", THIN)
