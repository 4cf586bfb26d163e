"""The page that compares a base with a head, which may differ in commit, machine or variant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, cast

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from dashboard.address import link, query_values
from dashboard.charts.lines_and_bands import Figure
from dashboard.charts.marks import changed_versions
from dashboard.charts.theme import Scheme
from dashboard.pages.compare_cases import change_by_suite, compare_table, scatter
from dashboard.pages.controls import choice, folded, menu, optional_menu
from dashboard.pages.parts import chart_card, count, crumbs, day, graph, in_browser, loading, minus, table, waiting
from lockstep.alerts.analysis.latest_findings import Findings, MachineFindings
from lockstep.compare.difference import Quantity
from lockstep.compare.number_format import whole
from lockstep.compare.series_of_suite import suites
from lockstep.compare.two_sides import Comparison, Side, compare, differing
from lockstep.compare.verdict import LOUDEST, SIGNS, word
from lockstep.history.display_names import natural
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

#: Maximum rows of the table, and points of the chart.
MOST, MOST_POINTS = 50, 2000

#: What a machine brings: the commits of its side's menu, the chosen commit, and the variants.
_MENUS = (("c", "data"), ("c", "value"), ("v", "data"))

#: Keys of the address: machine, commit and variant of base (b…) and head (h…), then what is compared.
KEYS = ("bm", "bc", "bv", "hm", "hc", "hv", "quantity", "suite", "l2")

_QUANTITIES: dict[Quantity, str] = {"speedup": "Against the baseline", "latency": "Latency"}

#: What the sizes of changes are of, by the quantity that is compared.
_CHANGES: dict[Quantity, str] = {"speedup": "Change against the baseline", "latency": "Change of the latency"}


def layout(results: Results, search: str) -> Any:
    """Return the comparison page for the query ``search``, by default for the newest machine's two newest commits."""
    chosen = query_values(search, *KEYS)
    newest = max(results.machines.values(), key=lambda machine: machine.last_date).name
    machines = {side: chosen[f"{side}m"] if chosen[f"{side}m"] in results.machines else newest for side in "bh"}
    quantity = _quantity(chosen["quantity"], *machines.values())
    caches = sorted(
        {series.axis("l2") for machine in set(machines.values()) for series in results.series(machine)} - {""}
    )
    any_ratio = any(benchmark.is_ratio for benchmark in results.benchmarks.values())
    offered = {side: commit_options(results, machine) for side, machine in machines.items()}
    two_machines = machines["b"] != machines["h"]
    # On one machine the newest commit is compared with the one before.
    usual = chosen_commits(
        offered["b"] if two_machines else offered["b"][1:2], offered["h"], (None, None), two_machines
    )
    controls: list[Any] = []
    for side, label, commit in zip("bh", ("Base", "Head"), usual, strict=True):
        asked = chosen[f"{side}c"]
        # People type and paste short hashes.
        found = (option["value"] for option in offered[side] if asked and option["value"].startswith(asked))
        value = next(found, commit or offered[side][0]["value"])
        controls += [
            html.Span(label, className="side"),
            menu(f"compare-{side}m", "Machine", list(results.machines), machines[side]),
            menu(f"compare-{side}c", "Commit", offered[side], value, searchable=True, limit=100, className="commit"),
            optional_menu(
                f"compare-{side}v", "Variant", variants(results, machines[side]), chosen[f"{side}v"], "each", limit=100
            ),
        ]
    filters = [
        choice("compare-quantity", "Compare", _QUANTITIES, quantity, hidden=not any_ratio),
        optional_menu(
            "compare-suite", "Suite", sorted(suites(results)), chosen["suite"], "all", limit=200, className="filter"
        ),
        choice("compare-l2", "L2", {"": "all", **{cache: cache for cache in caches}}, chosen["l2"], hidden=not caches),
    ]
    return html.Main(
        [
            crumbs("Compare", kind=""),
            dcc.Store(id="compare-path", data={"path": link("/compare"), "keys": KEYS}),
            folded(controls, filters, kind="sides"),
            loading(html.Div(waiting(), id="compare-body")),
        ]
    )


