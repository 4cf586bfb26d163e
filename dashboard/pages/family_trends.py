"""The trends of a family: one for all of its shapes, and one for each selected case and quantity."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from dash import html

from dashboard.address import FamilyAddress
from dashboard.charts.axes import sourced
from dashboard.charts.by_date import by_date, in_order
from dashboard.charts.change_marks import marks, release_marks
from dashboard.charts.mean_speedup import mean_speedup
from dashboard.charts.theme import BEST, Scheme, Style, suite_styles, swatch
from dashboard.charts.trend import MARKED, Figure, trend
from dashboard.pages.parts import graph, mono
from lockstep.alerts.analysis.machine_findings import MachineFindings
from lockstep.compare.read_rows import rows_over
from lockstep.compare.row import described
from lockstep.compare.series_of_suite import keys_of
from lockstep.compare.series_status import checks_of, reported_changes
from lockstep.history.model import SeriesKey
from lockstep.history.snapshot import Results

#: Maximum number of cases drawn at once; a chart takes the browser about 10 ms.
MOST_CASES = 20

#: Width in pixels of a long trend: with another trend in its row, and alone.
_COLUMNS, _COLUMNS_ALONE = 400, 800

#: Number of points on a page above which its trends are thinned out.
LONG = 3_000


#: A chart (``None`` without a number), its caption, and what screen readers say.
_Chart = tuple[Figure | None, list[Any], str]


def trends(
    results: Results,
    address: FamilyAddress,
    scheme: Scheme,
    machine_findings: MachineFindings | None = None,
    repo: Path | None = None,
) -> list[Any]:
    """Return a chart of all shapes, and one for each selected case and quantity, with changes and releases.

    ``repo``: the git repository whose tags are the releases.
    """
    keys, style_of = chosen(results, address)
    commits = results.commits(address.machine)
    if not style_of or not address.quantities:
        return [html.P("Choose a variant and a quantity.", className="dim")]
    cases = selected_cases(address, keys)
    shown = [key for key in keys if key.case in cases and key.variant in style_of]
    long = len(commits) > MARKED or len(shown) * len(commits) > LONG
    rows = rows_over(results, address.machine, shown, address.quantities if long else None)
    place = {commit.hash: at for at, commit in enumerate(commits)}
    zoom = in_order(address.zoom, commits) if address.axis == "date" else address.zoom
    releases = release_marks(results, address.machine, repo, scheme) if repo else ()
    columns = _COLUMNS_ALONE if len(cases) * len(address.quantities) == 1 else _COLUMNS
    drawn: list[_Chart] = []
    best = [key for key in keys if key.variant == BEST and BEST in style_of]
    series = [
        one for one in results.keys(address.machine).series_of(best) if results.benchmarks[one.benchmark].is_ratio
    ]
    if len(series) > 1:
        changes = [(key.case, change) for key in best for change in reported_changes(results, key, machine_findings)]
        marked = [*marks(changes, commits, place, scheme), *releases]
        figure = mean_speedup(list(results.trends(series)), commits, style_of[BEST], scheme, marked, zoom)
        heading = [mono(f"{BEST}, {len(series)} shapes"), html.Span("Speedup ×, geometric mean")]
        drawn.append((figure, heading, f"Speedup of {address.suite} over the commits"))
    for case in cases:
        own_keys = [key for key in shown if key.case == case]
        case_rows = rows.of(own_keys)
        found = [(key.variant, one) for key in own_keys for one in reported_changes(results, key, machine_findings)]
        checks = [(key.variant, one) for key in own_keys for one in checks_of(key, machine_findings)]
        for name in address.quantities:
            measured = case_rows.select(np.flatnonzero(~np.isnan(case_rows.measured(name))))
            quantity = described(measured[:1], name)
            heading = [mono(case), f"{quantity.label} {quantity.unit}".replace("% of floor %", "% of floor")]
            figure = None
            if len(measured):
                figure = trend(
                    case_rows,
                    commits,
                    quantity,
                    style_of,
                    scheme,
                    [*marks(checks if name == "error" else found, commits, place, scheme), *releases],
                    zoom,
                    columns if long else 0,
                )
            drawn.append((figure, heading, f"{quantity.label} of {case} over the commits"))
    return [_card(results, address, at, *parts) for at, parts in enumerate(drawn)]


def printed(results: Results, address: FamilyAddress) -> list[Any]:
    """Return the line that names suite, machine and variants on paper and in a snapshot, which have no controls."""
    _, style_of = chosen(results, address)
    named = [part for name, style in style_of.items() for part in (" ", html.Span([swatch(style), name]))]
    return [mono(f"{address.suite} on {address.machine}"), *named]


def _card(
    results: Results, address: FamilyAddress, at: int, figure: Figure | None, heading: list[Any], label: str
) -> Any:
    commits = results.commits(address.machine)
    chart: Any = html.P("No number at any commit.", className="dim empty")
    if figure is not None:
        figure = by_date(figure, commits) if address.axis == "date" else figure
        chart = graph(sourced(figure, address.machine, commits), label, id={"type": "family-chart", "at": at})
    return html.Figure([html.Figcaption(heading), chart], className="card")


def chosen(results: Results, address: FamilyAddress) -> tuple[list[SeriesKey], dict[str, Style]]:
    """Return the keys of the machine, suite and cache state, and the styles of the selected variants."""
    style_of = {
        variant: style for variant, style in suite_styles(results, address.suite).items() if variant in address.variants
    }
    return [key for key in keys_of(results, address.suite, address.machine) if key.l2 == address.l2], style_of


def selected_cases(address: FamilyAddress, keys: Iterable[SeriesKey]) -> list[str]:
    """Return the selected cases. A benchmark without parameters has one case "", which needs no selection."""
    existing = {case for _, _, _, case, _ in keys}
    return [""] if existing == {""} else [case for case in address.cases[:MOST_CASES] if case in existing]
