"""One series with everything that was measured beside it: value, clock, temperature, machine code; one x axis."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from dashboard.alerts.attribution import Kind
from dashboard.alerts.words import change
from dashboard.figures import commit_axis, commit_line, value_axis, wrapped
from dashboard.results.model import Commit, Point
from dashboard.rows import Measured, Quantity
from dashboard.shown import Behaviour, Finding
from dashboard.theme import Scheme, Style, chart_layout, neutral

Figure = dict[str, Any]

#: Points up to which samples are drawn, and up to which each has its own marker.
_SAMPLED, _MARKED = 150, 400

#: Colours of what a change is put down to: what somebody has to look at is orange, what came from outside is not.
CAUSES: dict[Kind, tuple[str, str]] = {
    "own commit": ("#B04A00", "#FF9A5C"),
    "unexplained": ("#B0508A", "#E58FC0"),
    "toolchain": ("#0B62A8", "#6BB8F0"),
    "machine": ("#5B4FC4", "#A79CFF"),
    "protocol": ("#5F6B76", "#9AA5B1"),
    "noise": ("#5F6B76", "#9AA5B1"),
}

#: Share of the height of the main part and of each part below it, and of the gaps.
_MAIN, _BELOW, _GAP = 3.2, 1.0, 0.22


def cause_colour(kind: Kind, scheme: Scheme) -> str:
    """Colour of a change's marker."""
    return CAUSES[kind][scheme == "dark"]


def series_figure(
    points: Sequence[tuple[Point, Measured | None]],
    commits: Sequence[Commit],
    what: Quantity,
    found: Sequence[Finding],
    analysis: Behaviour | None,
    style: Style,
    scheme: Scheme,
    zoom: tuple[float, ...] = (),
) -> Figure:
    """The chart.

    Args:
        points: of one series, oldest first, and the number of each in the unit of ``what``.
        commits: of the machine: the x axis.
        what: the quantity.
        found: changes to mark.
        analysis: of these numbers, for the levels; ``None`` where the detector follows another quantity.
        style, scheme: of the line.
        zoom: range of the x axis; () all.
    """
    shown = [(point, number) for point, number in points if number is not None]
    layout = chart_layout(scheme)
    layout["xaxis"] |= commit_axis(commits)
    if zoom:
        layout["xaxis"]["range"] = list(zoom)
    data = _main(shown, commits, what, style, scheme)
    values = [end for _, one in shown for end in (one.low or one.value, one.high or one.value)]
    positive = [value for value in values if value > 0]
    if positive and len(positive) == len(values):
        layout["yaxis"] |= value_axis(min(positive), max(positive), what.unit if what.unit in "×%" else "")
    small = {"size": 11, "color": neutral(scheme)}
    title = f"{what.label} {what.unit}".replace("% of floor %", "% of floor")
    layout["yaxis"]["title"] = {"text": escape(title), "font": small}
    if analysis is not None:
        data += _levels(analysis, shown, scheme)
    below = [part for part in (_clock(points, scheme), _heat(points, scheme), _code(points, scheme)) if part]
    tops = _domains(len(below))
    layout["yaxis"]["domain"] = tops[0]
    for place, (title, traces) in enumerate(below, 2):
        axis = dict(chart_layout(scheme)["yaxis"]) | {"domain": tops[place - 1], "nticks": 3}
        axis["title"] = {"text": title, "font": small}
        layout[f"yaxis{place}"] = axis
        data += [trace | {"yaxis": f"y{place}"} for trace in traces]
    layout["xaxis"]["anchor"] = f"y{len(below) + 1}" if below else "y"
    marks = [*_toolchain(points, scheme), *_changes(found, commits, scheme)]
    layout["shapes"] = [shape for shape, _ in marks]
    layout["annotations"] = [note for _, note in marks]
    data += _failures(points, commits, scheme, layout)
    layout["margin"] = {"l": 62, "r": 14, "t": 26, "b": 30}
    return {"data": data, "layout": layout}


