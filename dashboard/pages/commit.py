"""Everything that one machine measured at one commit, against the commit that it measured before."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from dashboard.address import CommitAddress, SeriesAddress
from dashboard.pages.grid import BY_SHAPE, drawn, grid, number, text
from dashboard.pages.parts import back_link, commit_link, count, day, loading, mono, notice
from dashboard.pages.row_source import Values, block
from lockstep.alerts.analysis_files import MachineFindings
from lockstep.alerts.findings import Findings
from lockstep.alerts.text import span
from lockstep.compare.missing_series import known_before, not_new
from lockstep.compare.number_format import whole
from lockstep.compare.rows import STATE_LABELS, Row, described
from lockstep.compare.since_commit import Difference, beside_baseline, difference, geomean
from lockstep.compare.status import noise_by_key, rows_at
from lockstep.compare.verdict import LOUDEST, SIGNS, loudness
from lockstep.history.model import Commit, Run
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

#: Families that have a card of their own.
MOST_FAMILIES = 60

#: Commits back to which a suite's last measurement is looked for.
_FAR = 20


@dataclass(frozen=True)
class Compared:
    """One series at the commit: its row, the one before (``None``: never), where that was, and the difference."""

    row: Row
    before: Row | None
    earlier: Commit | None
    difference: Difference


def layout(results: Results, address: CommitAddress) -> Any:
    """The page that an address asks for; a hash may be shortened."""
    commit = find(results, address.commit)
    if commit is None:
        return notice(f"No results of commit {address.commit[:40]}", html.P(back_link()))
    there = [name for name in results.machines if commit in results.commits(name)]
    machine = address.machine if address.machine in there else there[0]
    commits = results.commits(machine)
    place = commits.index(commit)
    steps: list[Any] = []
    if place:
        steps += ["← ", commit_link(commits[place - 1], machine)]
    if place + 1 < len(commits):
        steps += [" · " if place else "", commit_link(commits[place + 1], machine), " →"]
    return html.Main(
        [
            html.Div([back_link(), html.Span(" / "), html.H1(commit.short, className="mono")], className="crumbs"),
            html.P(
                [html.Span(day(commit.date), className="dim"), " ", html.Span(commit.subject, className="strong")],
                className="said",
            ),
            html.P(
                ["on ", *_machines(commit, machine, there), html.Span(" · ", className="dim"), *steps], className="said"
            ),
            dcc.Store(id="commit-told"),
            dcc.Store(id="commit-address", data={"commit": commit.hash, "machine": machine}),
            _run_facts(results.runs_of(machine)[place]),
            html.P(
                "How fast each family is against the last commit at which it was measured: the geometric mean over its "
                "series, above 1× is faster.",
                className="dim hint",
            ),
            loading(html.Div(id="commit-families", className="cards")),
            html.Div(
                dmc.TextInput(
                    id="commit-search",
                    label="Search",
                    placeholder="family, variant, shape …",
                    debounce=150,
                    className="filter",
                ),
                className="controls",
            ),
            grid("commit-grid", _COLUMNS, len(rows_at(results, machine, commit.hash)), "Nothing was measured."),
        ]
    )


def register(app: Dash, store: Store, findings: Findings) -> None:
    """Connect the page's table."""

    @app.callback(
        Output("commit-families", "children"),
        Output("commit-grid", "rowData"),
        Output("commit-told", "data"),
        Input("commit-address", "data"),
        Input("version", "data"),
        State("commit-grid", "rowModelType"),
    )
    def fill(kept: dict[str, str], version: str | None, model: str | None) -> tuple[list[Any], Any, str]:
        found = compared(kept)
        # A long table is asked for by the grid, which has to ask again.
        rows = no_update if model == "infinite" else [_cells(one) for one in found]
        return families(found), rows, f"{kept['commit']} {version}"

    def compared(kept: dict[str, str]) -> Sequence[Compared]:
        results = store.current()
        picture = findings.picture(results, kept["machine"])
        return compare(results, kept["machine"], kept["commit"], picture, findings.thresholds)

    @app.callback(
        Output("commit-grid", "getRowsResponse"),
        Input("commit-grid", "getRowsRequest"),
        State("commit-address", "data"),
        State("commit-search", "value"),
        prevent_initial_call=True,
    )
    def serve(request: dict[str, Any] | None, kept: dict[str, str], search: str | None) -> Any:
        if request is None:
            return no_update
        return block(compared(kept), VALUES, request, lambda some: [_cells(one) for one in some], search or "")

    clientside: Any = app.clientside_callback
    clientside(
        ClientsideFunction("lockstep", "search"),
        Output("commit-grid", "dashGridOptions"),
        Input("commit-search", "value"),
        State("commit-grid", "dashGridOptions"),
        prevent_initial_call=True,
    )
    clientside(
        ClientsideFunction("lockstep", "openRow"),
        Output("url", "href", allow_duplicate=True),
        Input("commit-grid", "cellClicked"),
        prevent_initial_call=True,
    )
    clientside(
        ClientsideFunction("lockstep", "askAgain"),
        Output("commit-told", "modified_timestamp"),
        Input("commit-told", "data"),
        Input("commit-search", "value"),
        prevent_initial_call=True,
    )


