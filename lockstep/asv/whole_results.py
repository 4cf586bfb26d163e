"""Convert the records of a benchmark to asv's result, for what asv did not measure itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from asv.runner import BenchmarkResult

from lockstep.asv.result_values import MeasurementFailed, NotAvailable, answer
from lockstep.record.model import Record


def benchmark_result(records: Sequence[Record | None], quantity: str) -> BenchmarkResult:
    """Return asv's result of a benchmark from the records of its parameters, in asv's order.

    What is n/a, or has no record because it was not selected, has the number NaN; what failed has none.
    """
    values: list[float | bool | None] = []
    samples: list[list[float] | None] = []
    errors: list[str] = []
    for record in records:
        value: float | bool | None = math.nan
        taken = None
        try:
            if record is not None:
                taken = answer(record, quantity)["samples"]
                value = True
        except NotAvailable:
            pass
        except MeasurementFailed as failure:
            value = None
            errors.append(str(failure))
        values.append(value)
        samples.append(taken)
    number = [1 if taken else None for taken in samples]
    return BenchmarkResult(values, samples, number, 1 if errors else 0, "\n".join(errors), None)