def figure_height(figure: Mapping[str, Any]) -> int:
    """Pixels that the chart needs."""
    below = [name for name in figure["layout"] if name.startswith("yaxis") and name not in ("yaxis", "yaxis9")]
    return 340 + 95 * len(below)


def _main(
    shown: Sequence[tuple[Point, Measured]], commits: Sequence[Commit], what: Quantity, style: Style, scheme: Scheme
) -> list[Figure]:
    data: list[Figure] = []
    for run in _runs(shown):
        banded = [(p.commit, n.low, n.high) for p, n in run if n.low is not None and n.high is not None]
        xs = [x for x, _, _ in banded]
        outline = [high for _, _, high in banded] + [low for _, low, _ in reversed(banded)]
        fill = {"fill": "toself", "fillcolor": style.band(scheme), "line": {"width": 0}, "mode": "lines"}
        data.append({"type": "scatter", "x": xs + xs[::-1], "y": outline, "hoverinfo": "skip", **fill})
    if len(shown) <= _SAMPLED:
        scattered = [(p.commit, s) for p, n in shown for s in _samples(p, n)]
        dot = {"size": 3, "color": style.colour(scheme), "opacity": 0.35}
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "marker": dot,
                "hoverinfo": "skip",
                "x": [x for x, _ in scattered],
                "y": [y for _, y in scattered],
            }
        )
    for run in _runs(shown):
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(shown) <= _MARKED else "lines",
                "name": "value",
                "line": {"color": style.colour(scheme), "width": 1.5, "dash": style.dash},
                "marker": {"color": style.colour(scheme), "size": 6, "symbol": style.marker},
                "hovertemplate": "%{text}<extra></extra>",
                "text": [_hover(p, n, what, commits[p.commit]) for p, n in run],
                **_places([p.commit for p, _ in run]),
                "y": packed([n.value for _, n in run]),
            }
        )
    return data


def packed(values: Sequence[float]) -> Any:
    """A long list of numbers as Plotly's typed array: 4 bytes a number in place of 18."""
    if len(values) <= _MARKED:
        return list(values)
    raw = np.asarray(values, dtype="<f4").tobytes()
    return {"dtype": "f4", "bdata": base64.b64encode(raw).decode()}


def _places(at: Sequence[int]) -> Figure:
    whole = len(at) > 1 and at[-1] - at[0] == len(at) - 1
    return {"x0": at[0], "dx": 1} if whole else {"x": list(at)}


def _runs(shown: Sequence[tuple[Point, Measured]]) -> list[list[tuple[Point, Measured]]]:
    """Stretches of one ruler: those that compare."""
    runs: list[list[tuple[Point, Measured]]] = []
    for place, one in enumerate(shown):
        if not place or one[0].version != shown[place - 1][0].version:
            runs.append([])
        runs[-1].append(one)
    return runs


def _samples(point: Point, number: Measured) -> list[float]:
    """The point's samples in the unit of its number; ratios and times alike are scaled by one factor."""
    if not point.value:
        return []
    return [sample * number.value / point.value for sample in point.samples]


def _levels(analysis: Behaviour, shown: Sequence[tuple[Point, Measured]], scheme: Scheme) -> list[Figure]:
    own = [point.commit for point, _ in _last_ruler(shown)]
    if not own or not analysis.levels or analysis.levels[-1].stop != len(own):
        return []
    factor = next((number.value / point.value for point, number in shown if point.value), 1.0)
    line = {"color": neutral(scheme), "width": 1.25, "dash": "dash"}
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "line": line,
            "hoverinfo": "skip",
            "x": [own[level.start] - 0.5, own[level.stop - 1] + 0.5],
            "y": [level.value * factor] * 2,
        }
        for level in analysis.levels
        if math.isfinite(level.value)
    ]


def _last_ruler(shown: Sequence[tuple[Point, Measured]]) -> Sequence[tuple[Point, Measured]]:
    return _runs(shown)[-1] if shown else ()


