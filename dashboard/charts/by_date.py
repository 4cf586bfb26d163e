"""Place the commits of a chart by their dates instead of by their order.

A chart is drawn with commit i at position i, and then moved. Positions by date have the same ends, 0 and n − 1.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from lockstep.history.model import Commit, Floats

#: Share of the axis that is divided evenly, so that commits of one day stay apart.
_EVEN = 0.1

#: Number of dates on the axis.
_LABELS = 4


def _dates(commits: Sequence[Commit]) -> Floats:
    """Return the date of each commit, ms since 1970. A commit is at least as late as the commits before it."""
    return np.maximum.accumulate(np.array([commit.date for commit in commits], dtype=np.float64))


def _places(commits: Sequence[Commit]) -> Floats:
    """Return the position of each commit by its date."""
    dates, order = _dates(commits), np.arange(len(commits), dtype=np.float64)
    if len(commits) < 2 or dates[0] == dates[-1]:
        return order
    share = (dates - dates[0]) / (dates[-1] - dates[0])
    places: Floats = (1 - _EVEN) * order[-1] * share + _EVEN * order
    return places


def in_order(zoom: tuple[float, ...], commits: Sequence[Commit]) -> tuple[float, ...]:
    """Return the range of positions by order that shows the same commits as the range ``zoom`` of positions by date."""
    places = _places(commits)
    return tuple(_moved(zoom, places, np.arange(len(places), dtype=np.float64)).tolist())


def by_date(figure: dict[str, Any], commits: Sequence[Commit]) -> dict[str, Any]:
    """Move a chart's points and marks to the dates of the commits, and label its axis with dates."""
    places = _places(commits)
    order = np.arange(len(places), dtype=np.float64)
    for trace in figure["data"]:
        xs = _moved(_positions(trace), order, places).tolist()
        trace["x"] = [None if x != x else round(x, 3) for x in xs]
    layout, axis = figure["layout"], figure["layout"]["xaxis"]
    for mark in (*layout.get("shapes", ()), *layout.get("annotations", ())):
        for end in {"x", "x0", "x1"} & mark.keys() if mark.get("xref") != "paper" else ():
            mark[end] = float(_moved([mark[end]], order, places)[0])
    low, high = axis["range"] = _moved(axis["range"], order, places).tolist()
    at = np.linspace(max(low, 0.0), min(high, len(places) - 1.0), _LABELS)
    days = [
        datetime.fromtimestamp(date / 1000, UTC).strftime("%Y-%m-%d") for date in np.interp(at, places, _dates(commits))
    ]
    labels = {day: place for place, day in zip(at.tolist(), days, strict=True)}
    axis["tickvals"], axis["ticktext"] = list(labels.values()), list(labels)
    return figure


def _positions(trace: dict[str, Any]) -> Floats:
    """Return the positions of a trace's points; NaN for a gap."""
    x = trace["x"]
    if isinstance(x, dict):
        return np.frombuffer(base64.b64decode(x["bdata"]), f"<{x['dtype']}").astype(np.float64)
    return np.array(x, dtype=np.float64)


def _moved(values: Sequence[float] | Floats, old: Floats, new: Floats) -> Floats:
    """Return values at positions ``new`` instead of ``old``; beyond both ends they keep their distance."""
    numbers = np.array(values, dtype=np.float64)
    outside = (numbers < old[0]) | (numbers > old[-1])
    moved: Floats = np.where(outside, numbers, np.interp(numbers, old, new))
    return moved
