"""A badge for a README: a label and a value, as SVG."""

from __future__ import annotations

from html import escape
from typing import Literal

Kind = Literal["good", "bad", "plain"]

#: Contrast with white text is at least 4.5:1. Orange and blue are the charts' colours; red and green are avoided.
_COLOURS: dict[Kind, str] = {"good": "#0B62A8", "bad": "#B04A00", "plain": "#5A6570"}

#: Width of a letter in pixels at 11 px. ``textLength`` fits the text to this estimate.
_LETTER, _MARGIN, _MOST = 6.6, 6, 60


def badge(label: str, value: str, kind: Kind) -> str:
    """Return the badge as SVG text. ``kind`` decides its colour."""
    left, right = label[:_MOST], value[:_MOST]
    widths = [round(_LETTER * len(text)) for text in (left, right)]
    first, second = (width + 2 * _MARGIN for width in widths)
    title = escape(f"{left}: {right}")
    texts = "".join(
        f'<text x="{x}" y="14" textLength="{width}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
        for x, width, text in ((_MARGIN, widths[0], left), (first + _MARGIN, widths[1], right))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="20" role="img" aria-label="{title}">'
        f'<title>{title}</title><clipPath id="r"><rect width="{first + second}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{first}" height="20" fill="#2F3740"/>'
        f'<rect x="{first}" width="{second}" height="20" fill="{_COLOURS[kind]}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>'
    )