def _clock(points: Sequence[tuple[Point, Measured | None]], scheme: Scheme) -> tuple[str, list[Figure]] | None:
    known = [point for point, _ in points if point.sm_mhz is not None]
    if not known:
        return None
    text = [
        f"SM {p.sm_mhz:.0f} MHz"
        + (f", lowest {p.sm_mhz_low:.0f}" if p.sm_mhz_low else "")
        + (f"<br>{wrapped(', '.join(p.clock_reasons))}" if p.clock_reasons else "")
        for p in known
    ]
    # Hollow where something held the clock back.
    symbols = ["circle-open" if p.clock_reasons else "circle" for p in known]
    low = _beside([p.commit for p in known], [p.sm_mhz_low for p in known], scheme) | {"hoverinfo": "skip"}
    main = _beside([p.commit for p in known], [p.sm_mhz for p in known], scheme, symbols)
    return "SM MHz", [
        low | {"line": {"color": neutral(scheme), "width": 1, "dash": "dot"}, "mode": "lines"},
        main | {"text": text, "hovertemplate": "%{text}<extra></extra>"},
    ]


def _heat(points: Sequence[tuple[Point, Measured | None]], scheme: Scheme) -> tuple[str, list[Figure]] | None:
    known = [point for point, _ in points if point.temperature_c is not None]
    if not known:
        return None
    text = [f"{p.temperature_c:.0f} °C" + (f", {p.power_w:.0f} W" if p.power_w else "") for p in known]
    trace = _beside([p.commit for p in known], [p.temperature_c for p in known], scheme)
    return "°C", [trace | {"text": text, "hovertemplate": "%{text}<extra></extra>"}]


def _code(points: Sequence[tuple[Point, Measured | None]], scheme: Scheme) -> tuple[str, list[Figure]] | None:
    known = [(point.commit, kernels) for point, _ in points if (kernels := kernels_of(point))]
    counted = [(x, some, max(k.get("registers") or 0 for k in some)) for x, some in known]
    if not any(registers for _, _, registers in counted):
        return None
    hashes = [tuple(str(kernel.get("code")) for kernel in some) for _, some, _ in counted]
    fresh = [place == 0 or hashes[place] != hashes[place - 1] for place in range(len(hashes))]
    trace = _beside(
        [x for x, _, _ in counted],
        [registers for _, _, registers in counted],
        scheme,
        ["diamond" if new else "line-ew-open" for new in fresh],
    )
    text = [
        code_words(some) + ("<br>code changed" if new else "") for (_, some, _), new in zip(counted, fresh, strict=True)
    ]
    trace["line"] |= {"shape": "hv"}
    return "registers", [trace | {"text": text, "hovertemplate": "%{text}<extra></extra>"}]


def kernels_of(point: Point) -> list[Mapping[str, Any]]:
    """Kernels that a point's record holds; [] without one."""
    try:
        code = json.loads(point.code) if point.code else {}
    except ValueError:
        return []
    kernels = code.get("kernels") if isinstance(code, dict) else None
    return [one for one in kernels if isinstance(one, dict)] if isinstance(kernels, list) else []


def code_words(kernels: Sequence[Mapping[str, Any]]) -> str:
    """``matmul: 168 registers, 0 B spilled, 48 kB shared``, a line a kernel, escaped."""
    lines = []
    for kernel in kernels[:8]:
        facts = [
            f"{kernel[name]:g} {unit}"
            for name, unit in (("registers", "registers"), ("spills", "B spilled"), ("shared", "B shared"))
            if isinstance(kernel.get(name), int | float)
        ]
        lines.append(f"{escape(str(kernel.get('name', '')))}: {', '.join(facts)}")
    return "<br>".join(lines)


