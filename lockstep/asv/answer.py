"""What asv is told of a record."""

from __future__ import annotations

from typing import Any

from lockstep.record.model import Record


class NotAvailable(Exception):
    """A series that is n/a here, or has no such number; asv stores NaN."""


class MeasurementFailed(RuntimeError):
    """A series that was measured and failed; asv shows it as failed, with this reason."""


def answer(record: Record, quantity: str) -> dict[str, Any]:
    """Samples, and how many calls each stands for.

    Raises:
        NotAvailable: there is no such number.
        MeasurementFailed: the series failed.
    """
    if record.state == "na":
        raise NotAvailable(record.reason)
    if record.state == "failed":
        raise MeasurementFailed(f"{record.variant} at {record.case}, {record.l2} L2: {record.reason}")
    samples = record.latency_samples if quantity == "latency" else record.speedup_samples
    if not samples:
        raise NotAvailable(f"no {quantity}: {record.baseline} has no number here")
    return {"samples": list(samples), "number": 1}