def find(results: Results, text: str) -> Commit | None:
    """The commit of a hash, or of at least seven of its digits."""
    if len(text) < 7:
        return None
    return next((one for one in results.commits() if one.hash.startswith(text)), None)


@remembered
def compare(
    results: Results, machine: str, commit: str, picture: MachineFindings | None, thresholds: Thresholds
) -> Sequence[Compared]:
    """Every series of a commit against the last commit before it at which its suite was measured, loudest first."""
    commits = results.commits(machine)
    place = next((at for at, one in enumerate(commits) if one.hash == commit), None)
    if place is None:
        return []
    rows = rows_at(results, machine, commit)
    wanted = {row.suite for row in rows.values()}
    earlier: dict[str, Commit] = {}
    for one in commits[max(place - _FAR, 0) : place][::-1]:
        if wanted <= earlier.keys():
            break
        for suite in {row.suite for row in rows_at(results, machine, one.hash).values() if row.state != "na"}:
            earlier.setdefault(suite, one)
    noise = noise_by_key(results, machine, picture)
    rows_before = {one.hash: rows_at(results, machine, one.hash) for one in earlier.values()}
    left_out = {
        key: row.version
        for key, row in rows.items()
        if row.suite in earlier and key not in rows_before[earlier[row.suite].hash]
    }
    skipped = known_before(results, machine, place, left_out)
    found = []
    for row in rows.values():
        if row.state == "na":
            continue
        at = earlier.get(row.suite)
        before = rows_before[at.hash].get(row.key) if at else None
        threshold = thresholds.of(row.suite, row.variant, row.case, row.l2)
        scale = noise.get(row.key, math.nan)
        told = difference(before, row, scale, threshold.min_effect, threshold.confidence)
        told = not_new(told, row.key in skipped)
        if at and told.verdict in ("slower", "faster"):
            key = row.baseline_key
            baseline = rows_before[at.hash].get(key), rows.get(key)
            told = beside_baseline(told, (before, row), baseline, noise.get(key, math.nan), threshold.confidence)
        found.append(Compared(row, before, at, told))
    return sorted(found, key=_order)


def families(found: Sequence[Compared]) -> list[Any]:
    """A card a suite: how much faster it became on the whole, and how many of what.

    Of more than ``MOST_FAMILIES`` suites, those that hold the loudest series have a card; the others are counted.
    """
    suites: dict[str, list[Compared]] = defaultdict(list)
    for one in found:
        suites[one.row.suite].append(one)
    # The series come loudest first, and so do the suites.
    shown = sorted(list(suites)[:MOST_FAMILIES])
    cards = [_family(suite, suites[suite]) for suite in shown]
    if len(suites) > MOST_FAMILIES:
        others = f"and {whole(len(suites) - MOST_FAMILIES)} more families: the table below has all series"
        cards.append(html.Div(html.Span(others, className="card-note dim"), className="count-card"))
    return cards


def _family(suite: str, found: Sequence[Compared]) -> Any:
    mean, both = geomean(one.difference for one in found)
    verdicts = [one.difference.verdict for one in found]
    told: list[Any] = []
    for one in LOUDEST:
        if one in verdicts:
            text = f"{SIGNS[one]} {whole(verdicts.count(one))} {one}"
            told += [" · " if told else "", html.Span(text, className="nowrap")]
    earlier = found[0].earlier
    against: list[Any] = ["against ", commit_link(earlier, found[0].row.machine)] if earlier else ["measured first"]
    return html.Div(
        [
            html.Span(suite, className="card-label mono"),
            html.Span(
                f"{mean:.3f}×" if both else "–", className="card-number", title="geometric mean, above 1 is faster"
            ),
            html.Span(told, className="card-note dim"),
            html.Span(against, className="card-note dim"),
        ],
        className="count-card",
    )


