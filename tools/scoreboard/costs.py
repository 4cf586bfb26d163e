"""The table of recorded costs besides latency: behind a kernel, on the host, energy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lockstep.record.model import CostEstimate, Estimate, Record
from tools.scoreboard.cells import SHOWN, line

#: Mark of a cost that was not recorded.
MISSING = "—"

#: Quantities with one column for each variant: the name, the factor to the shown unit, the unit and its digits.
_COLUMNS: Mapping[str, tuple[str, float, str, int]] = {
    "behind": ("behind", 1e6, "µs", 2),
    "host": ("host", 1e6, "µs", 1),
    "energy": ("energy", 1e3, "mJ", 2),
}


def costs_table(measured: Sequence[tuple[str, Mapping[str, Record]]], baseline: str) -> Iterator[str]:
    """Yield the lines of a Markdown table of costs, and an empty line; nothing if no case has a cost.

    Args:
        measured: for each case its name and its records by variant, all from one measurement.
        baseline: the variant that ratios refer to.
    """
    rows = [(case, records) for case, records in measured if records[SHOWN].costs]
    if not rows:
        return
    pairs = [f"{name} {unit} {column}" for name, _, unit, _ in _COLUMNS.values() for column in (baseline, SHOWN)]
    yield f"| case | ratio in a chain | behind a kernel | {' | '.join(pairs)} |"
    yield f"|---|---:|---:|{'---:|' * len(pairs)}"
    for case, records in rows:
        record = records[SHOWN]
        cells = [case, _ratio(record.speedup), _ratio(record.costs.get("behind_speedup"))]
        for quantity in _COLUMNS:
            cells += [_number(quantity, records.get(name)) for name in (baseline, SHOWN)]
        yield line(*cells)
    yield ""


def _ratio(ratio: Estimate | None) -> str:
    return f"{ratio.value:.3f}×" if ratio else MISSING


def _number(quantity: str, record: Record | None) -> str:
    """Return a cost in its unit, with half the width of its interval if the interval is wider than a tenth."""
    cost: CostEstimate | None = record.costs.get(quantity) if record is not None else None
    if cost is None:
        return MISSING
    _, factor, _, digits = _COLUMNS[quantity]
    half = (cost.high - cost.low) / 2
    wide = f" ± {half * factor:.{digits}f}" if half > 0.1 * cost.value else ""
    return f"{cost.value * factor:.{digits}f}{wide}"
