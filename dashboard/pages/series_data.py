"""What the page of one series shows: points, changes, noise and levels, and the table of its commits."""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np
from dash import html

from dashboard.address import SeriesAddress
from dashboard.charts.axes import in_zoom
from dashboard.charts.marks import changed_conditions
from dashboard.charts.series_figure import SeriesView
from dashboard.pages.parts import command_block, commit_link, count, day, minus, table
from lockstep.alerts.analysis.latest_findings import MachineFindings
from lockstep.alerts.analysis.machine_results import name_of
from lockstep.alerts.reproduce import script
from lockstep.compare.number_format import significant, whole
from lockstep.compare.read_rows import rows_of
from lockstep.compare.row import COPIED, STATE_LABELS, Measured, described
from lockstep.compare.row_table import RowTable
from lockstep.compare.series_status import checks_of, names_by_key, reported_changes
from lockstep.compare.shown_quantities import Quantity, quantities_of
from lockstep.history.model import Point, SeriesKey
from lockstep.history.point_columns import COLUMNS
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.record.commands_to_repeat import in_working_tree, locked
from lockstep.record.quantity import PAIRED, SUITE_BENCHMARK, benchmark_name


def view(results: Results, address: SeriesAddress, machine_findings: MachineFindings | None) -> SeriesView:
    """Gather what the page of a series shows; without points if the series does not exist.

    ``machine_findings`` holds the changes found on the machine; ``None`` while the analysis is pending.
    """
    key = address.key
    points, rows = _measured_at(results, key)
    names = names_by_key(results, address.machine).get(key, ())
    followed = machine_findings.noise if machine_findings else {}
    name = next((name for name in names if name in followed), None)
    shown_as = {"speedup": "speedup", "latency": "latency", "seconds": "latency"}
    noise, follows = name, shown_as.get(name.quantity, "value") if name else ""
    if name is None and (ratio := _ratio_of(results, key)):
        ratio_names = names_by_key(results, address.machine).get(ratio, ())
        noise = next((name for name in ratio_names if name in followed), None)
        follows = noise.quantity.replace("_", " ") if noise else ""
    quantity = described(rows, address.quantity or offered_quantities(results, key)[0].name)
    fallback = "speedup" if quantity.name == "speedup" else "latency"
    numbers = _numbers(rows, quantity.name)
    return SeriesView(
        key,
        results.commits(key.machine),
        rows,
        tuple((point, numbers.get(point.commit)) for point in points.get(fallback, points.get("value", []))),
        quantity,
        reported_changes(results, key, machine_findings)
        if quantity.name != "error"
        else checks_of(key, machine_findings),
        machine_findings.behaviour(noise) if machine_findings and noise else None,
        follows,
    )


def _ratio_of(results: Results, key: SeriesKey) -> SeriesKey | None:
    """Return the key of the ratio that the detector follows instead of a cost's time; ``None`` for other series."""
    benchmark = results.benchmarks.get(key.suite)
    if benchmark is None or not benchmark.cost or benchmark.quantity not in PAIRED:
        return None
    return key._replace(suite=benchmark_name(benchmark.suite, PAIRED[benchmark.quantity]))


@remembered
def _measured_at(results: Results, key: SeriesKey) -> tuple[dict[str, list[Point]], RowTable]:
    """Return the stored points of a series by quantity, and its rows."""
    own_series = results.keys(key.machine).series_of([key])
    columns = results.columns(key.machine, COLUMNS, series=own_series)
    by_quantity: dict[str, list[Point]] = {}
    for point in results.points_of(key.machine, columns):
        by_quantity.setdefault(results.benchmarks[point.series.benchmark].part, []).append(point)
    return by_quantity, rows_of(results, key.machine, columns)


def _numbers(rows: RowTable, quantity: str) -> dict[int, Measured]:
    """Return the numbers of a quantity with their intervals, by the index of their commit."""
    columns = (rows.columns["commit"], *rows.interval(quantity)) if len(rows) else ()
    return {
        commit: Measured(value, None if isnan(low) else low, None if isnan(high) else high)
        for commit, value, low, high in zip(*(column.tolist() for column in columns), strict=True)
        if not isnan(value)
    }


