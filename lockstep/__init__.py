"""How kernels are measured and compared, in lockstep with a baseline.

The names a suite needs are here; nothing in this file imports torch, so that asv's discovery stays
fast.
"""

from lockstep.suite.model import Case, Limit, Suite, cases

__all__ = ["Case", "Limit", "Suite", "cases"]
