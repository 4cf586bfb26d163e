"""The overview's table, a grid of AG Grid: its columns, its rows as plain numbers in their order, and its search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import dash_ag_grid as dag
import numpy as np
from dash import Dash, Input, Output
from numpy.typing import NDArray

from dashboard.address import SeriesAddress
from dashboard.pages.overview_choice import Choice, chosen, places
from dashboard.pages.parts import HINTS, in_browser
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.text import amount
from lockstep.compare.number_format import whole
from lockstep.compare.row import COPIED, STATE_LABELS
from lockstep.compare.row_table import RowTable
from lockstep.compare.series_status import Statuses, statuses
from lockstep.compare.shown_quantities import QUANTITIES, VALUE
from lockstep.compare.verdict import LOUDEST, SIGNS, Verdict, word
from lockstep.history.model import STATES
from lockstep.history.snapshot import Results, or_none
from lockstep.history.snapshot_cache import remembered
from lockstep.history.store import Store

#: Maximum number of rows that a browser gets, and sorts and filters; and for which the table is as high as its rows.
MOST_ROWS, FEW_ROWS = 500, 40

NONE = "No series match."

Column = dict[str, Any]

#: Names of the columns that have an interval, by field.
_INTERVALS = {"latency": "Latency µs", "speedup": "Speedup ×", "change": "Change %"}


#: What the column of changes shows: the latency may rise while the ratio to the baseline falls.
_CHANGE = "change of the time divided by the baseline's, or of the number of a series without this ratio"

#: Columns that only a saved table has, by field.
_SAVED = {
    **{f"{field}_{end}": f"{name} {end}" for field, name in _INTERVALS.items() for end in ("low", "high")},
    **{"own_change": "Own time %", "baseline_change": "Baseline %", "why": "Why", "machine": "Machine"},
}

#: Quantities of the table.
_SHOWN = (*(name for name in QUANTITIES if name != "error"), VALUE)

#: Order of the verdicts that come first.
_LOUD: dict[Verdict, int] = {"slower": 1, "changed": 2, "faster": 3, "failed": 4}
#: The place of all other verdicts in this order.
_QUIET = 5


def in_order(statuses: Statuses) -> Statuses:
    """Sort the statuses for the table, and leave out series that the machine cannot measure.

    New failures since the compared commit come first, then slowdowns, then speedups, the largest change first. Old
    failures follow, then unconfirmed changes beyond the noise, then all other series by shape, those that are n/a last.
    """
    statuses = statuses.select(np.flatnonzero(~statuses.absent))
    rows = statuses.rows
    key = rows.columns["key"]
    shape = rows.series_keys.shape[key]
    bare = np.where(statuses.beyond_noise, _LOUDNESS[statuses.differences.verdict], _QUIET)
    loud = np.where(statuses.news, 0, _LOUDNESS[statuses.verdict])
    loud = np.where(loud == _QUIET, _QUIET - 1 + bare, loud)
    first = loud < 2 * _QUIET - 1
    size = np.where(np.isnan(statuses.worse), 0.0, np.abs(statuses.worse))
    latency = rows.column("latency")
    order = np.lexsort(
        (
            rows.series_keys.variant[key],
            np.where(np.isnan(latency), 0.0, latency),
            shape,
            np.where(first, -size, 0.0),
            np.where(first, loud, 0),
            ~first & (rows.columns["state"] == STATES.index("na")),
            ~first,
        )
    )
    return statuses.select(order)


_LOUDNESS = np.array([_LOUD.get(verdict, _QUIET) for verdict in LOUDEST])


def cells_of(machine: str, statuses: Statuses) -> list[dict[str, Any]]:
    """Return the table's rows for these statuses: the values by column, without missing ones.

    Numbers are those of a series' newest commit in the units of the columns, changes in percent.
    """
    columns = _values(machine, statuses)
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in zip(*columns.values(), strict=True)
    ]


def grid(columns: Sequence[Column], rows: int) -> Any:
    """Return the table without rows, which a callback fills. Until then it says that it is loading.

    ``rows``: maximum number of rows that the table will have.
    """
    return dag.AgGrid(
        id="overview-grid",
        columnDefs=list(columns),
        defaultColDef={"sortable": True, "filter": True, "resizable": True},
        getRowId="params.data.id",
        dashGridOptions={
            "theme": {"function": "lockstepTheme(themeQuartz)"},
            "getRowHeight": {"function": "rowHeight()"},
            "headerHeight": 34,
            "tooltipShowDelay": 300,
            "localeText": {"loadingOoo": "Loading …", "noRowsToShow": NONE, "noMatchingRows": NONE},
            "enableCellTextSelection": True,
            "domLayout": "normal" if rows > FEW_ROWS else "autoHeight",
        },
        className="grid" if rows > FEW_ROWS else "grid short",
        style={"height": None},
    )


def text(field: str, header: str, width: int, **options: Any) -> Column:
    """Return a column of text, ``width`` pixels wide. ``options`` are further options of AG Grid's column."""
    return (
        {"field": field, "headerName": header, "width": width, "filter": "agTextColumnFilter"}
        | {"headerTooltip": HINTS.get(header)}
        | {"filterParams": {"filterOptions": ["contains", "equals"], "maxNumConditions": 1}}
        | options
    )


