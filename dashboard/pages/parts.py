"""Elements that several pages share: tables, links, notices, charts, and texts for dates, ages and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, dcc, html

from dashboard.address import CommitAddress, link
from dashboard.charts.theme import GRAPH_CONFIG
from lockstep.alerts.cause.found_change import Sense
from lockstep.compare.number_format import whole
from lockstep.compare.verdict import OF_SENSE, sign
from lockstep.history.model import Commit
from lockstep.history.problem_tally import tally
from lockstep.history.snapshot import Results
from lockstep.history.validation import Problem

#: What the columns of tables and the facts of pages mean, by their names.
HINTS = {
    "% of floor": "the hardware's limit divided by the time; the limit is measured in the same run, by a copy and a "
    "matrix product",
    "Baseline %": "change of the baseline's time",
    "Cause": "what changed at the same commit: own commit is the code under test, the others are not",
    "L2": "cold: the L2 cache holds none of the inputs; warm: it does",
    "Last 3": "how much worse the median of the last three points is",
    "MDE": "minimal detectable effect: the smallest change that is found with 80 % probability",
    "MDE %": "minimal detectable effect: the smallest change that one run finds with 80 % probability",
    "MDE of one run": "minimal detectable effect; an epoch is a round of measurements on one draw of buffers",
    "Noise": "how far numbers of the same code scatter",
    "Own time %": "change of the kernel's own time",
    "Speedup ×": "the baseline's time divided by the variant's",
    "Still": "how much worse the newest level is",
    "Sure": "probability that the change is real",
    "Throttled": "share of the newest numbers during which the GPU lowered its clocks",
}

#: Maximum number of listed problems; further problems are counted.
MOST_PROBLEMS = 200


@lru_cache(maxsize=10_000)
def day(milliseconds: int) -> str:
    """Return the date (UTC) of a time in ms since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d")


