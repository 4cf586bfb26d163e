"""The trends of a family: one for all of its shapes, one for each case and quantity, and the cases that open first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from dash import html

from dashboard.address import FamilyAddress
from dashboard.charts.axes import sourced, visible_range
from dashboard.charts.lines_and_bands import MARKED, Figure, finished, stroke, trend
from dashboard.charts.marks import Mark, commit_line, marks, release_marks
from dashboard.charts.theme import Scheme, Style, baselines, suite_styles, swatch
from dashboard.pages.parts import chart_card, graph, mono
from lockstep.alerts.analysis.latest_findings import MachineFindings
from lockstep.compare.number_format import significant
from lockstep.compare.read_rows import rows_over
from lockstep.compare.row import described
from lockstep.compare.series_of_suite import keys_of
from lockstep.compare.series_status import checks_of, reported_changes
from lockstep.compare.shown_quantities import QUANTITIES, quantities_of
from lockstep.history.display_names import natural
from lockstep.history.model import STATES, Commit, SeriesKey, Trend
from lockstep.history.row_keys import key_of
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.record.series_name import BEST


def mean_speedup(
    trends: Sequence[Trend],
    commits: Sequence[Commit],
    style: Style,
    scheme: Scheme,
    marks: Sequence[Mark],
    zoom: tuple[float, ...],
) -> Figure | None:
    """Return a chart of the geometric mean of speedups; ``None`` with fewer than two commits.

    The last point is the mean of the newest speedups. Earlier points follow by the changes, see ``chained``.

    ``trends``: the speedup of the variant ``best`` in each shape.
    """
    changes = chained(trends)
    if len(changes) < 2:
        return None
    newest = [trend.value[np.isfinite(trend.value) & (trend.value > 0)][-1:] for trend in trends]
    level = float(np.exp(np.mean(np.log(np.concatenate(newest))))) / list(changes.values())[-1]
    x, y = list(changes), [level * value for value in changes.values()]
    texts = [
        f"<b>{significant(value, 4)} ×</b><br>{len(trends)} shapes<br>{commit_line(commits[at])}"
        for at, value in zip(x, y, strict=True)
    ]
    line = stroke(style, scheme) | {"name": BEST, "x": x, "y": y, "text": texts}
    shown = [value for at, value in zip(x, y, strict=True) if not zoom or zoom[0] <= at <= zoom[1]]
    ends = (min(shown), max(shown)) if shown else None
    return finished([line], commits, QUANTITIES["speedup"], ends, (), scheme, marks, zoom)


def chained(trends: Iterable[Trend]) -> dict[int, float]:
    """Return one trend for several series by commit: the geometric mean of the series' changes, chained.

    Only series with points at both commits count, so a series that begins or ends does not move the trend. The first
    number is 1.
    """
    changes: dict[int, list[float]] = defaultdict(list)
    first: list[int] = []
    for one in trends:
        known = np.flatnonzero((one.version == one.version[-1]) & (one.value > 0) & np.isfinite(one.value))
        if len(known):
            first.append(int(one.commit[known[0]]))
        logs = np.diff(np.log(one.value[known]))
        for commit, log in zip(one.commit[known[1:]].tolist(), logs.tolist(), strict=True):
            changes[commit].append(log)
    if not changes:
        return {}
    commits = sorted({min(first), *changes})
    steps = [float(np.mean(changes[commit])) if commit in changes else 0.0 for commit in commits]
    return dict(zip(commits, np.exp(np.cumsum(steps)).tolist(), strict=True))


#: Number of newest commits that count as history. Older commits say little about the current state.
RECENT = 100

#: Number of cases that a page selects if its address selects none.
FIRST_CASES = 2


@remembered
def informative_cases(
    results: Results, machine: str, suite: str, findings: MachineFindings | None
) -> tuple[tuple[str, str], ...]:
    """Return pairs of case and cache state of a suite, the most informative first, without cases that have no numbers.

    Cases that became slower come first, the latest slowdown first. Of the others, the case whose best-measured variant
    has more numbers at recent commits comes first, and of cases with equally many numbers the one that takes longest.
    """
    slowed: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    measured: dict[tuple[str, str], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    keys = keys_of(results, suite, machine)
    for key in keys:
        worse = [change.last for change in reported_changes(results, key, findings) if change.sense == "worse"]
        slowed[key.case, key.l2] = max(slowed[key.case, key.l2], *worse, -1)
    for one in results.trends(results.keys(machine).series_of(keys), last=RECENT):
        if not results.benchmarks[one.series.benchmark].is_ratio:
            *_, case, l2 = key_of(one.series, one.benchmark)
            measured[case, l2] = max(measured[case, l2], _history(one))
    known = [place for place, (length, _) in measured.items() if length]
    known.sort(key=lambda place: (-slowed[place], -measured[place][0], -measured[place][1], place))
    return tuple(known)


def opened(results: Results, address: FamilyAddress, findings: MachineFindings | None) -> FamilyAddress:
    """Return the address with a default for every choice that it leaves out, or that does not exist.

    The defaults are the machine's most informative cases and their cache state, latency and speedup, and the variants
    that do not take long.
    """
    machine, suite = address.machine, address.suite
    keys = keys_of(results, suite, machine)
    cases, caches = sorted({key.case for key in keys}, key=natural), sorted({key.l2 for key in keys})
    known = informative_cases(results, machine, suite, findings)
    l2 = address.l2
    if l2 not in caches:
        states = [state for case, state in known if case in address.cases] or [state for _, state in known]
        l2 = (states or caches)[0]
    shown = [case for case in address.cases if case in cases]
    if not shown:
        first = [case for case, state in known if case and state == l2] or [case for case in cases if case]
        shown = first[:FIRST_CASES]
    offered = quantities_of(results, suite)
    quantities = tuple(name for name in address.quantities if name in offered)
    variants = [name for name in address.variants if name in suite_styles(results, suite)]
    return replace(
        address,
        l2=l2,
        cases=tuple(shown),
        quantities=quantities or (("latency", "speedup") if "speedup" in offered else offered[:1]),
        variants=tuple(variants or near_variants(results, machine, suite, l2, shown)),
    )


#: A variant is far from the fastest if it takes so many times as long.
_FAR = 3.0


def near_variants(results: Results, machine: str, suite: str, l2: str, cases: Sequence[str]) -> list[str]:
    """Return the variants that a family page selects, those that take long in each of these cases left out.

    One of them would make flat lines of the others. ``best`` and the baselines stay, and variants without a time.
    """
    keys = [key for key in keys_of(results, suite, machine) if key.l2 == l2 and (key.case in cases or not key.case)]
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for one in results.trends(results.keys(machine).series_of(keys), last=RECENT):
        known, newest = _history(one)
        if known and one.benchmark.unit == "seconds":
            _, _, variant, case, _ = key_of(one.series, one.benchmark)
            times[case][variant] = newest
    near = {name for known in times.values() for name, time in known.items() if time <= _FAR * min(known.values())}
    far = {name for known in times.values() for name in known} - near - {BEST} - baselines(results, suite)
    return [name for name in suite_styles(results, suite) if name not in far]


def _history(trend: Trend) -> tuple[int, float]:
    """Return the count of the newest benchmark version's numbers, and the last of them."""
    values = trend.value[(trend.version == trend.version[-1]) & np.isfinite(trend.value) & (trend.value > 0)]
    return len(values), float(values[-1]) if len(values) else 0.0


