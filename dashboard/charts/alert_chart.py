"""The samples of an alert's worst series before and after its change."""

from __future__ import annotations

from dashboard.charts.theme import LINES, Scheme, chart_layout, titled
from dashboard.charts.trend import Figure
from lockstep.alerts.analysis.followed_series import series_by_name
from lockstep.alerts.model import Alert
from lockstep.compare.shown_quantities import SHOWN_AS
from lockstep.history.columns import COLUMNS
from lockstep.history.snapshot import Results


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
