"""Convert a record to an answer for asv."""

from __future__ import annotations

from typing import Any

from lockstep.record.model import Record
from lockstep.record.quantity import COST_QUANTITIES


class NotAvailable(Exception):
    """The series is n/a on this machine, or lacks the number; asv stores NaN."""


class MeasurementFailed(RuntimeError):
    """The measurement of the series failed. asv shows the series as failed, with this reason."""


def answer(record: Record, quantity: str) -> dict[str, Any]:
    """Return a record's samples of a quantity in asv's form, with the number of calls in each sample.

    Raise ``NotAvailable`` if the record does not have the number. Raise ``MeasurementFailed`` if the series failed.
    """
    if record.state == "na":
        raise NotAvailable(record.reason)
    if record.state == "failed":
        raise MeasurementFailed(f"{record.variant} at {record.case}, {record.l2} L2: {record.reason}")
    if quantity in COST_QUANTITIES:
        if quantity not in record.costs:
            raise NotAvailable(f"{quantity} was not measured for {record.variant} at {record.case}, {record.l2} L2")
        return {"samples": [record.costs[quantity].value], "number": 1}
    samples = record.latency_samples if quantity == "latency" else record.speedup_samples
    if not samples:
        raise NotAvailable(f"no {quantity}: the baseline {record.baseline} has no number for this case")
    return {"samples": list(samples), "number": 1}
