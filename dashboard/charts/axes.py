"""The axes of charts: commits in their order or by their dates, and linear or logarithmic axes of values."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from lockstep.compare.number_format import whole
from lockstep.history.model import Commit, Floats

#: Minimum relative range of a value axis, because otherwise the noise of a steady series would fill the chart.
LEAST_RANGE = 0.10

#: Ratio of largest to smallest value above which the axis is logarithmic: a step of 5 % then has the same height
#: anywhere.
LOG_FROM = 2.5


def in_zoom(index: int, zoom: tuple[float, ...]) -> bool:
    """Return whether the commit with this index lies in the visible range ``zoom``; () includes all commits."""
    return not zoom or zoom[0] <= index <= zoom[1]


def commit_axis(commits: Sequence[Commit], zoom: tuple[float, ...] = (), begin: int = 0) -> dict[str, Any]:
    """Return an axis on which commit i is at position i, with at most six hashes as labels, the last one included.

    Args:
        commits: the commits of the axis, oldest first.
        zoom: first and last visible position; () shows ``begin`` to the last commit.
        begin: index of the first commit that is shown without a zoom.
    """
    last = len(commits) - 1
    first, end = zoom or (begin, last)
    shown = range(max(math.ceil(first), 0), min(math.floor(end), last) + 1)
    # More than six commits get at most five labels, because six labels just fill the width of a phone.
    step = 1 if len(shown) <= 6 else math.ceil(len(shown) / 5)
    at = list(shown[::-1][::step][::-1])
    return {
        "type": "linear",
        "tickvals": at,
        "ticktext": [commits[index].short[:7] for index in at],
        "tickangle": 0,
        "range": list(zoom) or [begin - 0.4, last + max(0.4, 0.01 * (last - begin))],
        "showgrid": False,
    }


def sourced(figure: dict[str, Any], machine: str, commits: Sequence[Commit], axis: str = "") -> dict[str, Any]:
    """Note in a chart which machine and commits it shows. A saved picture says so (``assets/charts.js``).

    ``axis``: "date" moves the commits to their dates.
    """
    if axis == "date":
        _by_date(figure, commits)
    if commits:
        ends = "..".join(dict.fromkeys((commits[0].short, commits[-1].short)))
        date = datetime.fromtimestamp(commits[-1].date / 1000, UTC)
        figure["layout"]["meta"] = f"{machine} · {ends} · {date:%Y-%m-%d}"
    return figure


def differing_parts(labels: Sequence[str]) -> dict[str, str]:
    """Return for each label the parts that not all labels have. A phone has no room for whole labels in a chart."""
    parts = [re.split("[, ]", label) for label in labels]
    common = set.intersection(*map(set, parts))
    return {
        label: " ".join(part for part in own if part not in common) or label
        for label, own in zip(labels, parts, strict=True)
    }


def fitted(value: Floats, low: Floats, high: Floats) -> tuple[float, float] | None:
    """Return the range that a chart of these values and intervals shows; ``None`` without values.

    It holds all values, and their intervals unless those are very wide: asv's interval of a few samples may reach from
    almost zero to many times the value. The range ends at half the lowest value and at twice the highest. If a value is
    zero or negative, it ends one range of the values outside them.

    Args:
        value: the values; NaN where there is none.
        low, high: the ends of the intervals; NaN where unknown.
    """
    value = value[np.isfinite(value)]
    if not value.size:
        return None
    least, most = float(value.min()), float(value.max())
    bottom, top = (least / 2, most * 2) if least > 0 else (2 * least - most, 2 * most - least)
    lowest, highest = np.fmin.reduce(low, initial=least), np.fmax.reduce(high, initial=most)
    return max(float(lowest), bottom), min(float(highest), top)


def value_axis(low: float, high: float, unit: str) -> dict[str, Any]:
    """Return a vertical axis from ``low`` to ``high``, logarithmic if ``low`` is positive and ``high`` far above it."""
    if low > 0 and high / low > LOG_FROM:
        return log_axis(low / 1.08, high * 1.08, unit)
    least = LEAST_RANGE * max(abs(low), abs(high)) or 1.0
    middle, half = (low + high) / 2, max(high - low, least) / 2 * 1.12
    return {"type": "linear", "range": [middle - half, middle + half], "nticks": 5, "ticksuffix": unit}


def scientific(axis: dict[str, Any]) -> None:
    """Change an axis to labels such as 5e-4, the usual notation of errors, in place of Plotly's ``500μ``."""
    axis["exponentformat"], axis["minexponent"] = "e", 2
    if "ticktext" in axis:
        axis["ticktext"] = [f"{tick:.1e}".replace(".0e", "e") for tick in axis["tickvals"]]


def log_axis(low: float, high: float, unit: str = "", narrow: bool = False) -> dict[str, Any]:
    """Return a logarithmic axis between two positive ends, labelled at 1, 2, 5, 10, …; a short axis has more labels.

    ``narrow``: with so few labels that a phone has room for them beside each other; a long axis has 1, 10, 100, ….
    """
    steps = (1, 2, 5) if high / low > (4 if narrow else 8) else (1, 1.5, 2, 3, 4, 5, 6, 8)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    ticks = [tick for tick in ticks if low <= tick <= high]
    text = [(f"{tick:g}" if tick < 1e3 else whole(tick) if tick < 1e6 else f"{tick:.0e}") + unit for tick in ticks]
    if narrow and high / low > 100:
        text = [label if math.log10(tick).is_integer() else "" for tick, label in zip(ticks, text, strict=True)]
    return {"type": "log", "range": [math.log10(low), math.log10(high)], "tickvals": ticks, "ticktext": text}


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


def visible_range(zoom: str, axis: str, commits: Sequence[Commit]) -> tuple[float, ...]:
    """Parse the visible range of an address, such as ``-0.5,12``; return () for text that is not two ascending numbers.

    On the axis "date" the numbers are positions by date. The range holds the same commits, as positions by order.
    """
    try:
        ends = tuple(float(part) for part in zoom.split(","))
    except ValueError:
        return ()
    if len(ends) != 2 or not -1e9 < ends[0] < ends[1] < 1e9:
        return ()
    if axis != "date":
        return ends
    places = _places(commits)
    return tuple(_moved(ends, places, np.arange(len(places), dtype=np.float64)).tolist())


def _by_date(figure: dict[str, Any], commits: Sequence[Commit]) -> None:
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
