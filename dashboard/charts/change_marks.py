"""Draw the changes of several series as marks on their common chart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape

from dashboard.charts.cause_colours import change_colour
from dashboard.charts.theme import Scheme
from dashboard.charts.trend import Mark, commit_line, wrapped
from lockstep.alerts.model import FoundChange
from lockstep.alerts.text import amount
from lockstep.compare.verdict import sign
from lockstep.history.model import Commit


def marks(
    changes: Sequence[tuple[str, FoundChange]],
    commits: Sequence[Commit],
    positions: Mapping[str, int],
    scheme: Scheme,
    sized: bool = False,
) -> list[Mark]:
    """Return one mark per commit and direction for the changes, which are pairs of variant and finding.

    The colour is that of the first change's cause.

    Args:
        positions: the index in ``commits`` of each hash.
        sized: whether the sign of a mark says how large the first change is.
    """
    gathered: dict[tuple[int, str], list[tuple[str, FoundChange]]] = defaultdict(list)
    for variant, finding in changes:
        if finding.commit in positions:
            gathered[positions[finding.commit], sign(finding.sense)].append((variant, finding))
    chart_marks = []
    for (at, glyph), labelled in sorted(gathered.items()):
        lines = [
            f"{glyph} <b>{escape(variant)}</b> {amount(finding)} · {finding.cause.kind}"
            for variant, finding in labelled
        ]
        first = labelled[0][1]
        lines += [commit_line(commits[at]) if first.exact else f"in {first.range_text}", wrapped(first.cause.sentence)]
        sign_text = f"{glyph} {amount(first)}" if sized else glyph
        chart_marks.append(Mark(at, sign_text, change_colour(first, scheme), "<br>".join(lines)))
    return chart_marks