def _beside(xs: Sequence[int], ys: Sequence[Any], scheme: Scheme, symbols: Sequence[str] = ()) -> Figure:
    colour = neutral(scheme)
    marker = {"color": colour, "size": 5, "symbol": list(symbols) or "circle"}
    line = {"color": colour, "width": 1.25}
    return {"type": "scatter", "mode": "lines+markers", "marker": marker, "line": line, "x": list(xs), "y": list(ys)}


def _toolchain(points: Sequence[tuple[Point, Measured | None]], scheme: Scheme) -> list[tuple[Figure, Figure]]:
    marks = []
    for (before, _), (after, _) in pairwise(points):
        moved = toolchain_change(before, after)
        if moved:
            text = escape(", ".join(moved[:2]) + (" …" if len(moved) > 2 else ""))
            marks.append(_upright(after.commit - 0.5, text, neutral(scheme), "dot", 1.0))
    return marks


def toolchain_change(before: Point, after: Point) -> list[str]:
    """``triton 3.6.0 → 3.7.1`` for everything below the code that differs."""
    if before.run is after.run:
        return []
    old, new = before.run.toolchain, after.run.toolchain
    return [f"{name} {old.get(name, '–')} → {new.get(name, '–')}" for name in new if new.get(name) != old.get(name)]


def _changes(found: Sequence[Finding], commits: Sequence[Commit], scheme: Scheme) -> list[tuple[Figure, Figure]]:
    place = {commit.hash: at for at, commit in enumerate(commits)}
    marks = []
    for one in found:
        at = place.get(one.commit)
        if at is not None:
            sign = "▼" if one.size > 0 else "▲"
            subject = escape(commits[at].subject[:48])
            text = f"{sign} {change(one.size)} · {one.kind}" + (f" · {subject}" if subject else "")
            marks.append(_upright(at - 0.5, text, cause_colour(one.kind, scheme), "solid", 1.0))
    return marks


def _upright(x: float, text: str, colour: str, dash: str, top: float) -> tuple[Figure, Figure]:
    line = {"color": colour, "width": 1.25, "dash": dash}
    shape = {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": top, "line": line, "layer": "below"}
    place = {"x": x, "y": top, "yref": "paper", "xanchor": "left", "yanchor": "bottom", "xshift": -2}
    return shape, {"text": text, "showarrow": False, "font": {"color": colour, "size": 11}, **place}


def _failures(
    points: Sequence[tuple[Point, Measured | None]], commits: Sequence[Commit], scheme: Scheme, layout: Figure
) -> list[Figure]:
    failed = [point for point, _ in points if point.state == "failed"]
    if not failed:
        return []
    layout["yaxis9"] = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    marker = {"symbol": "x-thin", "size": 8, "line": {"width": 1.75, "color": cause_colour("own commit", scheme)}}
    text = [f"failed: {wrapped(point.reason)}<br>{commit_line(commits[point.commit])}" for point in failed]
    where = {"x": [point.commit for point in failed], "y": [0.04] * len(failed), "yaxis": "y9"}
    hover = {"text": text, "hovertemplate": "%{text}<extra></extra>"}
    return [{"type": "scatter", "mode": "markers", "marker": marker, **where, **hover}]


def _hover(point: Point, number: Measured, what: Quantity, commit: Commit) -> str:
    ends = f" [{number.low:.4g}, {number.high:.4g}]" if number.low is not None and number.high is not None else ""
    lines = [f"<b>{number.value:.5g} {escape(what.unit)}</b>{ends}", commit_line(commit)]
    return "<br>".join([*lines, wrapped(point.note)] if point.note else lines)


def _domains(below: int) -> list[list[float]]:
    """Parts of the height from the top: the main one, then the others."""
    whole = _MAIN + below * (_BELOW + _GAP)
    tops, top = [[1 - _MAIN / whole, 1.0]], 1 - _MAIN / whole
    for _ in range(below):
        top -= _GAP / whole
        tops.append([max(top - _BELOW / whole, 0.0), top])
        top -= _BELOW / whole
    return tops
