"""Format numbers for readers in the same way on every page.

``assets/grid.js`` formats the numbers in grids, and must give the same texts.
"""

from __future__ import annotations

import math

#: Separator of thousands: a narrow space at which a line does not break. Many readers would read a comma as a decimal
#: point.
THIN = "\N{NARROW NO-BREAK SPACE}"

#: Numbers outside these limits are written with an exponent.
_LEAST, _MOST = 1e-6, 1e12


def whole(number: float) -> str:
    """Format a number without decimals: ``2 480``."""
    return f"{number:,.0f}".replace(",", THIN)


def decimals(value: float, count: int) -> int:
    """Return how many decimals show ``count`` significant digits of ``value``, which must not be zero."""
    size = abs(value)
    exponent = math.floor(math.log10(size))
    # Rounding may add a digit before the point: with four digits, 9.9996 becomes 10.00.
    if size >= 10.0 ** (exponent + 1) * (1 - 0.5 * 10.0**-count):
        exponent += 1
    return max(count - 1 - exponent, 0)


def significant(value: float, count: int) -> str:
    """Format a number with ``count`` significant digits, including trailing zeros: ``1.400``, ``200 000``."""
    if not _LEAST <= abs(value) < _MOST:
        return f"{value:.{count}g}"
    return f"{value:,.{decimals(value, count)}f}".replace(",", THIN)
