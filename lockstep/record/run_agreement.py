"""Compute how closely several runs of the same code agree, and format it for printing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev

from rich.table import Table

from lockstep.record.console import plain_table
from lockstep.record.model import TWIN, Record
from lockstep.record.quantity import COST_QUANTITIES, COSTS, PAIRED

#: The records of one run by their keys: suite, variant, case and cache state.
Run = Mapping[tuple[str, str, str, str], Record]


@dataclass(frozen=True)
class Agreement:
    """One series measured in several fresh runs.

    Attributes:
        suite, variant, case, l2: the series.
        latency_s, speedup: medians over the runs.
        latency_range, speedup_range: (max − min) / median over the runs.
        again_sd: standard deviation of the A/A ratio over the runs (true ratio 1); None without an A/A comparison.
        again_mean: mean of the A/A ratio over the runs, minus 1.
        costs_sd: standard deviation over the runs divided by their mean, of each cost that every run measured.
    """

    suite: str
    variant: str
    case: str
    l2: str
    latency_s: float
    latency_range: float
    speedup: float | None
    speedup_range: float | None
    again_sd: float | None
    again_mean: float | None
    costs_sd: Mapping[str, float] = field(default_factory=dict)


def agreements(runs: Sequence[Run]) -> list[Agreement]:
    """Return one row for each series that every run measured."""
    rows = []
    for key, first in runs[0].items():
        suite, variant, case, l2 = key
        records = [run[key] for run in runs if key in run and run[key].latency is not None]
        if variant.endswith(TWIN) or first.state != "ok" or len(records) < len(runs):
            continue
        latencies = [record.latency.value for record in records if record.latency]
        speedups = [record.speedup.value for record in records if record.speedup]
        again = [
            twin.speedup.value for run in runs if (twin := run.get((suite, variant + TWIN, case, l2))) and twin.speedup
        ]
        rows.append(
            Agreement(
                suite=suite,
                variant=variant,
                case=case,
                l2=l2,
                latency_s=median(latencies),
                latency_range=_range(latencies),
                speedup=median(speedups) if speedups else None,
                speedup_range=_range(speedups) if speedups else None,
                again_sd=stdev(again) if len(again) > 1 else None,
                again_mean=fmean(again) - 1 if again else None,
                costs_sd=_costs_sd(records),
            )
        )
    return rows


def summary(rows: Sequence[Agreement]) -> Iterator[str]:
    """Yield lines on how closely the runs agree. The baseline's speedup is 1 by definition and is left out."""
    speedups = [row.speedup_range for row in rows if row.speedup_range is not None and row.speedup != 1.0]
    yield _share("speedup", speedups, 0.003, "max − min over median")
    yield _share("latency", [row.latency_range for row in rows], 0.025, "max − min over median")
    yield _share("A/A", [row.again_sd for row in rows if row.again_sd is not None], 0.0005, "standard deviation")
    for quantity in COST_QUANTITIES:
        # The baseline's ratio to itself does not scatter.
        shown = [row for row in rows if quantity not in PAIRED.values() or row.speedup != 1.0]
        scatter = [row.costs_sd[quantity] for row in shown if quantity in row.costs_sd]
        if scatter:
            yield (
                f"{quantity}: {len(scatter)} series; standard deviation: "
                f"median {median(scatter):.2%}, worst {max(scatter):.2%}"
            )


def _costs_sd(records: Sequence[Record]) -> dict[str, float]:
    """Return each cost's standard deviation over the runs, divided by the mean; a cost that a run lacks is left out."""
    values = {
        name: [record.costs[name].value for record in records if name in record.costs] for name in COST_QUANTITIES
    }
    return {
        name: stdev(numbers) / fmean(numbers)
        for name, numbers in values.items()
        if len(numbers) == len(records) > 1 and fmean(numbers)
    }


def missing_costs(runs: Sequence[Run]) -> Iterator[str]:
    """Yield each reason why costs are missing, with the series that it concerns."""
    series: dict[str, dict[str, None]] = {}
    for record in (record for run in runs for record in run.values() if not record.variant.endswith(TWIN)):
        for reason in record.note.split("; "):
            if reason.startswith(tuple(f"no {cost}:" for cost in COSTS)):
                series.setdefault(reason, {})[f"{record.suite} {record.variant} {record.case}"] = None
    for reason, names in series.items():
        yield f"{reason} ({next(iter(names))}{f' and {len(names) - 1} more series' if len(names) > 1 else ''})"


def _share(name: str, values: Sequence[float], bar: float, criterion: str) -> str:
    if not values:
        return f"{name}: no values"
    inside = sum(value <= bar for value in values)
    return (
        f"{name}: {inside} of {len(values)} series ({inside / len(values):.0%}) within {bar:.2%} ({criterion}); "
        f"median {median(values):.3%}, worst {max(values):.2%}"
    )


def _range(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / median(values)


def agreement_table(rows: Sequence[Agreement]) -> Table:
    """Return a table of the agreement of latency, speedup and A/A ratio, and of the costs that a series has."""
    costs = [name for name in COST_QUANTITIES if any(name in row.costs_sd for row in rows)]
    numbers = ("µs", "range", "speedup", "range", "A/A − 1", "A/A sd", *(f"{name} sd" for name in costs))
    table = plain_table(("suite", "variant", "case", "L2"), numbers)
    for row in rows:
        shown = (
            (row.latency_s * 1e6, ".2f"),
            (row.latency_range, ".2%"),
            (row.speedup, ".4f"),
            (row.speedup_range, ".3%"),
            (row.again_mean, "+.3%"),
            (row.again_sd, ".3%"),
            *((row.costs_sd.get(name), ".2%") for name in costs),
        )
        cells = ("" if number is None else format(number, spelled) for number, spelled in shown)
        table.add_row(row.suite, row.variant, row.case, row.l2, *cells)
    return table
