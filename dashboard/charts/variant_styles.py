"""Styles of a suite's variants, which stay the same whichever variants a page shows."""

from __future__ import annotations

from typing import Any

from dash import html

from dashboard.charts.theme import Style, styles
from lockstep.compare.series_of_suite import keys_of
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered


@remembered
def suite_styles(results: Results, suite: str) -> dict[str, Style]:
    """Return a style for every variant of the suite, shown or not: a variant keeps its colour if others are hidden."""
    return styles(sorted({key.variant for key in keys_of(results, suite)}), _baselines(results, suite))


def swatch(style: Style) -> Any:
    """Return a variant's marker in the variant's colour, to stand beside the variant's name."""
    # Swatches are made once for both schemes. The browser selects the colour.
    colour = f"light-dark({style.light}, {style.dark})"
    return html.Span(style.glyph, className="swatch", style={"color": colour})


def _baselines(results: Results, suite: str) -> set[str]:
    """Return the baselines: a baseline's speedup, measured against itself, is exactly one at every commit."""
    ratios: dict[str, bool] = {}
    for ratio in results.trends(results.series(suite=suite, quantity="speedup")):
        values = ratio.value[ratio.value > 0]
        if len(values):
            variant = ratio.series.axis("variant")
            ratios[variant] = ratios.get(variant, True) and bool((values == 1.0).all())
    return {variant for variant, always_one in ratios.items() if always_one}