def register(app: Dash, store: Store, findings: Findings) -> None:
    """Add the callbacks that fill the comparison page and its menus, and that write the choices into the address."""
    chosen = [Input(f"compare-{name}", "value") for name in KEYS]

    @app.callback(
        *[Output(f"compare-{side}{part}", kind) for side in "bh" for part, kind in _MENUS],
        Output("compare-quantity", "value"),
        Input("compare-bm", "value"),
        Input("compare-hm", "value"),
        Input("version", "data"),
        State("compare-bc", "value"),
        State("compare-hc", "value"),
        State("compare-quantity", "value"),
        prevent_initial_call=True,
    )
    def options(base: str, head: str, _: str | None, before: str | None, after: str | None, quantity: str) -> Any:
        results, moved = store.current(), ctx.triggered_id != "version"
        offered = [commit_options(results, machine) for machine in (base, head)]
        values = chosen_commits(offered[0], offered[1], (before, after), moved and base != head)
        menus = zip(offered, values, (variants(results, machine) for machine in (base, head)), strict=True)
        return *(part for side in menus for part in side), _quantity("" if moved else quantity, base, head)

    @app.callback(Output("compare-body", "children"), *chosen, Input("colours", "data"), Input("version", "data"))
    def fill(*arguments: str | None) -> Any:
        *values, scheme, _ = arguments
        if scheme not in ("light", "dark"):
            return no_update
        choices = dict(zip(KEYS, (value or "" for value in values), strict=True))
        results = store.current()
        known = findings.of_machine(results, choices["hm"])
        return body(results, choices, cast("Scheme", scheme), findings.thresholds, known)

    path = State("compare-path", "data")
    in_browser(app, "address", Output("compare-path", "modified_timestamp"), *chosen, path)


def body(
    results: Results,
    chosen: dict[str, str],
    scheme: Scheme,
    thresholds: Thresholds,
    findings: MachineFindings | None = None,
) -> list[Any]:
    """Compare the chosen base with the chosen head; return the summary, the chart and the table of cases.

    Args:
        chosen: the reader's choice for each of ``KEYS``, "" for none.
        thresholds: the change from which a case counts as slower or faster.
        findings: the detector's findings on head's machine; ``None`` if unknown.
    """
    base, head = (Side(chosen[f"{side}m"], chosen[f"{side}c"], chosen[f"{side}v"]) for side in "bh")
    base_run, head_run = (results.run_at(side.machine, side.commit) for side in (base, head))
    if base_run is None or head_run is None:
        side, missing = ("base", base) if base_run is None else ("head", head)
        statement = f"{missing.machine} has no results of commit {missing.commit[:8] or '(none chosen)'}."
        choose = html.P(f"Choose another commit of {side}.")
        return [html.Div([html.P(statement, className="strong"), choose], className="card empty")]
    quantity = _quantity(chosen["quantity"], base.machine, head.machine)
    comparison = compare(results, base, head, quantity, thresholds, chosen["suite"], chosen["l2"], findings)
    parts: list[Any] = [html.P(_summary(comparison), className="said")]
    if quantity == "speedup" and base.machine != head.machine:
        text = "Each time is compared relative to each machine's own baseline; Latency compares the times themselves."
        parts.append(html.P(text, className="dim"))
    rows = [
        [html.Td(name), *(html.Td(text or "–", className="mono") for text in texts)]
        for name, *texts in differing(base_run, head_run)
    ]
    if rows:
        summary = html.Summary(f"{count(len(rows), 'other difference')} between base and head")
        parts.append(
            html.Details([summary, table(("What", "Base", "Head"), rows, "What differs")], className="differs")
        )
    if not comparison:
        hint = "Compare latencies: the baseline has no ratio to itself." if quantity == "speedup" else ""
        return [*parts, html.Div(["No case was measured at both base and head. ", hint], className="card empty")]
    sides = ((base, base_run.measured_at), (head, head_run.measured_at))
    source = " → ".join(f"{side.machine} {side.commit[:8]} {day(at)}" for side, at in sides)

    def card(figure: Figure, label: str, caption: list[Any], height: str = "100%") -> Any:
        # New results keep the reader's zoom.
        figure["layout"] |= {"uirevision": str(chosen), "meta": source}
        kind = "tall" if height == "100%" else "series"
        return chart_card(graph(figure, label, height), *caption, kind=kind)

    timed = comparison.timed
    if len(timed):
        right = "against base's latency, µs"
        if len(timed) > MOST_POINTS:
            right += f"; the {whole(MOST_POINTS)} loudest of {whole(len(timed))} cases"
        caption = [html.Span(f"{_CHANGES[quantity]}, % (up: head is slower)"), html.Span(right)]
        figure = scatter([comparison[place] for place in timed[:MOST_POINTS].tolist()], scheme)
        parts.append(card(figure, "Change of every case against its latency", caption))
    if base_run.toolchain != head_run.toolchain and (upgrade := change_by_suite(comparison, scheme)):
        tools = "; ".join(changed_versions(base_run, head_run))
        beside = "" if base.commit == head.commit else "; the commit differs as well"
        caption = [html.Span(f"Change of every number, %, by family: {tools}"), html.Span(f"a dot is a case{beside}")]
        height = f"{80 + 26 * len(upgrade['data'])}px"
        parts.append(card(upgrade, f"What {tools} changed", caption, height))
    parts.append(html.H2("Cases, the loudest first"))
    parts.append(compare_table([*islice(comparison, MOST)], head.machine, _CHANGES[quantity]))
    if len(comparison) > MOST:
        parts.append(html.P(f"and {whole(len(comparison) - MOST)} more cases: choose a suite.", className="dim"))
    return parts


