"""Charts of the measurements that accompany a series: clock, temperature, machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dashboard.charts.theme import Scheme, neutral
from dashboard.charts.trend import Figure, wrapped
from lockstep.alerts.cause.code_evidence import code_of
from lockstep.compare.row import Measured
from lockstep.history.model import Point

#: The points of a series, oldest first, each with its number.
Points = Sequence[tuple[Point, Measured | None]]


def telemetry_panels(points: Points, scheme: Scheme) -> list[tuple[str, list[Figure]]]:
    """Return title and lines of each chart to draw below a series, from the top, without charts that have no data."""
    panels = (_clock(points, scheme), _heat(points, scheme), _code(points, scheme))
    return [part for part in panels if part]


def _clock(points: Points, scheme: Scheme) -> tuple[str, list[Figure]] | None:
    known = [point for point, _ in points if point.sm_mhz is not None]
    text = [
        f"SM {p.sm_mhz:.0f} MHz"
        + (f", lowest {p.sm_mhz_low:.0f}" if p.sm_mhz_low else "")
        + (f"<br>{wrapped(', '.join(p.clock_reasons))}" if p.clock_reasons else "")
        for p in known
    ]
    # A hollow marker shows that the GPU reported a reason for a reduced clock.
    symbols = ["circle-open" if p.clock_reasons else "circle" for p in known]
    x = [p.commit for p in known]
    low = _line(x, [p.sm_mhz_low for p in known], scheme, []) | {"hoverinfo": "skip", "mode": "lines"}
    low["line"] = {"color": neutral(scheme), "width": 1, "dash": "dot"}
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
    colour = neutral(scheme)
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