def _order(one: Compared) -> tuple[Any, ...]:
    row, told = one.row, one.difference
    return loudness(told.verdict, told.worse or 0.0, row.suite, row.case, row.l2, row.variant)


def _cells(one: Compared) -> dict[str, Any]:
    row, told = one.row, one.difference
    what = described([row], told.quantity)
    now, then = row.measured(told.quantity), one.before.measured(told.quantity) if one.before else None

    def percent(log: float | None) -> float | None:
        return None if log is None else 100 * math.expm1(log)

    return {
        # A cell is drawn anew only in a new row, and the analysis that comes later changes more than its value.
        "id": "\n".join((*row.key[1:], told.verdict)),
        "href": SeriesAddress(row.machine, row.suite, row.variant, row.case, row.l2).link(),
        "family": row.suite,
        "variant": row.variant,
        "case": row.case,
        "l2": row.l2,
        "quantity": f"{what.label} {what.unit}".strip(),
        "before": then.value if then else None,
        "now": now.value if now else None,
        "change": told.percent,
        "change_low": percent(told.low),
        "change_high": percent(told.high),
        "interval": "" if told.low is None or told.high is None else span(told.low, told.high).removesuffix(" %"),
        "verdict": told.verdict,
        "sign": SIGNS[told.verdict],
        "state": STATE_LABELS[row.state],
        "own_change": percent(told.times.own) if told.times else None,
        "baseline_change": percent(told.times.baseline) if told.times else None,
        "why": ". ".join(part for part in (row.reason, row.note) if part),
    }


def _run_facts(run: Run) -> Any:
    """What the numbers were measured with."""
    facts = {"clocks": run.clock_state, "gpu": run.host.get("gpu", ""), **run.toolchain}
    facts |= {name: f"{control.seconds * 1e6:.2f} µs" for name, control in run.controls.items() if control.seconds}
    told = [[html.Span(f"{name} ", className="dim"), mono(text)] for name, text in facts.items() if text]
    if run.measured_at:
        told.insert(0, [html.Span(f"measured {day(run.measured_at)}", className="dim")])
    parts = [part for one in told for part in (html.Span(" · ", className="dim"), *one)]
    return html.P(parts[1:], className="said")


def _machines(commit: Commit, chosen: str, there: Sequence[str]) -> list[Any]:
    parts: list[Any] = [mono(chosen)]
    others = [name for name in there if name != chosen]
    if others:
        parts.append(html.Span(f"; {count(len(others), 'other machine')}:", className="dim"))
    for name in others:
        parts += [" ", dcc.Link(name, href=CommitAddress(commit.hash, name).link(), className="link mono")]
    return parts


#: Values of the columns, for a table that the server searches, filters and sorts.
VALUES: Values[Compared] = {
    name: (lambda one, name=name: _cells(one)[name])
    for name in ("quantity", "before", "now", "interval", "own_change", "baseline_change", "state")
} | {
    "family": lambda one: one.row.suite,
    "change": lambda one: one.difference.percent,
    "variant": lambda one: one.row.variant,
    "case": lambda one: one.row.case,
    "l2": lambda one: one.row.l2,
    "verdict": lambda one: one.difference.verdict,
}

_COLUMNS = [
    text("family", "Family", 174, pinned="left", cellRenderer="SeriesLink"),
    number("change", "Change %", 98, cellRenderer="Change"),
    text("variant", "Variant", 104, cellClass="mono"),
    text("case", "Case", 226, flex=1, minWidth=226, **BY_SHAPE),
    text("l2", "L2", 58),
    text("quantity", "Of", 96, cellClass="dim"),
    number("before", "Before", 86, valueFormatter=drawn("general")),
    number("now", "Now", 80, valueFormatter=drawn("general")),
    text("interval", "Interval %", 122, cellClass="number dim"),
    text("verdict", "Verdict", 126),
    # Whether a ratio moved by its kernel or by its baseline.
    number("own_change", "Own time %", 106, valueFormatter=drawn("signed"), cellClass="number dim"),
    number("baseline_change", "Baseline %", 98, valueFormatter=drawn("signed"), cellClass="number dim"),
    text("state", "State", 84, cellRenderer="State", tooltipField="why"),
]
