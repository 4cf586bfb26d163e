"""The table of recorded costs besides latency: behind a kernel, on the host, energy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lockstep.record.model import CostEstimate, Estimate, Record

#: Mark of a cost that was not recorded.
MISSING = "—"

#: Quantities with one column for each variant: the name, the factor to the shown unit, the unit and its digits.
_COLUMNS: Mapping[str, tuple[str, float, str, int]] = {
    "behind": ("behind", 1e6, "µs", 2),
    "host": ("host", 1e6, "µs", 1),
    "energy": ("energy", 1e3, "mJ", 2),
}


def costs_table(measured: Sequence[tuple[str, Mapping[str, Record]]], baseline: str, variant: str) -> Iterator[str]:
    """Yield the lines of a Markdown table of costs, and an empty line; nothing if no case has a cost.

    Args:
        measured: for each case its name and its records by variant, all from one measurement.
        baseline: the variant that ratios refer to.
        variant: the variant to show beside the baseline.
    """
    rows = [(case, records) for case, records in measured if records[variant].costs]
    if not rows:
        return
    pairs = [f"{name} {unit} {one}" for name, _, unit, _ in _COLUMNS.values() for one in (baseline, variant)]
    yield f"| case | ratio in a chain | behind a kernel | {' | '.join(pairs)} |"
    yield f"|---|---:|---:|{'---:|' * len(pairs)}"
    for case, records in rows:
        ours = records[variant]
        cells = [case, _ratio(ours.speedup), _ratio(ours.costs.get("behind_speedup"))]
        for quantity in _COLUMNS:
            cells += [_number(quantity, records.get(one)) for one in (baseline, variant)]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _ratio(ratio: Estimate | None) -> str:
    return f"{ratio.value:.3f}×" if ratio else MISSING


def _number(quantity: str, record: Record | None) -> str:
    """Return a cost in its unit, with half the width of its interval if the interval is wider than a tenth."""
    found: CostEstimate | None = record.costs.get(quantity) if record is not None else None
    if found is None:
        return MISSING
    _, factor, _, digits = _COLUMNS[quantity]
    half = (found.high - found.low) / 2
    wide = f" ± {half * factor:.{digits}f}" if half > 0.1 * found.value else ""
    return f"{found.value * factor:.{digits}f}{wide}"
