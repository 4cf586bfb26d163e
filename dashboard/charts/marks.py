"""Mark changes of series, releases and changed conditions on a chart, and write the texts of hovers."""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from itertools import pairwise
from pathlib import Path

from dashboard.charts.theme import NEUTRAL, Scheme
from lockstep.alerts.cause.found_change import Kind
from lockstep.alerts.model import FoundChange
from lockstep.alerts.text import amount
from lockstep.compare.verdict import sign
from lockstep.history.model import Commit, Point, Run
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.processes.git import Git


@dataclass(frozen=True)
class Mark:
    """The mark of a change on a trend: a vertical line with a sign above it.

    Attributes:
        place: index of the first commit after the change; the line is drawn before it.
        sign: ▼ for slower or ▲ for faster, and perhaps by how much; the name of a release or a version.
        colour: the colour of the line and the sign.
        hover: the text that the sign shows under the pointer, escaped for HTML.
        beside: whether something besides the code changed; its sign stands below those of the changes.
    """

    place: int
    sign: str
    colour: str
    hover: str
    beside: bool = False


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


def condition_marks(points: Iterable[Point], commits: Sequence[Commit], scheme: Scheme) -> list[Mark]:
    """Return a mark where the toolchain or the GPU changed. Its sign names the first new part."""
    found = []
    for before, after in pairwise(points):
        if moved := changed_conditions(before, after):
            name = re.sub(r" \S+ → ", " ", moved[0]) + (" …" if len(moved) > 1 else "")
            hover = "<br>".join([*map(escape, moved), commit_line(commits[after.commit])])
            found.append(Mark(after.commit, escape(name), NEUTRAL[scheme], hover, beside=True))
    return found


def changed_conditions(before: Point, after: Point) -> list[str]:
    """Return "another GPU" if two points were measured on different GPUs, and ``triton 3.6.0 → 3.7.1`` for each
    toolchain version that differs.
    """
    moved = before.gpu != after.gpu and before.gpu and after.gpu
    return [f"another GPU, {after.gpu}"] * bool(moved) + changed_versions(before.run, after.run)


def changed_versions(before: Run, after: Run) -> list[str]:
    """Return ``triton 3.6.0 → 3.7.1`` for each toolchain version that differs."""
    old, new = before.toolchain, after.toolchain
    return [f"{name} {old.get(name, '–')} → {new.get(name, '–')}" for name in new if new.get(name) != old.get(name)]


def wrapped(text: str) -> str:
    """Return text for a hover: cut at 300 characters, in lines of 60 characters, escaped for HTML."""
    return "<br>".join(map(escape, textwrap.wrap(text[:300], 60)))


@lru_cache(maxsize=10_000)
def commit_line(commit: Commit) -> str:
    """Return hash, date and subject of a commit for a hover."""
    day = datetime.fromtimestamp(commit.date / 1000, UTC).strftime("%Y-%m-%d")
    return f"{commit.short} {day}<br>{wrapped(commit.subject)}" if commit.subject else f"{commit.short} {day}"
