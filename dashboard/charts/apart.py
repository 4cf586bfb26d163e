"""Draw the points at commits off the line: hollow grey markers, each tied to the point where its commit forked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from dashboard.charts.theme import Scheme, neutral
from lockstep.compare.number_format import significant
from lockstep.compare.shown_quantities import Quantity

#: Distance of a marker from its fork point, in commits.
_BESIDE = 0.3


class Apart(NamedTuple):
    """The number of a series at a commit off the line.

    Attributes:
        place: the index of the newest measured commit of the line before the fork.
        hover: the words for the commit in the hover, escaped for HTML.
    """

    place: int
    value: float
    hover: str


def apart_marks(
    apart: Sequence[Apart], numbers: Mapping[int, float], quantity: Quantity, scheme: Scheme
) -> list[dict[str, Any]]:
    """Return the traces of one series' points off the line; [] if there are none.

    ``numbers`` are the series' numbers on the line, by the index of their commit.
    """
    if not apart:
        return []
    # A tie begins at the last number of the line up to the fork.
    ties: list[tuple[float | None, float | None]] = []
    for place, value, _ in apart:
        start = max((at for at in numbers if at <= place), default=None)
        if start is not None:
            ties += [(start, numbers[start]), (place + _BESIDE, value), (None, None)]
    colour = neutral(scheme)
    texts = [
        f"<b>{significant(value, 5)} {escape(quantity.unit)}</b><br>apart from the line<br>{hover}"
        for _, value, hover in apart
    ]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"color": colour, "width": 1, "dash": "dot"},
            "hoverinfo": "skip",
            "x": [x for x, _ in ties],
            "y": [y for _, y in ties],
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "apart",
            "marker": {"symbol": "circle-open", "size": 8, "color": colour, "line": {"width": 1.5}},
            "hovertemplate": "%{text}<extra></extra>",
            "text": texts,
            "x": [place + _BESIDE for place, _, _ in apart],
            "y": [value for _, value, _ in apart],
        },
    ]
