"""asv's benchmark type for suites: latency with samples, speedup and costs from the same measurement.

Importing this module registers the type with asv.

The numbers come from the worker of the commit (``lockstep.asv.environment``). asv's other types of environments know no
worker.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from asv_runner import benchmarks
from asv_runner.benchmarks._base import Benchmark

from lockstep.record.quantity import COST_QUANTITIES, QUANTITIES, type_of
from lockstep.suite.definition import CACHE_STATES, Suite


class LockstepBenchmark(Benchmark):  # type: ignore[misc]  # asv has no types
    """asv's benchmark of one quantity of a suite: ``latency``, ``speedup`` or a cost."""

    name_regex = re.compile(f"^({'|'.join(('latency', 'speedup', *COST_QUANTITIES))})$")

    def __new__(cls, name: str, func: Any, attr_sources: list[Any]) -> Any:
        """Return a benchmark of this type for a suite, else of the type that asv would choose, or ``None``.

        asv chooses a type only by the name of the function.
        """
        suite = _suite_of(attr_sources)
        if suite is not None:
            # A module that imports another module's suite does not define the suite's series.
            return super().__new__(cls) if type(suite).__module__ == attr_sources[-1].__name__ else None
        for kind in benchmarks.benchmark_types:
            if kind is not cls and kind.name_regex.match(func.__name__):
                return kind(name, func, attr_sources)
        return None

    def __init__(self, name: str, func: Any, attr_sources: list[Any]) -> None:
        suite, quantity = _suite_of(attr_sources), func.__name__
        assert suite is not None
        series = series_of(suite, quantity)
        super().__init__(f"{suite.family}.{series.__name__}", series, [series])
        self.type = type_of(quantity)
        self.unit = QUANTITIES[quantity].unit
        self.suite = suite.name
        self.quantity = quantity
        self._suite = suite

    def run(self, variant: str, case: str, l2: str) -> dict[str, Any]:
        """Raise ``RuntimeError``: under the environment ``lockstep`` the commit's worker answers in its place."""
        raise RuntimeError('suites need "environment_type": "lockstep" in asv.conf.json; `lockstep measure` needs none')


def series_of(suite: Suite, quantity: str) -> Callable[..., None]:
    """Return a function with what asv reads of a benchmark (parameters, version, source) of a latency or cost."""

    def series(variant: str, case: str, l2: str) -> None:
        raise RuntimeError("a suite's benchmark must not be called; asv's benchmark type of Lockstep measures it")

    series.__name__ = series.__qualname__ = f"{suite.op}_{quantity}" if suite.op else quantity
    series.__module__ = type(suite).__module__
    series.__doc__ = f"{quantity} of every variant of {suite.name}"
    attributes = {
        "params": [list(suite.variants()), [case.label for case in suite.all_cases], list(CACHE_STATES)],
        "param_names": ["variant", "case", "l2"],
        "version": suite.benchmark_version,
        "pretty_source": inspect.getsource(type(suite)),  # asv's pages show the source
    }
    vars(series).update(attributes)
    return series


def _suite_of(attr_sources: list[Any]) -> Suite | None:
    """Return the suite whose method asv found, or None for any other benchmark."""
    suite: Suite | None = next((source for source in attr_sources if isinstance(source, Suite)), None)
    return suite if suite is not None and isinstance(attr_sources[-1], ModuleType) else None


if LockstepBenchmark not in benchmarks.benchmark_types:
    benchmarks.benchmark_types.insert(0, LockstepBenchmark)