def _quantity(asked: str, base: str, head: str) -> Quantity:
    """Return the quantity that is compared: the one asked for, or between two machines the latency.

    Two machines have baselines of their own, so that a lower time may be slower against the baseline.
    """
    usual: Quantity = "speedup" if base == head else "latency"
    return asked if asked in _QUANTITIES else usual


def commit_options(results: Results, machine: str) -> list[dict[str, str]]:
    """Return a machine's commits for a menu, the newest first. The commits off the line come last."""
    return [
        {
            "value": commit.hash,
            "label": " ".join(
                part for part in (commit.short, day(commit.date), "(apart)" * commit.apart, commit.subject[:60]) if part
            ),
        }
        for commit in (*reversed(results.commits(machine)), *reversed(results.apart(machine)))
    ]


def chosen_commits(
    base: Sequence[Mapping[str, str]],
    head: Sequence[Mapping[str, str]],
    chosen: tuple[str | None, str | None],
    same: bool,
) -> list[str | None]:
    """Return the commit of each side: the chosen one if its machine has it, else the newest of the machine.

    Args:
        base, head: the commits of each side's machine, see ``commit_options``.
        chosen: hashes, or ``None``.
        same: whether both sides get one commit, if the machines have one in common: a chosen one, else the newest.
    """
    known = [{option["value"]: None for option in side} for side in (base, head)]  # sets in order
    both = [commit for commit in known[0] if commit in known[1]] if same else []
    if both:
        return [next((commit for commit in chosen if commit in both), both[0])] * 2
    sides = zip(known, chosen, strict=True)
    return [commit if commit in commits else next(iter(commits), None) for commits, commit in sides]


def variants(results: Results, machine: str) -> list[str]:
    """Return the variants that a machine has measured."""
    return sorted({series.axis("variant") for series in results.series(machine=machine)} - {""}, key=natural)


def _summary(comparison: Comparison) -> str:
    counts, units = comparison.counts, comparison.units
    # Numbers that are not times are worse or better, not slower or faster. A mean over several units means nothing.
    timed = "seconds" in units
    parts = [
        f"{SIGNS[verdict]} {whole(counts[verdict])} {verdict if timed or not units else word(verdict, units[0])}"
        for verdict in LOUDEST
        if counts[verdict]
    ]
    if math.isfinite(comparison.geomean) and (len(units) == 1 or (timed and comparison.ours)):
        unit = "time" if timed else units[0]
        parts.append(minus(f"geometric mean of the {unit} {100 * math.expm1(comparison.geomean):+z.2f} %"))
    if comparison.other_version:
        parts.append(f"{whole(comparison.other_version)} of another benchmark version, not compared")
    if comparison.one_sided:
        parts.append(f"{whole(comparison.one_sided)} measured only at base or only at head")
    return " · ".join(parts) or "Base and head have no case in common."
