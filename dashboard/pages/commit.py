"""The page of one commit: everything that one machine measured, compared with the previous measured commit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dash import Dash, Input, Output, dcc, html

from dashboard.address import CommitAddress, FamilyAddress, link
from dashboard.pages.compare_cases import compare_table
from dashboard.pages.controls import search_field
from dashboard.pages.overview_table import NONE, matching
from dashboard.pages.parts import (
    back_link,
    commit_link,
    count,
    crumbs,
    day,
    loading,
    mono,
    not_on,
    notice,
    table,
    waiting,
)
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.cause.commit_notes import read_log
from lockstep.compare.at_commit import compare_commit
from lockstep.compare.difference import Differences, geomean
from lockstep.compare.number_format import whole
from lockstep.compare.two_sides import pair_of
from lockstep.compare.verdict import LOUDEST, SIGNS, word
from lockstep.history.model import Commit, Run
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.processes.git import Git

#: Seconds that git may take to tell the author.
_TIMEOUT_S = 5.0

#: Maximum number of listed families, and of listed series.
MOST_FAMILIES, MOST_SERIES = 60, 30


def layout(results: Results, address: CommitAddress) -> Any:
    """Return the page of a commit. The address may shorten the hash, and may leave out the machine."""
    commit = find(results, address.commit)
    if commit is None:
        return notice(f"No results of commit {address.commit[:40]}", html.P(back_link()))
    machines = [name for name in results.machines if results.run_at(name, commit.hash)]
    if address.machine not in ("", *machines):
        links = {name: CommitAddress(commit.hash, name).link() for name in machines}
        return not_on(f"{address.machine[:80]} has no results of commit {commit.short}", links)
    machine = address.machine or machines[0]
    run = results.run_at(machine, commit.hash)
    assert run is not None
    return html.Main(
        [
            crumbs(commit.short, back_link()),
            html.P(
                [
                    html.Span(day(commit.date), className="dim"),
                    " ",
                    html.Span(commit.subject, className="strong"),
                    " ",
                    html.Span(id="commit-author", className="dim"),
                ],
                className="said",
            ),
            html.P(
                ["on ", *_machines(commit, machine, machines), html.Span(" · ", className="dim")]
                + (_fork(results, machine, commit) if commit.apart else _neighbours(results, machine, commit)),
                className="said",
            ),
            dcc.Store(id="commit-address", data={"commit": commit.hash, "machine": machine}),
            _run_facts(run),
            html.P(
                "How fast each family is against the last commit "
                + ("of the line before the fork " if commit.apart else "")
                + "at which it was measured: the geometric mean over its series, above 1× is faster.",
                className="dim hint",
            ),
            loading(html.Div(waiting(), id="commit-families")),
            html.Div(search_field("commit-search"), className="controls"),
            loading(html.Div(waiting(), id="commit-series")),
        ]
    )


def register(app: Dash, store: Store, findings: Findings) -> None:
    """Add the callbacks that fill the commit page's cards and table."""

    def compared(stored: dict[str, str]) -> tuple[Differences, Mapping[str, Commit]]:
        results = store.current()
        machine_findings = findings.of_machine(results, stored["machine"])
        return compare_commit(results, stored["machine"], stored["commit"], machine_findings, findings.thresholds)

    @app.callback(
        Output("commit-families", "children"),
        Output("commit-author", "children"),
        Input("commit-address", "data"),
        Input("version", "data"),
    )
    def fill(stored: dict[str, str], _version: str | None) -> tuple[list[Any], str]:
        commit = stored["commit"]
        log = read_log(Git(findings.repo, timeout_s=_TIMEOUT_S, fetch=False), [commit])
        return families(*compared(stored)), f"by {log[commit][0]}" if commit in log else ""

    @app.callback(
        Output("commit-series", "children"),
        Input("commit-address", "data"),
        Input("commit-search", "value"),
        Input("version", "data"),
    )
    def list_series(stored: dict[str, str], search: str | None, _version: str | None) -> list[Any]:
        return listed(compared(stored)[0], search or "")


def find(results: Results, text: str) -> Commit | None:
    """Return the commit whose hash begins with ``text``, at least seven digits; ``None`` if there is none."""
    if len(text) < 7:
        return None
    return next((commit for commit in results.commits() if commit.hash.startswith(text)), None)