def offered_quantities(results: Results, key: SeriesKey) -> list[Quantity]:
    """Return the quantities of which the series has numbers. The quantity that the detector follows comes first."""
    _, rows = _measured_at(results, key)
    names = [name for name in quantities_of(results, key.suite) if not np.isnan(rows.measured(name)).all()]
    first = ["speedup"] if "speedup" in names and not rows.is_baseline.any() else []
    names = first + [name for name in names if name not in first]
    return [described(rows, name) for name in names or quantities_of(results, key.suite)[:1]]


#: Maximum number of listed commits. The chart shows all commits, and its zoom selects the listed ones.
MOST_ROWS = 50


def commit_table(shown: SeriesView, zoom: tuple[float, ...] = ()) -> list[Any]:
    """Return a table of the newest visible commits: number, change since the commit before, clock, state, subject.

    The change is that of the number itself; for a speedup, and rates of a Lockstep suite, that of the time.
    """
    visible = [place for place, (point, _) in enumerate(shown.points) if in_zoom(point.commit, zoom)]
    listed = visible[-MOST_ROWS:][::-1]
    head = ("Commit", "Date", f"{shown.what.label} {shown.what.unit}", "Change %", "SM MHz", "°C", "State", "Subject")
    rows = [_table_cells(shown, place) for place in listed]
    parts: list[Any] = [table(head, rows, "Commits", "commits")]
    if omitted := len(visible) - len(listed):
        text = f"and {count(omitted, 'older commit')}: drag along the chart to list them"
        parts.append(html.P(text, className="dim"))
    return parts


def _table_cells(shown: SeriesView, index: int) -> list[Any]:
    point, number = shown.points[index]
    before, last = shown.points[index - 1] if index else (None, None)
    commit = shown.commits[point.commit]
    conditions = changed_conditions(before, point) if before else []
    # Benchmarks of other projects have no variants, and never provenance.
    state = "" if point.state == "bare" and not shown.key.variant else STATE_LABELS[point.state]
    state += f": {point.reason}" if point.reason else ""
    state = f"{COPIED} as {point.same_work_as[:8]}" if point.same_work_as else state
    return [
        html.Td(commit_link(commit, shown.key.machine)),
        html.Td(day(commit.date), className="dim"),
        html.Td("–" if number is None else significant(number.value, 5), className="number"),
        html.Td(_moved(shown.what, before, last, point, number), className="number dim"),
        html.Td("" if point.sm_mhz is None else whole(point.sm_mhz), className="number dim"),
        html.Td("" if point.temperature_c is None else f"{point.temperature_c:.0f}", className="number dim"),
        html.Td(state, className="failed" if point.state == "failed" else "dim"),
        html.Td([commit.subject, html.Span(f" {', '.join(conditions)}" if conditions else "", className="slower")]),
    ]


def _moved(
    quantity: Quantity, before: Point | None, last: Measured | None, point: Point, number: Measured | None
) -> str:
    """Return the change from the number ``last`` to ``number`` in per cent; "" if they do not compare."""
    if not (number and last and before and before.version == point.version and min(number.value, last.value) > 0):
        return ""
    # As on every page, a speedup stands for a time: if 1.5 × become 1.4 ×, the time grows by 7 %.
    inverse = quantity.better == "higher" and SUITE_BENCHMARK.fullmatch(point.series.benchmark)
    old, new = (number.value, last.value) if inverse else (last.value, number.value)
    return minus(f"{100 * (new / old - 1):+z.2f}")


def series_commands(results: Results, shown: SeriesView, zoom: tuple[float, ...]) -> list[Any]:
    """Return the commands that measure the newest number in the range ``zoom`` again; [] if there is none."""
    visible = [point for point, number in shown.points if number is not None and in_zoom(point.commit, zoom)]
    if not visible:
        return []
    point = visible[-1]
    name = name_of(point.series, results.benchmarks[point.series.benchmark])
    newest = ["The newest number in view, of ", commit_link(shown.commits[point.commit], point.series.machine), "."]
    working_tree = "\n".join(locked(name, in_working_tree(name), point.run.clock_state))
    parts = [
        html.Summary("Reproduce"),
        html.P(newest, className="dim"),
        command_block("\n".join(script(name, point.run)), "Commands that measure the number again"),
        html.P("The same case of the working tree, with its own definitions:", className="dim"),
        command_block(working_tree, "Commands that measure the working tree"),
    ]
    return [html.Details(parts, className="reproduce")]
