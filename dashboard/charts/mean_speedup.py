"""The speedup of a family over the commits: one line for all of its shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from dashboard.charts.theme import BEST, Scheme, Style
from dashboard.charts.trend import Figure, Mark, commit_line, finished, stroke
from lockstep.compare.number_format import significant
from lockstep.compare.shown_quantities import QUANTITIES
from lockstep.history.model import Commit, Trend


def mean_speedup(
    trends: Sequence[Trend],
    commits: Sequence[Commit],
    style: Style,
    scheme: Scheme,
    marks: Sequence[Mark],
    zoom: tuple[float, ...],
) -> Figure | None:
    """Return a chart of the geometric mean of speedups; ``None`` with fewer than two commits.

    The last point is the mean of the newest speedups. Earlier points follow by the changes, see ``chained``.

    Args:
        trends: the speedup of the variant ``best`` in each shape.
    """
    changes = chained(trends)
    if len(changes) < 2:
        return None
    newest = [trend.value[np.isfinite(trend.value) & (trend.value > 0)][-1:] for trend in trends]
    level = float(np.exp(np.mean(np.log(np.concatenate(newest))))) / list(changes.values())[-1]
    x, y = list(changes), [level * value for value in changes.values()]
    texts = [
        f"<b>{significant(value, 4)} ×</b><br>{len(trends)} shapes<br>{commit_line(commits[at])}"
        for at, value in zip(x, y, strict=True)
    ]
    line = stroke(style, scheme) | {"name": BEST, "x": x, "y": y, "text": texts}
    shown = [value for at, value in zip(x, y, strict=True) if not zoom or zoom[0] <= at <= zoom[1]]
    ends = (min(shown), max(shown)) if shown else None
    return finished([line], commits, QUANTITIES["speedup"], ends, (), scheme, marks, zoom)


def chained(trends: Iterable[Trend]) -> dict[int, float]:
    """Return one trend for several series by commit: the geometric mean of the series' changes, chained.

    Only series with points at both commits count, so a series that begins or ends does not move the trend. The first
    number is 1.
    """
    changes: dict[int, list[float]] = defaultdict(list)
    first: list[int] = []
    for trend in trends:
        known = np.flatnonzero((trend.version == trend.version[-1]) & (trend.value > 0) & np.isfinite(trend.value))
        if len(known):
            first.append(int(trend.commit[known[0]]))
        logs = np.diff(np.log(trend.value[known]))
        for commit, log in zip(trend.commit[known[1:]].tolist(), logs.tolist(), strict=True):
            changes[commit].append(log)
    if not changes:
        return {}
    commits = sorted({min(first), *changes})
    steps = [float(np.mean(changes[commit])) if commit in changes else 0.0 for commit in commits]
    return dict(zip(commits, np.exp(np.cumsum(steps)).tolist(), strict=True))