def number(field: str, header: str, width: int, **options: Any) -> Column:
    """Return a column of numbers. ``options`` are further options of AG Grid's column."""
    column = {"field": field, "headerName": header, "width": width, "type": "rightAligned", "cellClass": "number"}
    params = {"filterOptions": ["greaterThan", "lessThan"], "maxNumConditions": 1}
    column |= {"filter": "agNumberColumnFilter", "filterParams": params, "headerTooltip": HINTS.get(header)}
    return column | options


def grid_function(name: str) -> dict[str, str]:
    """Return a reference to a function in ``assets/grid.js``, for a column's ``valueFormatter``."""
    return {"function": f"{name}(params)"}


def columns(rows: RowTable) -> list[Column]:
    """Return the columns of the overview's table. Columns without any value in ``rows`` are hidden."""
    keys = rows.keys
    variants = any(key.variant for key in keys)
    # Names of plain asv projects often differ only at their ends, and there is room without a column of variants.
    widest = 220 if variants else 440
    family_width = min(max(116, round(7.4 * max((len(key.suite) for key in keys), default=0)) + 30), widest)
    # Shapes often differ only at their ends, so the column fits the longest one, at 7.4 px a letter.
    case_width = min(max(150, round(7.4 * max((len(key.case) for key in keys), default=0)) + 24), 330)
    shapes = {"cellClass": "mono", "comparator": {"function": "byShape"}, "tooltipField": "case"}
    # Rows without provenance, as in a plain asv project, need no column for their state.
    states = {STATES[code] for code in np.unique(rows.columns["state"]).tolist()}

    def known(field: str, header: str, width: int, **options: Any) -> Column:
        numbers = rows.column("mde") if field == "mde" else rows.measured(field)
        return number(field, header, width, hide=not np.isfinite(numbers).any(), **options)

    return [
        text("family", "Family", family_width, pinned="left", cellRenderer="SeriesLink", tooltipField="family"),
        # The change follows the family, as on a commit's page, because a phone shows only the first columns.
        number("change", "Change %", 98, cellRenderer="Change", headerTooltip=_CHANGE),
        text("variant", "Variant", 112, cellClass="mono", hide=not variants),
        text("case", "Case", case_width, flex=1, minWidth=case_width, **shapes),
        text("l2", "L2", 58, hide=len({key.l2 for key in keys}) < 2),
        known("latency", "Latency µs", 102, cellRenderer="Interval"),
        known("value", "Value", 110, valueFormatter=grid_function("general")),
        text("unit", "Unit", 80, hide=not any(rows.units), cellClass="dim"),
        known("speedup", "Speedup ×", 150, cellRenderer="Interval"),
        known("floor", "% of floor", 112, cellRenderer="Floor"),
        known("bandwidth", "GB/s", 74, valueFormatter=grid_function("whole")),
        known("compute", "TFLOP/s", 84, valueFormatter=grid_function("three")),
        known("mde", "MDE %", 72, valueFormatter=grid_function("hundredth")),
        text("state", "State", 136, cellRenderer="State", tooltipField="why", hide=states in (set(), {"ok"}, {"bare"})),
        text("commit", "Commit", 88, cellClass="mono", cellClassRules={"stale": "params.data && params.data.stale"}),
        text("verdict", "Verdict", 90, hide=True),
        *({"field": field, "headerName": header, "hide": True} for field, header in _SAVED.items()),
    ]


