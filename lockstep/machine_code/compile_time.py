"""Measure how long a variant's kernels take to compile at a case.

The kernels are compiled one after another with an empty cache, on the machine that measures. The compile time is not
one of the quantities of ``lockstep code history``: those may be computed on any computer, but the compile time depends
on the computer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from lockstep.machine_code.targets import Target
from lockstep.machine_code.worker_session import Session
from lockstep.suite.commit_sources import Tree

#: Number of times that each kernel is compiled.
REPEATS = 3

#: Identities of the kernels that a variant launches at a case, in the order of their first launch.
Kernels = tuple[str, ...]


class CompileClock(Session):
    """Measures how long kernels of one tree take to compile, in a process that starts on demand; ``close`` ends it."""

    def __init__(self, tree: Tree, benchmark_dir: Path, target: Target) -> None:
        super().__init__(tree, target, benchmark_dir, 1)
        self._kernels: dict[tuple[str, str], Mapping[str, Kernels | str]] = {}

    def seconds(self, suite: str, case: str, variants: Iterable[str]) -> Mapping[str, tuple[float, ...] | str]:
        """Return the seconds to compile all kernels that each variant launches at a case, measured ``REPEATS`` times.

        In place of the seconds, a variant whose trace may lack kernels, or with a kernel that does not compile, has
        the reason. Variants without a Triton kernel are left out.
        """
        requested = set(variants)
        launched = {name: them for name, them in self.kernels(suite, case).items() if name in requested and them}
        seconds_of = self.clock((one for them in launched.values() if isinstance(them, tuple) for one in them), REPEATS)

        def total(kernels: Kernels | str) -> tuple[float, ...] | str:
            if isinstance(kernels, str):
                return kernels
            if not all(identity in seconds_of for identity in kernels):
                return "a kernel of it does not compile"
            return tuple(map(math.fsum, zip(*(seconds_of[identity] for identity in kernels), strict=True)))

        return {name: total(kernels) for name, kernels in launched.items()}

    def kernels(self, suite: str, case: str) -> Mapping[str, Kernels | str]:
        """Return the kernels of each variant at a case, or why its trace may lack kernels."""
        if (suite, case) not in self._kernels:
            codes = self.trace([suite], {suite: [case]})  # may end the process, which empties ``_kernels``
            self._kernels[suite, case] = {
                key.variant: tuple(dict.fromkeys(kernel.identity for kernel in code.kernels))
                if code.call is not None
                else code.unknown or "its trace may lack kernels"
                for key, code in codes.items()
            }
        return self._kernels[suite, case]

    def clock(self, kernels: Iterable[str], repeats: int) -> Mapping[str, tuple[float, ...]]:
        """Return the seconds of ``repeats`` compilations of each kernel; kernels that do not compile are left out.

        Each compilation has an empty cache. ``kernels`` are identities that ``kernels`` of the running process
        returned.
        """
        if not (identities := list(dict.fromkeys(kernels))):
            return {}
        request = {"identities": identities, "repeats": repeats}
        seconds = self.request("timing the compiler of", "clocked", clock=request)["seconds"]
        return {identity: tuple(times) for identity, times in zip(identities, seconds, strict=True) if times}

    def close(self) -> None:
        """End the compiling process, if there is one. A later request starts a new process."""
        self._kernels.clear()
        super().close()
