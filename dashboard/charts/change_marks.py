"""Draw changes of series, coloured by their cause, and releases as marks on a chart."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from dashboard.charts.theme import NEUTRAL, Scheme
from dashboard.charts.trend import Mark, commit_line, wrapped
from lockstep.alerts.cause.found_change import Kind
from lockstep.alerts.model import FoundChange
from lockstep.alerts.text import amount
from lockstep.compare.verdict import sign
from lockstep.history.model import Commit
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.processes.git import Git

#: Colours of each cause in the light and the dark scheme. Causes that a developer must act on are orange.
CAUSES: dict[Kind, tuple[str, str]] = {
    "own commit": ("#B04A00", "#FF9A5C"),
    "unknown range": ("#B04A00", "#FF9A5C"),
    "unknown cause": ("#B0508A", "#E58FC0"),
    "unexplained": ("#B0508A", "#E58FC0"),
    "toolchain": ("#0B62A8", "#6BB8F0"),
    "machine": ("#5B4FC4", "#A79CFF"),
    "protocol": ("#5F6B76", "#9AA5B1"),
    "noise": ("#5F6B76", "#9AA5B1"),
}


#: Colours of every gain. Orange means slower on every page.
_BETTER = ("#0B62A8", "#6BB8F0")


def change_colours(change: FoundChange) -> tuple[str, str]:
    """Return the colours of a change in the light and the dark scheme."""
    return _BETTER if change.sense == "better" else CAUSES[change.cause.kind]


#: Git's fields for a tag: its name, and the date of its commit; the second is for annotated tags.
_TAG = "--format=%(refname:short)%09%(committerdate:unix)%(*committerdate:unix)"

#: Seconds that git may take to list the tags.
_TIMEOUT_S = 5.0


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
        chart_marks.append(Mark(at, sign_text, change_colours(first)[scheme == "dark"], "<br>".join(lines)))
    return chart_marks


@remembered
def release_marks(results: Results, machine: str, repo: Path, scheme: Scheme) -> tuple[Mark, ...]:
    """Return a mark for the git tags between two measured commits of a machine, with the name of the newest tag."""
    lines = Git(repo, timeout_s=_TIMEOUT_S, fetch=False).try_lines("for-each-ref", _TAG, "refs/tags") or ()
    tags = sorted((int(date), name) for name, _, date in (line.partition("\t") for line in lines) if date)
    dates = [commit.date for commit in results.commits(machine)]
    gathered: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for date, name in tags:
        gathered[bisect_left(dates, 1000 * date)].append((date, name))
    return tuple(
        Mark(
            place,
            escape(named[-1][1]),
            NEUTRAL[scheme],
            "<br>".join(f"{escape(name)} {datetime.fromtimestamp(date, UTC):%Y-%m-%d}" for date, name in named),
            beside=True,
        )
        for place, named in gathered.items()
        if 0 < place < len(dates)
    )
