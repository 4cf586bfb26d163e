"""Shell commands that measure the numbers of a page again, which readers copy from the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from dashboard.charts.axes import in_zoom
from dashboard.charts.series_figure import Points
from dashboard.pages.parts import commit_link
from lockstep.alerts.analysis.followed_series import name_of
from lockstep.alerts.model import Alert
from lockstep.alerts.reproduce import ends, measured
from lockstep.history.model import Commit
from lockstep.history.snapshot import Results
from lockstep.record.reproduce import in_working_tree, installed, locked, script


def series_commands(results: Results, commits: Sequence[Commit], points: Points, zoom: tuple[float, ...]) -> list[Any]:
    """Return the commands that measure the newest visible number of a series again; [] if there is no number.

    Args:
        points: the points of the series with their numbers, oldest first.
        zoom: the visible range of commits, see ``FamilyAddress``.
    """
    visible = [point for point, number in points if number is not None and in_zoom(point.commit, zoom)]
    if not visible:
        return []
    point = visible[-1]
    name = name_of(point.series, results.benchmarks[point.series.benchmark])
    newest = ["The newest number in view, of ", commit_link(commits[point.commit], point.series.machine), "."]
    working_tree = "\n".join(locked(name, in_working_tree(name), point.run.clock_state))
    parts = [
        html.Summary("Reproduce"),
        html.P(newest, className="dim"),
        command_block("\n".join(script(name, measured(point.run))), "Commands that measure the number again"),
        html.P("The same case of the working tree, with its own definitions:", className="dim"),
        command_block(working_tree, "Commands that measure the working tree"),
    ]
    return [html.Details(parts, className="reproduce")]


def measured_with(alert: Alert, results: Results) -> list[str]:
    """Return shell comments that say with which software the commits before and after the change were measured.

    The command below them measures both commits with the software that is installed today.
    """
    runs = {run.commit: run for run in results.runs if run.machine == alert.machine}
    with_text = [installed(measured(runs[end])) if end in runs else "" for end in ends(alert)]
    if len(set(with_text)) == 1:
        return [f"# measured with {text}" for text in with_text[:1] if text]
    return [
        f"# {side}: measured with {text}" for side, text in zip(("before", "after"), with_text, strict=True) if text
    ]


def command_block(text: str, label: str) -> Any:
    """Return preformatted text with a button that copies it; ``assets/copy.js`` handles the button."""
    named: Any = {"role": "region", "aria-label": label}
    copy = html.Button("Copy", type="button", className="copy", title=label)
    return html.Div([html.Pre(text, tabIndex=0, **named), copy], className="commands")
