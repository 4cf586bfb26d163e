"""The parts of an alert's page that tell since when, why, and what next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from dash import Dash, Input, Output, State, dcc, html
from werkzeug.exceptions import BadRequest

from dashboard.address import CommitAddress, link
from dashboard.pages.controls import optional_menu
from dashboard.pages.parts import command_block, count, day, mono, table
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.cause.commit_notes import CommitNote
from lockstep.alerts.cause.source_diff import Row, Side, source_diff
from lockstep.alerts.database.alert_row import NoSuchAlert
from lockstep.alerts.model import Alert
from lockstep.alerts.pages_service import AlertService
from lockstep.alerts.story import Story, note_text, tell
from lockstep.alerts.text import change
from lockstep.compare.number_format import significant
from lockstep.history.model import SeriesKey
from lockstep.history.snapshot import Results
from lockstep.processes.git import Git, GitError

#: Maximum number of measured commits that are listed where git does not know the range.
_MOST_MEASURED = 30

#: Value of the menu of sources for the whole range.
_RANGE = "range"

#: Number of changed lines up to which the source is shown unfolded.
_FEW_LINES = 80

#: Cache states that a history measures.
_CACHES = ("cold", "warm")

#: Seconds that git may take to compare the source.
_TIMEOUT_S = 20.0


def since(story: Story, alert: Alert, results: Results) -> list[Any]:
    """Return when the change came: the commits that change the kernel's files, and the others folded."""
    if not alert.commits:
        return []
    words: list[Any] = [story.since]
    if alert.before:
        ends = {"bm": alert.machine, "bc": alert.before, "hm": alert.machine, "hc": alert.after}
        # A baseline has no ratio to itself, and a machine that is silent has no series.
        worst = [{"quantity": one.series.quantity, "suite": one.series.suite} for one in alert.members[:1]]
        href = link("/compare", **ends, **(worst[0] if worst else {}))
        words += [" · ", dcc.Link("compare the ends", href=href, className="link")]
    parts: list[Any] = [html.H2("Since when"), html.P(words)]
    if not story.suspects:
        return [*parts, html.P("Measured commits:", className="dim"), _measured(alert, results)]
    parts.append(_commits(story.suspects, alert))
    if story.more:
        summary = html.Summary(f"{story.more} other commits of the range")
        parts.append(html.Details([summary, _commits(story.others, alert)], className="reproduce"))
    return parts


def why(story: Story, alert: Alert, source: bool) -> list[Any]:
    """Return the cause, and the facts before and after with what they usually mean.

    ``source``: with a menu that loads the source before and after the range, or a suspect, from the server.
    """
    parts: list[Any] = [html.H2("Why"), html.P(story.why)] if alert.members else []
    moved = [fact for fact in story.facts if fact.changed]
    if moved:
        rows = [
            [
                html.Td(mono(fact.kernel) if fact.kernel else ""),
                html.Td(fact.what),
                html.Td(fact.before or "–", className="mono"),
                html.Td(fact.after, className="mono"),
                html.Td(fact.means, className="dim wide"),
            ]
            for fact in moved
        ]
        parts.append(table(("Kernel", "Figure", "Before", "After", "Usually means"), rows, "Facts before and after"))
    same = [f"{fact.kernel} {fact.what} {fact.after}".strip() for fact in story.facts if not fact.changed]
    if same:
        parts.append(html.P(f"The same before and after: {', '.join(same)}.", className="dim hint"))
    if source and alert.known and alert.before:
        offered = {_RANGE: f"the whole range {alert.before[:8]}..{alert.after[:8]}"}
        offered |= {note.commit: note_text(note) for note in story.suspects if len(alert.commits) > 1}
        source_menu = optional_menu("alert-source", "Source before and after", offered, "", "choose", limit=200)
        parts += [html.Div(source_menu, className="controls source-of"), html.Div(id="alert-source-rows")]
    return parts


def time_beside(results: Results, alert: Alert) -> str:
    """Return the time of the worst series of a count where it was measured, before and after; "" for other alerts."""
    worst = alert.members[0] if alert.members else None
    if worst is None or not worst.counted:
        return ""
    found = []
    for machine in results.machines:
        keys = [SeriesKey(machine, worst.series.suite, worst.series.variant, worst.series.case, l2) for l2 in _CACHES]
        for trend in results.trends(results.keys(machine).series_of(keys)):
            known = np.isfinite(trend.value)
            if trend.benchmark.unit != "seconds" or not known.any():
                continue
            hashes = [commit.hash for commit in results.commits(machine)]
            place = next((at for at, commit in enumerate(hashes) if commit in alert.commits), len(hashes))
            before, after = (1e6 * trend.value[known & side] for side in (trend.commit < place, trend.commit >= place))
            text = f"{significant(float((after if len(after) else before)[-1]), 4)} µs"
            if len(before) and len(after):
                size = change(math.log(after[0] / before[-1]))
                text = f"{significant(float(before[-1]), 4)} → {significant(float(after[0]), 4)} µs ({size})"
            found.append(f"{text} {trend.series.axis('l2')} on {machine}")
    return "; ".join(found) or "measured on no machine"


