"""Colours, fonts and chart defaults for both colour schemes.

Lines differ by colour and by marker, so that no line is lost to colour blindness or in print. The colours are Okabe and
Ito's (https://jfly.uni-koeln.de/color), darkened on light and lightened on dark until each has a contrast of at least
3:1 with the page. Their black and yellow would not reach this contrast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dash import html

from lockstep.compare.number_format import THIN
from lockstep.compare.series_of_suite import keys_of
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.record.series_name import BEST

Scheme = Literal["light", "dark"]

SANS = 'Inter, "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif'
MONO = 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, "DejaVu Sans Mono", Consolas, monospace'

#: Colours of lines.
LINES: dict[Scheme, tuple[str, ...]] = {
    "light": ("#0072B2", "#D55E00", "#008F68", "#B0508A", "#9A7500", "#3C8FC7", "#7A5C3E", "#5B4FC4"),
    "dark": ("#56B4E9", "#FF8A4C", "#2CC295", "#E58FC0", "#E8C84A", "#9CD3F5", "#C9A37E", "#A79CFF"),
}
_MARKERS = (
    ("circle", "●"),
    ("square", "■"),
    ("diamond", "◆"),
    ("triangle-up", "▲"),
    ("x", "✖"),
    ("triangle-down", "▼"),
    ("cross", "✚"),
    ("star", "★"),
)
#: Colour of everything that is not a variant: floors, reference lines, marks of failures.
NEUTRAL: dict[Scheme, str] = {"light": "#5F6B76", "dark": "#9AA5B1"}
_INK: dict[Scheme, str] = {"light": "#1B2026", "dark": "#E4E8EC"}
_GRID: dict[Scheme, str] = {"light": "#E9ECEF", "dark": "#2A3037"}
#: Colour of the card on which a chart is drawn.
CARD: dict[Scheme, str] = {"light": "#FFFFFF", "dark": "#1A1E23"}

MANTINE: dict[str, Any] = {
    "fontFamily": SANS,
    "fontFamilyMonospace": MONO,
    "primaryColor": "blue",
    "primaryShade": {"light": 8, "dark": 4},
    "defaultRadius": "sm",
    "respectReducedMotion": True,
    "fontSizes": {"xs": "12px", "sm": "13px", "md": "14px"},
    "headings": {"fontWeight": "600"},
}

#: Plotly's buttons are off: they would cover the lines, and one of them uploads the chart to Plotly. Without buttons a
#: drag zooms, a drag with shift moves, and a double click shows everything again.
GRAPH_CONFIG: dict[str, Any] = {
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "displayModeBar": False,
    "responsive": True,
}


#: Options of the layout of a chart whose lines are named above it.
LEGEND: dict[str, Any] = {"showlegend": True, "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}}


@dataclass(frozen=True)
class Style:
    """How charts draw one variant: its colour in the light and the dark scheme, its marker, and its line.

    ``glyph`` is the marker as a character, for legends in text. ``width`` is the line's width in pixels.
    """

    light: str
    dark: str
    marker: str
    glyph: str
    dash: str
    width: float = 1.75

    def colour(self, scheme: Scheme) -> str:
        """Return the colour of the variant's line in this scheme, ``#rrggbb``."""
        return self.dark if scheme == "dark" else self.light

    def band(self, scheme: Scheme) -> str:
        """Return the fill of the variant's confidence band: its line's colour, mostly transparent."""
        red, green, blue = (int(self.colour(scheme)[at : at + 2], 16) for at in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.16)"


