"""How kernels are measured and compared, in lockstep with a baseline.

The names a suite needs are here; nothing in this file imports torch, so that asv's discovery stays
fast.
"""

import sys

from lockstep.suite.case import Case, grid
from lockstep.suite.definition import Cost, Suite
from lockstep.suite.own_variants import variant

# asv looks for types of benchmarks in its own packages alone, and loads no plugins where it finds and runs benchmarks.
# The suites that it imports there import this file. Elsewhere nobody asks for the type, and asv is slow to import.
if "asv_runner.benchmarks" in sys.modules:
    from lockstep.asv import benchmark as benchmark  # registers the type

__all__ = ["Case", "Cost", "Suite", "grid", "variant"]
