"""The charts of one series: all measurements over the commits, and the samples before and after a change.

The first has one x axis for value, clock, temperature and machine code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from dashboard.charts.axes import in_zoom
from dashboard.charts.lines_and_bands import MARKED, Figure, trend
from dashboard.charts.marks import condition_marks, marks, wrapped
from dashboard.charts.theme import LINES, NEUTRAL, Scheme, Style, box, chart_layout, guide, styles, titled
from lockstep.alerts.analysis.machine_results import series_by_name
from lockstep.alerts.cause.code_evidence import code_of
from lockstep.alerts.model import Alert, FoundChange
from lockstep.compare.row import Measured
from lockstep.compare.row_table import RowTable
from lockstep.compare.shown_quantities import SHOWN_AS, Quantity
from lockstep.detect import Analysis
from lockstep.history.model import Commit, Point, SeriesKey
from lockstep.history.point_columns import COLUMNS
from lockstep.history.snapshot import Results

#: The points of a series, oldest first, each with its number.
Points = Sequence[tuple[Point, Measured | None]]


@dataclass(frozen=True)
class SeriesView:
    """The data on the page of one series.

    Attributes:
        commits: the commits of its machine, oldest first.
        points: the points of the quantity, oldest first, each with its number.
        what: the displayed quantity.
        analysis: noise and levels of the quantity that the detector follows in this series, or for the time of a cost,
            of the cost's ratio. ``None`` while the analysis is pending, or if the detector follows none.
        follows: the quantity to which ``analysis`` belongs; "" if unknown.
    """

    key: SeriesKey
    commits: Sequence[Commit]
    rows: RowTable
    points: Points
    what: Quantity
    changes: tuple[FoundChange, ...]
    analysis: Analysis | None
    follows: str

    @property
    def levels(self) -> Analysis | None:
        """The detector's levels if they are levels of the displayed quantity; otherwise ``None``."""
        return self.analysis if self.follows == self.what.name else None


def _clock(points: Points, scheme: Scheme) -> tuple[str, list[Figure]] | None:
    known = [point for point, _ in points if point.sm_mhz is not None]
    text = [
        f"SM {p.sm_mhz:.0f} MHz"
        + (f", lowest {p.sm_mhz_low:.0f}" if p.sm_mhz_low else "")
        + (f"<br>{wrapped(', '.join(p.clock_reasons))}" if p.clock_reasons else "")
        for p in known
    ]
    # A triangle shows that the GPU reported a reason for a reduced clock.
    symbols = ["triangle-down" if p.clock_reasons else "circle" for p in known]
    x = [p.commit for p in known]
    low = _line(x, [p.sm_mhz_low for p in known], scheme, []) | {"hoverinfo": "skip", "mode": "lines"}
    low["line"] = {"color": NEUTRAL[scheme], "width": 1, "dash": "dot"}
    return ("SM MHz", [low, _line(x, [p.sm_mhz for p in known], scheme, text, symbols)]) if known else None


def _heat(points: Points, scheme: Scheme) -> tuple[str, list[Figure]] | None:
    known = [point for point, _ in points if point.temperature_c is not None]
    text = [f"{p.temperature_c:.0f} °C" + (f", {p.power_w:.0f} W" if p.power_w else "") for p in known]
    return ("°C", [_line([p.commit for p in known], [p.temperature_c for p in known], scheme, text)]) if known else None


def _code(points: Points, scheme: Scheme) -> tuple[str, list[Figure]] | None:
    known = [(point.commit, kernels) for point, _ in points if (kernels := kernels_of(point))]
    counted = [(x, kernels, max(k.get("registers") or 0 for k in kernels)) for x, kernels in known]
    if not any(registers for _, _, registers in counted):
        return None
    hashes = [tuple(str(kernel.get("code")) for kernel in kernels) for _, kernels, _ in counted]
    fresh = [place == 0 or hashes[place] != hashes[place - 1] for place in range(len(hashes))]
    text = [
        code_words(kernels) + ("<br>code changed" if new else "")
        for (_, kernels, _), new in zip(counted, fresh, strict=True)
    ]
    symbols = ["diamond" if new else "line-ew-open" for new in fresh]
    trace = _line([x for x, _, _ in counted], [registers for *_, registers in counted], scheme, text, symbols)
    trace["line"] |= {"shape": "hv"}
    return "registers", [trace]