def styles(variants: list[str], baselines: set[str]) -> dict[str, Style]:
    """Return a style for each variant. Baselines are grey and dashed; other variants take palette colours in order of
    name.

    A family's public function, ``best``, has the same colour in every family. Its line is wide, because it lies on the
    line of another variant.
    """
    coloured = sorted({*variants} - baselines, key=lambda variant: (variant != BEST, variant))
    styled = {
        variant: Style(
            LINES["light"][place],
            LINES["dark"][place],
            # After one round through the palette, marker and dash differ from the first round.
            *_MARKERS[(place + 3 * rounds) % len(_MARKERS)],
            ("solid", "dot", "dashdot")[rounds % 3],
            3.5 if variant == BEST else 1.75,
        )
        for variant, (rounds, place) in (
            (variant, divmod(index, len(LINES["light"]))) for index, variant in enumerate(coloured)
        )
    }
    # Only copies of the same work are hollow.
    neutral = Style(NEUTRAL["light"], NEUTRAL["dark"], "pentagon", "⬟", "dash")
    return {variant: styled.get(variant, neutral) for variant in variants}


def titled(text: str, scheme: Scheme) -> dict[str, Any]:
    """Return the options that give an axis a title."""
    return {"title": {"text": text, "standoff": 4, "font": {"size": 11, "color": NEUTRAL[scheme]}}}


def guide(xs: Sequence[float], ys: Sequence[float], scheme: Scheme, dash: str = "solid") -> dict[str, Any]:
    """Return a line that is not a variant's, such as a limit. ``dash`` is one of Plotly's dashes."""
    line = {"color": NEUTRAL[scheme], "width": 1.5, "dash": dash}
    return {"type": "scatter", "mode": "lines", "line": line, "hoverinfo": "skip", "x": list(xs), "y": list(ys)}


def box(name: str, values: Sequence[float], texts: Sequence[str], colour: str) -> dict[str, Any]:
    """Return values as dots along the x axis, under the box of their quartiles.

    ``texts``: what each dot is, escaped for HTML.
    """
    dots = {"boxpoints": "all", "jitter": 0.6, "pointpos": 0, "marker": {"color": colour, "size": 5}}
    line = {"line": {"width": 1.25}, "fillcolor": "rgba(0,0,0,0)", "hoverinfo": "x+text", "text": list(texts)}
    return {"type": "box", "name": name, "x": list(values), **dots, **line}


def chart_layout(scheme: Scheme) -> dict[str, Any]:
    """Return the Plotly layout that all charts of a scheme share."""
    axis = {
        "gridcolor": _GRID[scheme],
        "linecolor": _GRID[scheme],
        "zeroline": False,
        "ticks": "",
        "automargin": True,
        "fixedrange": False,
        "tickfont": {"color": NEUTRAL[scheme], "size": 11, "family": MONO},
        "separatethousands": True,
    }
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": SANS, "size": 12, "color": _INK[scheme]},
        "margin": {"l": 44, "r": 14, "t": 8, "b": 30},
        "separators": f".{THIN}",
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": CARD[scheme],
            "bordercolor": NEUTRAL[scheme],
            "font": {"family": SANS, "size": 12, "color": _INK[scheme]},
            "align": "left",
        },
        "xaxis": dict(axis),
        "yaxis": dict(axis),
        "dragmode": "zoom",
    }


@remembered
def suite_styles(results: Results, suite: str) -> dict[str, Style]:
    """Return a style for every variant of the suite, shown or not: a variant keeps its colour if others are hidden."""
    return styles(sorted({key.variant for key in keys_of(results, suite)}), baselines(results, suite))


def swatch(style: Style) -> Any:
    """Return a variant's marker in the variant's colour, to stand beside the variant's name."""
    # Swatches are made once for both schemes. The browser selects the colour.
    colour = f"light-dark({style.light}, {style.dark})"
    return html.Span(style.glyph, className="swatch", style={"color": colour})


@remembered
def baselines(results: Results, suite: str) -> set[str]:
    """Return the baselines: a baseline's speedup, measured against itself, is exactly one at every commit."""
    ratios: dict[str, bool] = {}
    for ratio in results.trends(results.series(suite=suite, quantity="speedup")):
        values = ratio.value[ratio.value > 0]
        if len(values):
            variant = ratio.series.axis("variant")
            ratios[variant] = ratios.get(variant, True) and bool((values == 1.0).all())
    return {variant for variant, always_one in ratios.items() if always_one}
