"""The chart of an alert: its worst series over the commits, each relative to its level before the change."""

from __future__ import annotations

from html import escape

import numpy as np

from dashboard.charts.axes import commit_axis, differing_parts
from dashboard.charts.theme import LINES, NEUTRAL, Scheme, chart_layout, styles, titled
from dashboard.charts.trend import Figure, explain_hollow, stroke, symbols
from lockstep.alerts.analysis.followed_series import series_by_name
from lockstep.alerts.analysis.step_facts import worse_numbers
from lockstep.alerts.model import Alert
from lockstep.compare.shown_quantities import SHOWN_AS
from lockstep.history.columns import COLUMNS
from lockstep.history.model import Trend, gpu_moves
from lockstep.history.snapshot import Results
from lockstep.record.series_name import SeriesName

#: Maximum series drawn; commits shown before and after the range.
_MOST, _BEFORE = 6, 60

#: Number of points before the range whose median is drawn as zero.
LEVEL = 5


def member_chart(results: Results, alert: Alert, scheme: Scheme) -> Figure | None:
    """Return a chart of the alert's worst series; ``None`` if the results have no point of these series.

    Each series is drawn as the change of its number from the median of its last points before the alert's commit range,
    in per cent. The speedup of a Lockstep suite stands for a time. If the change of the worst series is a difference,
    so is the chart, and series with ratios are left out.
    """
    commits = results.commits(alert.machine)
    place = {commit.hash: at for at, commit in enumerate(commits)}
    measured = [place[commit] for commit in alert.commits if commit in place]
    if not alert.members or not measured:
        return None
    measure = alert.members[0].measure
    members = {member.series: member for member in alert.members[:_MOST] if member.measure == measure}
    names = list(members)
    trends = _trends(results, alert.machine, names)
    starts = [int(trend.commit[np.isfinite(trend.value)].min(initial=len(commits) - 1)) for _, trend in trends]
    begin = max(measured[0] - _BEFORE, min(starts, default=0))
    unit = " %" if measure == "ratio" else ""
    style_of = styles([name.label for name in names], set())
    short = differing_parts([name.label for name in names])
    data: list[Figure] = []
    hollow = False
    for name, trend in trends:
        numbers = worse_numbers(trend, members[name].better, measure)
        timed = np.isfinite(numbers) & (trend.same_work_as == 0)
        before = numbers[timed & (trend.commit < measured[0])][-LEVEL:]
        shown = (trend.commit >= begin) & np.isfinite(numbers)
        if not len(before) or not shown.any():
            continue
        style = style_of[name.label]
        moved = members[name].of_number(1.0) * (numbers[shown] - float(np.median(before)))
        drawn = 100 * np.expm1(moved) if measure == "ratio" else moved
        drawn_commits = [commits[at] for at in trend.commit[shown].tolist()]
        hover = [f"{commit.short}<br>{escape(commit.subject[:80])}" for commit in drawn_commits]
        x: list[int | None] = list(trend.commit[shown].tolist())
        y: list[float | None] = [float(f"{value:.6g}") for value in drawn.tolist()]
        hollow = hollow or bool(trend.same_work_as[shown].any())
        marks = symbols(style.marker, trend.same_work_as[shown] != 0) or [style.marker] * len(x)
        # A line across the range would draw a slope where nothing was measured. A move to another GPU is no slope.
        gaps = {int((trend.commit[shown] < measured[0]).sum()), *(np.flatnonzero(gpu_moves(trend.gpu[shown])) + 1)}
        for gap in sorted(gaps, reverse=True):
            x.insert(gap, None)
            y.insert(gap, None)
            hover.insert(gap, "")
            marks.insert(gap, style.marker)
        line = stroke(style, scheme) | {"name": escape(short[name.label]), "x": x, "y": y, "text": hover}
        line["hovertemplate"] = f"<b>{escape(name.label)}</b><br>%{{y:+.2f}}{unit}<br>%{{text}}<extra></extra>"
        line["line"]["shape"], line["marker"]["symbol"] = "hv", marks
        data.append(line)
    if not data:
        return None
    layout = chart_layout(scheme)
    layout["xaxis"] |= commit_axis(commits, begin=begin)
    layout["yaxis"] |= {"ticksuffix": unit, "nticks": 6}
    layout["showlegend"] = len(data) > 1
    layout["legend"] = {"orientation": "h", "y": -0.12, "yanchor": "top", "x": 0}
    fill = {"fillcolor": NEUTRAL[scheme], "opacity": 0.13, "line": {"width": 0}, "layer": "below"}
    ends = {"x0": measured[0] - 0.5, "x1": measured[-1] + 0.5, "yref": "paper", "y0": 0, "y1": 1}
    layout["shapes"] = [{"type": "rect", **fill, **ends}]
    figure = {"data": data, "layout": layout}
    if hollow:
        explain_hollow(figure, scheme)
    return figure


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
    data: list[Figure] = [
        {
            "type": "box",
            "name": f"{side} {commits[point.commit].short}",
            "x": [factor * sample for sample in point.samples],
            "boxpoints": "all",
            "jitter": 0.6,
            "pointpos": 0,
            "marker": {"color": colour, "size": 5},
            "line": {"width": 1.25},
            "fillcolor": "rgba(0,0,0,0)",
            "hoverinfo": "x",
        }
        for side, point, colour in (("after", after, LINES[scheme][1]), ("before", before, LINES[scheme][0]))
    ]
    layout = chart_layout(scheme)
    title = f"{benchmark.quantity} {'×' if unit == 'x' else unit}".strip()
    layout["xaxis"] |= titled(title, scheme)
    layout["yaxis"] |= {"showgrid": False}
    return {"data": data, "layout": layout}


def _trends(results: Results, machine: str, requested: list[SeriesName]) -> list[tuple[SeriesName, Trend]]:
    """Return pairs of series and trend, in the order of ``requested``, without series that have no points."""
    names = series_by_name(results, machine)
    series = {names[name]: name for name in requested if name in names}
    trends = {series[trend.series]: trend for trend in results.trends(series)}
    return [(name, trends[name]) for name in requested if name in trends]
