"""Measure how long a variant's kernels take to compile at a case.

The kernels are compiled one after another with an empty cache, on the machine that measures. The compile time is not
one of the quantities of ``lockstep code history``: those may be computed on any computer, but the compile time depends
on the computer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from lockstep.machine_code.session import Session, Tree
from lockstep.machine_code.targets import Target

#: Number of times that each kernel is compiled.
REPEATS = 3


class CompileClock:
    """Measures compile times for one tree. The process starts on demand, and ``close`` ends it.

    Args:
        tree: the packages under test.
        benchmark_dir: today's suites.
        target: the GPU to compile for.
    """

    def __init__(self, tree: Tree, benchmark_dir: Path, target: Target) -> None:
        # Kernels that depend on the GPU's name are compiled for this GPU, which the process does not see.
        variables = {"LOCKSTEP_KERNEL_GPU": target.gpu} if target.gpu else {}
        self._session = Session(tree, benchmark_dir, 1, variables=variables)
        self._target = target

    def seconds(self, suite: str, case: str, variants: Iterable[str]) -> Mapping[str, tuple[float, ...]]:
        """Return the seconds to compile all kernels of each variant, measured ``REPEATS`` times.

        Variants without a Triton kernel, variants whose trace may lack kernels, and variants with a kernel that does
        not compile are left out.

        Raises:
            TracingFailed: the process does not start, or dies.
        """
        codes, wanted = self._session.trace([suite], self._target, {suite: [case]}), set(variants)
        kernels = {
            key.variant: list(dict.fromkeys(kernel.identity for kernel in code.kernels))
            for key, code in codes.items()
            if key.variant in wanted and code.kernels and code.memory is not None
        }
        every = list(dict.fromkeys(one for identities in kernels.values() for one in identities))
        taken = self._session.clock(every, self._target, REPEATS) if every else {}
        return {
            variant: tuple(map(math.fsum, zip(*(taken[one] for one in identities), strict=True)))
            for variant, identities in kernels.items()
            if all(one in taken for one in identities)
        }

    def close(self) -> None:
        """End the process, if it was started."""
        self._session.close()
