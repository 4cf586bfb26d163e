"""Repeat a function's launches without computing its checks, tables and descriptors again: the decorator ``planned``.

Nothing else of this package is public, and no other package knows of it.
"""

from kernels.call_plans.decorator import planned

__all__ = ["planned"]