#: Maximum number of cases drawn at once; a chart takes the browser about 10 ms.
MOST_CASES = 20

#: Width in pixels of a long trend: with another trend in its row, and alone.
_COLUMNS, _COLUMNS_ALONE = 400, 800

#: Number of points on a page above which its trends are thinned out.
LONG = 3_000


#: A chart (``None`` without a number), its caption, and what screen readers say.
_Chart = tuple[Figure | None, list[Any], str]


def trends(
    results: Results,
    address: FamilyAddress,
    scheme: Scheme,
    machine_findings: MachineFindings | None = None,
    repo: Path | None = None,
) -> list[Any]:
    """Return a chart of all shapes, and one for each selected case and quantity, with changes and releases.

    ``repo``: the git repository whose tags are the releases.
    """
    keys, cases, style_of = chosen(results, address)
    commits = results.commits(address.machine)
    if not style_of or not address.quantities:
        return [html.P("Choose a variant and a quantity.", className="dim")]
    shown = [key for key in keys if key.case in cases and key.variant in style_of]
    long = len(commits) > MARKED or len(shown) * len(commits) > LONG
    rows = rows_over(results, address.machine, shown, address.quantities if long else None)
    place = {commit.hash: at for at, commit in enumerate(commits)}
    zoom = visible_range(address.zoom, address.axis, commits)
    # All charts begin at one commit, the first at which a shown series was measured.
    measured_at = rows.columns["commit"][rows.columns["state"] != STATES.index("na")]
    begin = int(measured_at.min(initial=len(commits) - 1))
    releases = release_marks(results, address.machine, repo, scheme) if repo else ()
    columns = _COLUMNS_ALONE if len(cases) * len(address.quantities) == 1 else _COLUMNS
    drawn: list[_Chart] = []
    best = [key for key in keys if key.variant == BEST and BEST in style_of]
    series = [
        one for one in results.keys(address.machine).series_of(best) if results.benchmarks[one.benchmark].is_ratio
    ]
    if len(series) > 1:
        changes = [(key.case, change) for key in best for change in reported_changes(results, key, machine_findings)]
        marked = [*marks(changes, commits, place, scheme), *releases]
        figure = mean_speedup(list(results.trends(series)), commits, style_of[BEST], scheme, marked, zoom)
        heading = [mono(f"{BEST}, {len(series)} shapes"), html.Span("Speedup ×, geometric mean")]
        drawn.append((figure, heading, f"Speedup of {address.suite} over the commits"))
    for case in cases:
        own_keys = [key for key in shown if key.case == case]
        case_rows = rows.of(own_keys)
        found = [(key.variant, one) for key in own_keys for one in reported_changes(results, key, machine_findings)]
        checks = [(key.variant, one) for key in own_keys for one in checks_of(key, machine_findings)]
        for name in address.quantities:
            measured = case_rows.select(np.flatnonzero(~np.isnan(case_rows.measured(name))))
            quantity = described(measured, name)
            heading = [mono(case), f"{quantity.label} {quantity.unit}".replace("% of floor %", "% of floor")]
            figure = None
            if len(measured):
                figure = trend(
                    case_rows,
                    commits,
                    quantity,
                    style_of,
                    scheme,
                    [*marks(checks if name == "error" else found, commits, place, scheme), *releases],
                    zoom,
                    columns if long else 0,
                    begin,
                )
            drawn.append((figure, heading, f"{quantity.label} of {case} over the commits"))
    cards = []
    for at, (figure, heading, label) in enumerate(drawn):
        chart: Any = html.P("No number at any commit.", className="dim empty")
        if figure is not None:
            figure = sourced(figure, address.machine, commits, address.axis)
            chart = graph(figure, label, id={"type": "family-chart", "at": at})
        cards.append(chart_card(chart, *heading))
    return cards


def printed(results: Results, address: FamilyAddress) -> list[Any]:
    """Return the line that names suite, machine and variants on paper and in a snapshot, which have no controls."""
    *_, style_of = chosen(results, address)
    named = [part for name, style in style_of.items() for part in (" ", html.Span([swatch(style), name]))]
    return [mono(f"{address.suite} on {address.machine}"), *named]


def chosen(results: Results, address: FamilyAddress) -> tuple[list[SeriesKey], list[str], dict[str, Style]]:
    """Return what the address selects: the keys of its machine, suite and cache state, its cases, and its variants'
    styles. A benchmark without parameters has one case "", which needs no selection.
    """
    keys = [key for key in keys_of(results, address.suite, address.machine) if key.l2 == address.l2]
    known = {key.case for key in keys}
    cases = [""] if known == {""} else [case for case in address.cases[:MOST_CASES] if case in known]
    styled = suite_styles(results, address.suite).items()
    return keys, cases, {variant: style for variant, style in styled if variant in address.variants}
