"""asv's benchmark type for lockstep series: latency with samples, and speedup from the same measurement.

``Suite.series`` registers it with asv.

Under the ``lockstep`` environment the numbers come from the worker of the commit; under any other
environment type each asv process measures for itself, slower, but with the same protocol.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from asv_runner import benchmarks
from asv_runner.benchmarks._base import Benchmark
from asv_runner.benchmarks.mark import SkipNotImplemented

from lockstep.asv.answer import NotAvailable, answer
from lockstep.record.model import Record


class LockstepBenchmark(Benchmark):  # type: ignore[misc]  # asv has no types
    """A series made by ``Suite.series``."""

    name_regex = re.compile("^(.+_)?(latency|speedup)$")

    def __new__(cls, name: str, func: Any, attr_sources: list[Any]) -> Any:
        """A benchmark of this type for a series; else of the type that asv would take, or ``None`` if there is none.

        asv chooses a type by name alone, and a suite of plain asv may have a ``track_speedup`` of its own.
        """
        if hasattr(func, "_suite"):
            return super().__new__(cls)
        for kind in benchmarks.benchmark_types:
            if kind is not cls and kind.name_regex.match(func.__name__):
                return kind(name, func, attr_sources)
        return None

    def __init__(self, name: str, func: Any, attr_sources: list[Any]) -> None:
        super().__init__(name, func, attr_sources)
        self.type = "lockstep"
        self.unit = "seconds" if func._quantity == "latency" else "x"
        self.suite = func._suite.name
        self.quantity = func._quantity

    def run(self, variant: str, case: str, l2: str) -> dict[str, Any]:
        """asv's answer for one parameter: samples and how many calls each stands for.

        Raises:
            SkipNotImplemented: the series is n/a here; asv stores NaN.
            MeasurementFailed: asv stores it as failed.
        """
        # asv sets repeat=1 for --quick, after __init__; read it as late as asv does.
        quick = any(getattr(source, "repeat", None) == 1 for source in self._attr_sources)
        suite = self.func._suite
        records = _measure_here(suite, case, l2, quick)
        try:
            return answer(records[variant], self.quantity)
        except NotAvailable as reason:
            raise SkipNotImplemented(str(reason)) from reason


def register() -> None:
    """Teach asv the type; however often it is called, once."""
    if LockstepBenchmark not in benchmarks.benchmark_types:
        benchmarks.benchmark_types.insert(0, LockstepBenchmark)


@functools.cache
def _measure_here(suite: Any, case: str, l2: str, quick: bool) -> dict[str, Record]:
    """Measure in this process, for environments without a worker."""
    # Start-up: torch is slow to import.
    from lockstep.timing.device import open_device
    from lockstep.timing.interleave import QUICK, Plan
    from lockstep.timing.measure import Measurer

    device = open_device()
    measurer = Measurer(device, QUICK if quick else Plan.on(device), history=True)
    return {record.variant: record for record in measurer.measure(suite, suite.case(case), l2, suite.variants())}