def next_steps(story: Story, acts: bool) -> list[Any]:
    """Return what a reader may do next, each with its command; [] if there is nothing.

    ``acts``: whether the page has buttons for what ``lockstep alerts`` does.
    """
    steps = [step for step in story.next if not (acts and step.command.startswith("lockstep alerts "))]
    listed = [
        part for step in steps for part in (html.Dt(step.words), html.Dd(command_block(step.command, step.words)))
    ]
    return [html.H2("What next"), html.Dl(listed, className="next")] if listed else []


def register_source(app: Dash, findings: Findings, service: AlertService) -> None:
    """Add the callback that compares the source of the kernel when a reader asks for it."""

    @app.callback(
        Output("alert-source-rows", "children"),
        Input("alert-source", "value"),
        State("alert-number", "data"),
        prevent_initial_call=True,
    )
    def show(chosen: str | None, number: int) -> Any:
        if not chosen:
            return []
        try:
            alert = service.alerts.alert(number).alert
        except NoSuchAlert as error:
            raise BadRequest(str(error)) from error
        suspects = tell(alert).suspects
        shown = suspects if chosen == _RANGE else [note for note in suspects if note.commit == chosen]
        if chosen != _RANGE and not shown:
            raise BadRequest(f"{chosen} is not a suspect of alert {number}.")
        before, after = (alert.before, alert.after) if chosen == _RANGE else (f"{chosen}^", chosen)
        files = sorted({path for note in shown for path in note.files})
        git = Git(findings.repo, timeout_s=_TIMEOUT_S, fetch=False)
        try:
            rows = source_diff(git, before, after, files or findings.packages)
        except GitError as error:
            return html.P(f"The source cannot be compared: {error}.", className="dim")
        if not rows:
            return html.P("No file of the kernel differs.", className="dim")
        return side_by_side(rows, *(f"{end[:8]}{end[40:]}" for end in (before, after)))


def side_by_side(rows: Iterable[Row], before: str, after: str) -> Any:
    """Return a table for each file, both sides beside each other, folded if many lines differ.

    Rows of one kind share a cell, to be fast.
    """
    files: list[tuple[str, list[Any]]] = []
    changed: dict[str, int] = {}
    for (file, same), run in groupby(rows, lambda row: (row.file, row.same)):
        if file:
            files.append((file, []))
            continue
        sides = list(zip(*((row.before, row.after) for row in run), strict=True))
        changed[files[-1][0]] = changed.get(files[-1][0], 0) + (0 if same else len(sides[0]))
        kinds = ("", "") if same else ("removed", "added")
        files[-1][1].append([cell for side, kind in zip(sides, kinds, strict=True) for cell in _side(side, kind)])
    folded = [
        html.Details(
            [
                html.Summary([mono(file), f" {count(changed[file], 'line')}"]),
                table(("", before, "", after), shown, file),
            ],
            open=sum(changed.values()) <= _FEW_LINES,
        )
        if shown
        else html.P(mono(file))
        for file, shown in files
    ]
    return html.Div(folded, className="source")


def _side(lines: Sequence[Side | None], kind: str) -> Sequence[Any]:
    numbers = "\n".join(str(line.number) if line else "" for line in lines)
    text = "\n".join(line.text if line else "" for line in lines)
    shown = html.Td(html.Pre(f"{text}\n"), className=kind if any(lines) else "")
    return html.Td(html.Pre(numbers), className="number dim"), shown


def _commits(notes: Iterable[CommitNote], alert: Alert) -> Any:
    items = []
    for note in notes:
        address = CommitAddress(note.commit, alert.machine)
        text: list[Any] = [dcc.Link(mono(note.commit[:8]), href=address.link(), className="link"), " "]
        text += [html.Span(f"{note.day} {note.author}".strip(), className="dim"), f" {note.subject}"]
        if note.files:
            text.append(html.Span([" ", mono(", ".join(note.files))], className="slower"))
        elif note.touches:
            text.append(html.Span(" touches the packages under test", className="dim"))
        if note.commit == alert.before:
            text.append(html.Span(" the last commit before the change", className="dim"))
        items.append(html.Li(text))
    return html.Ul(items, className="card commits")


def _measured(alert: Alert, results: Results) -> Any:
    """Return the measured commits of a range that git does not know, and the last one before it."""
    known = {commit.hash: (day(commit.date), commit.subject) for commit in results.commits()}
    listed = (*((alert.before,) if alert.before and not alert.known else ()), *alert.commits)[-_MOST_MEASURED:]
    notes = [CommitNote(commit, "", *known.get(commit, ("", ""))) for commit in reversed(listed)]
    return _commits(notes, alert)