def kernels_of(point: Point) -> list[Mapping[str, Any]]:
    """Return the kernels that the point's machine code record lists; [] if the point has no such record."""
    kernels = (code_of(point.code) or {}).get("kernels")
    return [kernel for kernel in kernels if isinstance(kernel, dict)] if isinstance(kernels, list) else []


def code_words(kernels: Sequence[Mapping[str, Any]]) -> str:
    """Return a line such as ``matmul: 168 registers, 0 B spilled, 49152 B shared`` per kernel, escaped for HTML."""
    lines = []
    for kernel in kernels[:8]:
        facts = [
            f"{kernel[name]:g} {unit}"
            for name, unit in (("registers", "registers"), ("spills", "B spilled"), ("shared", "B shared"))
            if isinstance(kernel.get(name), int | float)
        ]
        lines.append(f"{escape(str(kernel.get('name', '')))}: {', '.join(facts)}")
    return "<br>".join(lines)


def _line(
    xs: Sequence[int], ys: Sequence[Any], scheme: Scheme, text: Sequence[str], symbols: Sequence[str] = ()
) -> Figure:
    colour = NEUTRAL[scheme]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "marker": {"color": colour, "size": 5, "symbol": list(symbols) or "circle"},
        "line": {"color": colour, "width": 1.25},
        "x": list(xs),
        "y": list(ys),
        "text": list(text),
        "hovertemplate": "%{text}<extra></extra>",
    }


#: Maximum number of points of a chart that draws their samples.
_SAMPLED = 150

#: Width in pixels of a chart with more points than can be marked.
_COLUMNS = 800

#: Relative heights of the main part, of each part below it, and of the gaps.
_MAIN, _BELOW, _GAP = 3.2, 1.0, 0.22


def series_figure(shown: SeriesView, scheme: Scheme, zoom: tuple[float, ...] = ()) -> Figure:
    """Return the chart of one series: its numbers, and below them clock, temperature and registers where recorded.

    ``zoom``: visible range of the x axis; () begins at the first point of the series. The y axis fits these points.
    """
    measured = [(point, number) for point, number in shown.points if number is not None]
    variant, commits = shown.key.variant, shown.commits
    columns = 0 if sum(in_zoom(point.commit, zoom) for point, _ in measured) <= MARKED else _COLUMNS
    at = {commit.hash: index for index, commit in enumerate(commits)}
    # Points and levels, without a slope where nothing was measured.
    steps = [_begin(at[change.commit], measured, at) for change in shown.changes if change.commit in at]
    style = styles([variant], set())[variant]
    drawn = marks([(variant, change) for change in shown.changes], commits, at, scheme, sized=True)
    drawn += condition_marks([point for point, _ in shown.points], commits, scheme)
    begin = _first(shown.points)
    figure = trend(shown.rows, commits, shown.what, {variant: style}, scheme, drawn, zoom, columns, begin, steps)
    data, layout = figure["data"], figure["layout"]
    title = f"{shown.what.label} {shown.what.unit}".replace("% of floor %", "% of floor")
    layout["yaxis"] |= titled(escape(title), scheme)
    if len(measured) <= _SAMPLED:
        data.insert(0, _samples(measured, style, scheme))
    if shown.levels is not None:
        data += _levels(shown.levels, measured, scheme)
    below = list(filter(None, (part(shown.points, scheme) for part in (_clock, _heat, _code))))
    tops = _domains(len(below))
    layout["yaxis"]["domain"] = tops[0]
    for place, (title, traces) in enumerate(below, 2):
        axis = dict(chart_layout(scheme)["yaxis"]) | {"domain": tops[place - 1], "nticks": 3, "fixedrange": True}
        layout[f"yaxis{place}"] = axis | titled(title, scheme)
        data += [trace | {"yaxis": f"y{place}"} for trace in traces]
    layout["xaxis"]["anchor"] = f"y{len(below) + 1}" if below else "y"
    layout["margin"]["l"] = 62
    return figure


def _begin(place: int, measured: Sequence[tuple[Point, Measured]], at: Mapping[str, int]) -> int:
    """Return the index of the first commit at the level of ``place``: copies of later commits may stand before it."""
    for point, _ in reversed([one for one in measured if one[0].commit < place]):
        if at.get(point.same_work_as, -1) < place:
            break
        place = point.commit
    return place