def age(milliseconds: int, now: int) -> str:
    """Return the time from ``milliseconds`` to ``now`` in one unit, such as ``3 d``. Both are in ms since 1970."""
    seconds = max(now - milliseconds, 0) // 1000
    for unit, size in (("y", 31_557_600), ("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "now"


def count(number: int, noun: str) -> str:
    """Return number and noun, such as ``1 machine`` or ``2 machines``. A noun that ends in "s" gets no second "s"."""
    return f"{whole(number)} {noun}{'' if number == 1 or noun.endswith('s') else 's'}"


def mono(text: str) -> Any:
    """Return text in the monospace font, which is used for shapes, hashes, and names of machines and variants."""
    return html.Span(text, className="mono")


def commit_line(commit: Commit) -> list[Any]:
    """Return a commit's hash, date and subject as page elements, for one line."""
    parts = [mono(commit.short), " ", html.Span(day(commit.date), className="dim")]
    return [*parts, " ", html.Span(commit.subject)] if commit.subject else parts


def notice(title: str, *children: Any) -> Any:
    """Return a page with a title that says what is wrong, and ``children`` that say what to do."""
    return html.Main(html.Section([dmc.Title(title, order=1, size="h3"), *children], className="notice"))


def not_on(title: str, machines: Mapping[str, str]) -> Any:
    """Return a page that says what a machine lacks, with the addresses of the page on the machines that have it."""
    links = [html.Li(dcc.Link(name, href=href, className="link mono")) for name, href in machines.items()]
    listed = [html.P("Machines that have it:"), html.Ul(links)] if links else []
    return notice(title, *listed, html.P(back_link()))


def notice_of(shown: Any) -> str:
    """Return the title of a page that is a notice; "" for other pages."""
    section = shown.children
    return str(section.children[0].children) if getattr(section, "className", "") == "notice" else ""


def problem_list(problems: Sequence[Problem]) -> Any:
    """Return a list of the result files that could not be read, with reasons."""
    shown = [html.Li([mono(problem.path), html.Span(f": {problem.what}")]) for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        shown.append(html.Li(f"and {len(problems) - MOST_PROBLEMS} more"))
    return html.Ul(shown, className="problems")


def waiting(what: str = "") -> Any:
    """Return the text of a part that is not known yet: "Loading", and ``what`` the page waits for.

    A callback replaces it. ``assets/live.js`` hides it if a part fails, and says why.
    """
    return html.P(f"Loading … {what}".strip(), className="waiting dim", role="status")


def nothing_measured(results: Results) -> Any:
    """Return the page of a results folder without results: what to run, or which files could not be read."""
    folder = html.P(["Looked in ", mono(str(results.root)), "."])
    if any(problem.what != "the folder does not exist" for problem in results.problems):
        sentences = [html.P(f"{sentence}.") for sentence in tally(results).sentences()]
        return notice("None of the results can be read", folder, *sentences, problem_list(results.problems))
    run = html.P(["Measure the last two commits with ", html.Code("lockstep run HEAD~2..HEAD"), "."])
    return notice("Nothing measured yet", run, folder)


def back_link(name: str = "Overview", path: str = "/") -> Any:
    """Return the link to a page above this one."""
    return dcc.Link(name, href=link(path), className="link")


def crumbs(title: Any, *above: Any, kind: str = "mono") -> Any:
    """Return the first line of a page: links to the pages above, and the title, whose CSS class is ``kind``."""
    return html.Div(
        [*(part for one in above for part in (one, html.Span(" / "))), html.H1(title, className=kind)],
        className="crumbs",
    )


def minus(number: str) -> str:
    """Replace the hyphen in a number's text by a minus sign (−), which is as wide as the plus."""
    return number.replace("-", "−")


def change_cell(sense: Sense, text: str) -> Any:
    """Return a table cell for a change: the sign of its sense, and its size as text."""
    glyph = html.Span(f"{sign(sense)} ", className="glyph")
    return html.Td([glyph, text], className=f"number {OF_SENSE[sense]}")


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    caption: str,
    kind: str = "plain",
    hints: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Return a table in a card that scrolls if the table is wide. Columns without a value are left out.

    Args:
        rows: the cells of each row.
        caption: what screen readers say.
        kind: CSS classes; of a table of numbers, "numbers".
        hints: what the columns hold, shown beside the pointer.
    """
    kept = [at for at in range(len(head)) if any(row[at].children not in (None, "", "–") for row in rows)]
    named = html.Caption(caption, className="visually-hidden")
    titles = html.Thead(
        html.Tr([html.Th(head[at], scope="col", title=hints.get(head[at], HINTS.get(head[at]))) for at in kept])
    )
    body = html.Tbody([html.Tr([row[at] for at in kept]) for row in rows])
    named_region: Any = {"role": "region", "aria-label": caption}
    return html.Div(html.Table([named, titles, body]), className=f"card table {kind}", tabIndex=0, **named_region)


def commit_link(commit: Commit, machine: str = "") -> Any:
    """Return a commit's hash as a link to the commit's page, with the subject as tooltip."""
    return dcc.Link(
        commit.short, href=CommitAddress(commit.hash, machine).link(), className="link mono", title=commit.subject
    )


def in_browser(app: Dash, function: str, *dependencies: Any, at_once: bool = False) -> None:
    """Register a callback that runs in the browser: a function of ``assets/callbacks.js``, its output, its inputs.

    ``at_once``: whether it also runs before an input changes.
    """
    clientside: Any = app.clientside_callback
    clientside(ClientsideFunction("lockstep", function), *dependencies, prevent_initial_call=not at_once)


def loading(content: Any) -> Any:
    """Wrap content so that it fades while a callback updates it for longer than 400 ms."""
    spinner = html.Span("Loading", className="loading", role="status")
    faded = {"visibility": "visible", "opacity": 0.5}
    return dcc.Loading(content, delay_show=400, custom_spinner=spinner, overlay_style=faded)


_CLEAR = "rgba(0,0,0,0)"

#: A chart that has no data yet: without axes, because empty axes look like a chart without points.
_BLANK: dict[str, Any] = {
    "data": [],
    "layout": {"paper_bgcolor": _CLEAR, "plot_bgcolor": _CLEAR}
    | {axis: {"visible": False} for axis in ("xaxis", "yaxis")},
}


def graph(figure: dict[str, Any] | None, label: str, height: str = "100%", **options: Any) -> Any:
    """Return a chart, by default as high as its parent; ``figure`` is ``None`` until a callback draws it.

    ``options`` are options of ``dcc.Graph``.

    Screen readers say ``label``, and a saved chart has it as its file name. ``assets/charts.js`` saves charts, because
    Plotly's own button has only one format. The script creates its buttons only when the pointer is near, because each
    component on a page takes a browser 1 ms.
    """
    config: Any = GRAPH_CONFIG
    named: Any = {"role": "group", "aria-label": label}
    style = {"height": height if figure else "120px"}
    chart = dcc.Graph(figure=figure or _BLANK, config=config, responsive=True, style=style, **options)
    return html.Div([chart], className="graph", tabIndex=0, **named)


def chart_card(chart: Any, *caption: Any, kind: str = "") -> Any:
    """Return a chart below its caption, whose parts stand at the left and the right. ``kind`` is a CSS class."""
    return html.Figure([html.Figcaption([*caption]), chart], className=f"card {kind}".strip())


def command_block(text: str, label: str) -> Any:
    """Return preformatted text with a button that copies it; ``assets/copy.js`` handles the button."""
    named: Any = {"role": "region", "aria-label": label}
    copy = html.Button("Copy", type="button", className="copy", title=label)
    return html.Div([html.Pre(text, tabIndex=0, **named), copy], className="commands")