def families(differences: Differences, earlier: Mapping[str, Commit]) -> list[Any]:
    """Return a table of the suites, the gravest verdicts first: the overall change, and the series with each verdict.

    Of more than ``MOST_FAMILIES`` suites, the others are only counted.
    """
    rank = differences.rows.series_keys.suite[differences.rows.columns["key"]]
    # The series are sorted by gravity of their verdicts, so a suite's first series gives the suite's gravity.
    first = np.sort(np.unique(rank, return_index=True)[1])
    suites = (np.flatnonzero(rank == rank[place]) for place in first[:MOST_FAMILIES].tolist())
    rows = [_family(differences.select(places), earlier) for places in suites]
    parts = [table(("Family", "Speed ×", "Verdicts", "Against"), rows, "Families")]
    if len(first) > MOST_FAMILIES:
        omitted = f"and {whole(len(first) - MOST_FAMILIES)} more families: the table below has all series"
        parts.append(html.P(omitted, className="dim"))
    return parts


def _family(differences: Differences, earlier_of: Mapping[str, Commit]) -> list[Any]:
    mean = geomean(differences.worse)
    counts = Counter(differences.verdict.tolist())
    key = differences.rows.key_at(0)
    earlier = earlier_of.get(key.suite)
    verdicts: list[Any] = []
    for code, verdict in enumerate(LOUDEST):
        if counts[code]:
            text = f"{SIGNS[verdict]} {whole(counts[code])} {word(verdict, 'seconds')}"
            verdicts += [" · ", html.Span(text, className="slower") if verdict == "slower" else text]
    return [
        html.Td(dcc.Link(key.suite, href=FamilyAddress(key.machine, key.suite).link(), className="link mono")),
        html.Td("–" if math.isnan(mean) else f"{math.exp(-mean):.3f}", className="number strong"),
        html.Td(verdicts[1:], className="nowrap"),
        html.Td(commit_link(earlier, key.machine) if earlier else "measured first"),
    ]


def _neighbours(results: Results, machine: str, commit: Commit) -> list[Any]:
    """Return links to the previous and the next measured commit."""
    commits = results.commits(machine)
    place = commits.index(commit)
    steps: list[Any] = ["by date, because git does not know its place · "] if commit.by_date else []
    if place:
        steps += ["← ", commit_link(commits[place - 1], machine)]
    if place + 1 < len(commits):
        steps += [" · " if place else "", commit_link(commits[place + 1], machine), " →"]
    return steps


def _fork(results: Results, machine: str, commit: Commit) -> list[Any]:
    """Return the words for a commit off the line: where it forked, and the measured commit with which it compares."""
    where = f"forked at {commit.fork[:8]}" if commit.fork else "git does not know where it forked"
    words: list[Any] = [f"apart from the line, {where}"]
    place = results.place_of(machine, commit.hash)
    base = results.commits(machine)[place] if place >= 0 else None
    if base is not None and base != commit:
        href = link("/compare", bm=machine, bc=base.hash, hm=machine, hc=commit.hash)
        words += [" · compared with ", commit_link(base, machine), " (", dcc.Link("all cases", href=href), ")"]
    return words


def _run_facts(run: Run) -> Any:
    """Return a line on the run's conditions: date, clocks, GPU, versions of the toolchain, times of the controls."""
    facts = {"clocks": run.clock_state, "gpu": run.host.get("gpu", ""), **run.toolchain}
    facts |= {name: f"{control.seconds * 1e6:.2f} µs" for name, control in run.controls.items() if control.seconds}
    texts = [[html.Span(f"{name} ", className="dim"), mono(text)] for name, text in facts.items() if text]
    if run.measured_at:
        texts.insert(0, [html.Span(f"measured {day(run.measured_at)}", className="dim")])
    parts = [part for text in texts for part in (html.Span(" · ", className="dim"), *text)]
    return html.P(parts[1:], className="said")


def _machines(commit: Commit, chosen: str, machines: Sequence[str]) -> list[Any]:
    parts: list[Any] = [mono(chosen)]
    other_machines = [name for name in machines if name != chosen]
    if other_machines:
        parts.append(html.Span(f"; {count(len(other_machines), 'other machine')}:", className="dim"))
    for name in other_machines:
        parts += [" ", dcc.Link(name, href=CommitAddress(commit.hash, name).link(), className="link mono")]
    return parts


def listed(differences: Differences, search: str = "") -> list[Any]:
    """Return a table of the series that match a search, the loudest verdicts first; "" matches all."""
    found = matching(differences.rows, differences.verdict, search)
    if not len(found):
        return [html.P(NONE, className="dim")]
    shown = differences.select(found[:MOST_SERIES])
    notes = shown.rows.columns["note"].tolist()
    reasons = [". ".join(filter(None, (shown.rows.reason(place), note))) for place, note in enumerate(notes)]
    pairs = [pair_of(shown, place, reason) for place, reason in enumerate(reasons)]
    parts = [compare_table(pairs, shown.rows.key_at(0).machine, sides=("Before", "Now"))]
    if len(found) > MOST_SERIES:
        text = f"The first {MOST_SERIES} of {whole(len(found))} series: search for others."
        parts.append(html.P(text, className="dim"))
    return parts