def _values(machine: str, statuses: Statuses) -> Mapping[str, Sequence[Any]]:
    """Return the values of all rows, by column; ``None`` for a row without a value."""
    rows, keys, differences = statuses.rows, statuses.rows.keys, statuses.differences
    intervals = {name: [or_none(numbers) for numbers in rows.interval(name)] for name in _SHOWN}
    ends = [end.copy() for end in differences.interval]
    for end in ends:
        # The detector's changes have no interval.
        end[list(statuses.changes)] = math.nan
    # A change without a ratio shows both numbers.
    unknown = np.isnan(statuses.worse).tolist()
    texts = [
        amount(statuses.changes[place][-1]) if absent and place in statuses.changes else ""
        for place, absent in enumerate(unknown)
    ]
    verdicts = [LOUDEST[code] for code in statuses.verdict.tolist()]
    times = [differences.times.get(place) for place in range(len(rows))]
    notes = rows.columns["note"].tolist()
    reasons = ((rows.reason(at), one.text if one else "", notes[at]) for at, one in enumerate(times))
    return {
        # A cell is drawn again only in a new row, and the later analysis changes more than the cell's value.
        "id": ["\n".join((*key[1:], verdict)) for key, verdict in zip(keys, verdicts, strict=True)],
        "href": [SeriesAddress(*key).link() for key in keys],
        "machine": [machine] * len(rows),
        "family": [key.suite for key in keys],
        "variant": [key.variant for key in keys],
        "case": [key.case for key in keys],
        "l2": [key.l2 for key in keys],
        "state": states_of(rows),
        "commit": rows.short_commits,
        **{name: numbers[0] for name, numbers in intervals.items()},
        **{f"{name}_low": intervals[name][1] for name in ("latency", "speedup")},
        **{f"{name}_high": intervals[name][2] for name in ("latency", "speedup")},
        "unit": rows.units,
        **{
            name: or_none(100 * np.expm1(logs))
            for name, logs in (("change", statuses.moved), ("change_low", ends[0]), ("change_high", ends[1]))
        },
        "own_change": [100 * math.expm1(one.own) if one else None for one in times],
        "baseline_change": [100 * math.expm1(one.baseline) if one else None for one in times],
        "why": [". ".join(filter(None, parts)) for parts in reasons],
        "verdict": verdicts,
        "difference": texts,
        "sign": [
            SIGNS[verdict] if text or not absent else ""
            for verdict, text, absent in zip(verdicts, texts, unknown, strict=True)
        ],
        "mde": or_none(100 * rows.columns["mde"]),
        "stale": statuses.stale.tolist(),
    }


def register_rows(app: Dash, store: Store, findings: Findings) -> None:
    """Add the callbacks that fill the table, and that open the page of a row after a click."""
    in_browser(app, "openRow", Output("url", "href", allow_duplicate=True), Input("overview-grid", "cellClicked"))

    @app.callback(
        Output("overview-grid", "rowData"),
        Output("overview-more", "children"),
        *(Input(f"overview-{name}", "value") for name in ("machine", "l2", "since", "quantity", "search")),
        Input("visit", "data"),
        Input("version", "data"),
    )
    def fill(
        machine: str, l2: str, since: str, quantity: str, search: str | None, visit: int | None, _version: str | None
    ) -> tuple[list[dict[str, Any]], str]:
        results = store.current()
        choice = chosen(results, findings, machine, l2, quantity, since, visit)
        shown = ordered(results, choice)
        found = matching(shown.rows, shown.verdict, search or "")
        text = f"The first {whole(MOST_ROWS)} of {whole(len(found))} series: search for others."
        return cells_of(machine, shown.select(found[:MOST_ROWS])), text if len(found) > MOST_ROWS else ""


@remembered
def ordered(results: Results, choice: Choice) -> Statuses:
    """Return the statuses of the chosen series in the order of the table."""
    known = statuses(results, choice.machine, choice.since, choice.findings, choice.thresholds)
    return in_order(known.select(places(results, choice.machine, known.rows, choice.l2, choice.quantity)))


def states_of(rows: RowTable) -> list[str]:
    """Return the state of each row in words."""
    columns = (rows.columns[name].tolist() for name in ("state", "same_work_as"))
    return [COPIED if copied else STATE_LABELS[STATES[code]] for code, copied in zip(*columns, strict=True)]


def matching(rows: RowTable, verdicts: NDArray[np.uint8], search: str) -> NDArray[np.intp]:
    """Return the indices of the rows that match a search, in any letter case.

    Each word must occur in the key, the state, the unit, the commit or the verdict. ``verdicts`` are codes.
    """
    words = search.lower().split()
    if not words:
        return np.arange(len(rows))
    parts = zip(rows.keys, states_of(rows), rows.units, rows.short_commits, verdicts.tolist(), strict=True)
    texts = (
        "\n".join((*key, state, unit, commit, LOUDEST[code], word(LOUDEST[code], unit))).lower()
        for key, state, unit, commit, code in parts
    )
    return np.array([place for place, text in enumerate(texts) if all(part in text for part in words)], dtype=np.intp)
