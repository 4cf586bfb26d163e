"""Print records as tables: median, spread, rates, share of the floor, and the speedup with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import quantiles

from rich.table import Table

from lockstep.record.console import plain_table
from lockstep.record.model import Estimate, Record
from lockstep.record.quantity import COST_QUANTITIES, QUANTITIES

#: An interval of a ratio, or an MDE, above this limit is shown as unknown (1 is 100 %).
UNKNOWN = 100.0

#: The unit in which a cost is shown, and the factor to it, by the unit in which it is stored.
_SHOWN_AS = {"seconds": ("µs", 1e6), "x": ("×", 1.0), "J": ("mJ", 1e3), "s": ("s", 1.0)}

#: The note below a table of times that were measured on a CPU.
CPU_NOTE = (
    "note: a CPU's times change with whatever else runs on the machine, by tens of per cent and at times many times "
    "over; they show that everything works, not how fast it is"
)


#: Columns of numbers, with their usual widths: a table that is printed part by part keeps its columns.
_NUMBERS = {"µs": 9, "spread": 6, "GFLOP/s": 7, "GB/s": 6, "% of floor": 10, "speedup": 7, "95 % interval": 15} | {
    "MDE": 6,
    "MHz": 4,
    "error": 7,
}


def records_table(
    records: Sequence[Record],
    title: str = "",
    *,
    names: Sequence[str] = (),
    cases: Sequence[str] = (),
    head: bool = True,
) -> Table:
    """Return a table of the records of a suite. ``reasons`` gives the lines below it about failed and n/a records.

    Args:
        names, cases: variants and cases of all parts of a table that is printed part by part.
        head: whether to print the title and the names of the columns.
    """
    table = plain_table(("variant", "case", "L2"), tuple(_NUMBERS), title=title if head else None)
    table.show_header = head
    widths = [max(map(len, texts), default=0) for texts in (names, cases, ("cold",))]
    for column, width in zip(table.columns, (*widths, *_NUMBERS.values()), strict=True):
        column.min_width = max(width, len(str(column.header)))
    for record in records:
        table.add_row(record.variant, record.case, record.l2, *_cells(record))
    return table


def costs_table(records: Sequence[Record]) -> Table:
    """Return a table of the costs with their intervals, for the records that have costs."""
    names = [name for name in COST_QUANTITIES if any(name in record.costs for record in records)]
    headings = [part for name in names for part in (_heading(name), "95 % interval")]
    table = plain_table(("variant", "case", "L2"), headings)
    for record in records:
        if record.costs:
            cells = [cell for name in names for cell in _cost(name, record.costs.get(name))]
            table.add_row(record.variant, record.case, record.l2, *cells)
    return table


def reasons(records: Sequence[Record]) -> Iterator[str]:
    """Yield a line for each reason of a missing number and each note, with the variants and cases concerned."""
    texts: dict[str, list[Record]] = {}
    for record in records:
        if record.reason:
            texts.setdefault(f"{'n/a' if record.state == 'na' else 'failed'}: {record.reason}", []).append(record)
        if record.note:
            texts.setdefault(f"note: {record.note}", []).append(record)
        if record.deterministic is False:
            texts.setdefault("not deterministic: two calls on the same inputs differ in bits", []).append(record)
    for text, concerned in texts.items():
        variants = ", ".join(dict.fromkeys(record.variant for record in concerned))
        cases = list(dict.fromkeys(f"{record.case} {record.l2}" for record in concerned))
        yield f"{text} ({variants}; {cases[0]}{f' and {len(cases) - 1} more' if len(cases) > 1 else ''})"


def _heading(name: str) -> str:
    unit, _ = _SHOWN_AS[QUANTITIES[name].unit]
    return f"{name.replace('_', ' ')} {unit}"


def _cost(name: str, estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return "", ""
    _, factor = _SHOWN_AS[QUANTITIES[name].unit]
    low, high = factor * estimate.low, factor * estimate.high
    known = high < UNKNOWN * factor * estimate.value
    return _digits(factor * estimate.value), f"{_digits(low)} … {_digits(high)}" if known else "unknown"


def _digits(number: float) -> str:
    """Format a number with at least four significant digits and without an exponent if it is large."""
    return f"{number:.0f}" if number >= 1e4 else f"{number:.4g}"


def _cells(record: Record) -> list[str]:
    if record.state != "ok" or record.latency is None:
        return ["n/a" if record.state == "na" else "failed"]
    seconds = record.latency.value
    cells = [
        f"{seconds * 1e6:.2f}",
        f"{spread(record.latency_samples):.2%}",
        _rate(record.flops / seconds),
        _rate(record.bytes / seconds),
        f"{record.floor_s / seconds:.0%}" if record.floor_s else "",
    ]
    if record.speedup is None:
        cells += ["", ""]
    else:
        low, high = record.speedup.low, record.speedup.high
        cells += [f"{record.speedup.value:.3f}×", f"{low:.4f} … {high:.4f}" if high < UNKNOWN else "unknown"]
    cells.append("" if record.mde is None else f"{record.mde:.2%}" if record.mde < UNKNOWN else "unknown")
    cells.append(f"{record.clocks.sm_mhz:.0f}" if record.clocks.sm_mhz else "")
    cells.append("" if record.check_error is None else f"{record.check_error:.1e}")
    return cells


def _rate(of_one: float) -> str:
    """Format a rate in units of 10⁹ per second. Rates below ten, as on a CPU, have two significant digits."""
    rate = of_one / 1e9
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


def spread(samples: Sequence[float]) -> float:
    """Return half the interquartile range divided by the median; 0 for fewer than two samples."""
    if len(samples) < 2:
        return 0.0
    low, middle, high = quantiles(samples, n=4)
    return (high - low) / 2 / middle