def _first(points: Points) -> int:
    """Return the commit index of the first drawn point, which is a number or a failure; 0 if there is none."""
    return next((point.commit for point, measured in points if measured is not None or point.state == "failed"), 0)


def figure_height(figure: Mapping[str, Any]) -> int:
    """Return the chart's height in pixels, which grows with the number of parts below the main part."""
    below = [name for name in figure["layout"] if name.startswith("yaxis") and name != "yaxis"]
    return 340 + 95 * len(below)


def _samples(shown: Sequence[tuple[Point, Measured]], style: Style, scheme: Scheme) -> Figure:
    """Return the samples of the points, converted by the factor that leads from a stored value to its number."""
    scattered = [(p.commit, sample * n.value / p.value) for p, n in shown if p.value for sample in p.samples]
    dot = {"size": 3, "color": style.colour(scheme), "opacity": 0.35}
    xs, ys = ([entry[at] for entry in scattered] for at in (0, 1))
    return {"type": "scatter", "mode": "markers", "marker": dot, "hoverinfo": "skip", "x": xs, "y": ys}


def _levels(analysis: Analysis, shown: Sequence[tuple[Point, Measured]], scheme: Scheme) -> list[Figure]:
    commits_analysed = _analysed(analysis, shown)
    if not commits_analysed:
        return []
    factor = next((number.value / point.value for point, number in shown if point.value), 1.0)
    return [
        guide(
            [commits_analysed[level.start] - 0.5, commits_analysed[level.stop - 1] + 0.5],
            [level.value * factor] * 2,
            scheme,
            "dash",
        )
        for level in analysis.levels
        if math.isfinite(level.value)
    ]


def _analysed(analysis: Analysis, shown: Sequence[tuple[Point, Measured]]) -> list[int]:
    """Return the commit index of each point of the analysis; [] if the analysis belongs to other points than shown.

    The analysis is of the points of the newest benchmark version, without copies.
    """
    begin = max((at for at, (a, b) in enumerate(pairwise(shown), 1) if a[0].version != b[0].version), default=0)
    measured_commits = [point.commit for point, _ in shown[begin:] if not point.same_work_as]
    return measured_commits if analysis.levels and analysis.levels[-1].stop == len(measured_commits) else []


def _domains(below: int) -> list[list[float]]:
    """Return bottom and top of each part as shares of the height: the main part, then ``below`` parts under it."""
    total = _MAIN + below * (_BELOW + _GAP)
    tops, top = [[1 - _MAIN / total, 1.0]], 1 - _MAIN / total
    for _ in range(below):
        top -= _GAP / total
        tops.append([max(top - _BELOW / total, 0.0), top])
        top -= _BELOW / total
    return tops


def before_and_after(results: Results, alert: Alert, scheme: Scheme) -> Figure | None:
    """Return the samples of the worst series beside the change, a dot each under a box; ``None`` if one has none."""
    commits = results.commits(alert.machine)
    place = {commit.hash: at for at, commit in enumerate(commits)}
    series = series_by_name(results, alert.machine).get(alert.members[0].series) if alert.members else None
    if series is None or alert.after not in place:
        return None
    columns = results.columns(alert.machine, COLUMNS, series=[series])
    points = [point for point in results.points_of(alert.machine, columns) if point.samples and not point.same_work_as]
    points.sort(key=lambda point: point.commit)
    before = next((point for point in reversed(points) if point.commit < place[alert.after]), None)
    after = next((point for point in points if point.commit >= place[alert.after]), None)
    if before is None or after is None:
        return None
    benchmark = results.benchmarks[series.benchmark]
    unit, factor = SHOWN_AS.get(benchmark.unit, (benchmark.unit, 1.0))
    data = [
        box(f"{side} {commits[point.commit].short}", [factor * sample for sample in point.samples], (), colour)
        for side, point, colour in (("after", after, LINES[scheme][1]), ("before", before, LINES[scheme][0]))
    ]
    layout = chart_layout(scheme)
    title = f"{benchmark.quantity} {unit}".strip()
    layout["xaxis"] |= titled(title, scheme)
    layout["yaxis"] |= {"showgrid": False}
    return {"data": data, "layout": layout}
