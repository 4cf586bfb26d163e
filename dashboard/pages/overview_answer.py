"""The overview's first line, which answers whether anything became slower, and the open alerts."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
from dash import dcc, html
from numpy.typing import NDArray

from dashboard.address import OverviewAddress, SeriesAddress, link
from dashboard.pages.alerts import alert_table
from dashboard.pages.overview_choice import TIME, label, quantity_of
from dashboard.pages.parts import count
from lockstep.alerts.analysis.latest_findings import MachineFindings
from lockstep.alerts.database.listing import OpenAlerts
from lockstep.alerts.text import change, headline
from lockstep.compare.number_format import significant, whole
from lockstep.compare.series_status import Statuses, start_of
from lockstep.history.model import Commit
from lockstep.history.snapshot import Results

#: Maximum number of alerts listed.
MOST_NEWS = 3

NO_ALERTS = OpenAlerts((), {}, {})

#: Quantities of which a larger number is a slowdown.
_TIMES = (TIME, "host", "behind", "behind_speedup", "compile")


def since_when(results: Results, machine: str, since: str, visit: int, compared: Commit) -> str:
    """Return the words for the compared commit that follow "since": a date, or a commit with its date.

    ``since``, ``visit``: see ``lockstep.compare.series_status.reference``.
    """
    commits = results.commits(machine)
    begun = start_of(since)
    moment = datetime.fromtimestamp((visit if since == "visit" and visit else begun or compared.date) / 1000, UTC)
    newest = datetime.fromtimestamp(commits[-1].date / 1000, UTC)
    written = f"{moment.day} {moment:%B}" + ("" if moment.year == newest.year else f" {moment.year}")
    if since == "visit" and visit:
        # The time is the server's. A reader in another time zone may have another date.
        return f"your last visit on {written}, {moment:%H:%M} UTC"
    if since == "all" or compared.hash == commits[0].hash:
        return f"{written}, the first commit"
    return written if since in ("visit", "7d") or begun else f"{written}, commit {compared.short}"


def answer(
    machine: str,
    statuses: Statuses,
    findings: MachineFindings | None,
    when: str,
    newer: bool,
    muted: frozenset[str] = frozenset(),
    alerts: OpenAlerts = NO_ALERTS,
) -> list[Any]:
    """Return the line that says whether anything became slower, in words.

    Args:
        statuses: the statuses of all series of the machine, in all cache states and quantities.
        findings: ``None`` while the detector still runs.
        when: the words for the compared commit, see ``since_when``.
        newer: whether the machine measured anything after the compared commit.
        muted: the keys of the changes of muted and doubted alerts, which are only counted.
        alerts: the machine's open alerts. With any, only new slowdowns can be missing.
    """
    if not newer:
        return [f"Nothing was measured on {machine} since {when}."]
    if findings is None:
        return [f"Looking for changes on {machine} since {when} …"]
    # Exact quantities explain a time, and do not count here.
    timed = statuses.select(np.flatnonzero(~statuses.rows.exact))
    if not len(timed):
        return [f"{machine} measures no time. Since {when}: ", *_worse(machine, statuses), "."]
    silent = silenced(timed, muted)
    worse = timed.select(np.flatnonzero(timed.are("slower") & ~silent))
    kinds = [quantity_of(worse.rows.benchmark(place)) for place in range(len(worse))]
    is_time = np.array([kind in _TIMES for kind in kinds], dtype=bool)
    slow, other = worse.select(np.flatnonzero(is_time)), worse.select(np.flatnonzero(~is_time))
    failed, changed = int(timed.news.sum()), timed.select(np.flatnonzero(timed.are("changed")))
    known = f"{count(alerts.total, 'alert')} {'is' if alerts.total == 1 else 'are'} open" if alerts.total else ""
    clauses: list[list[Any]] = []
    if len(slow):
        numbers = Counter(kind for kind in kinds if kind in _TIMES).most_common()
        text = " and ".join(f"{count(number, 'slowdown')} of {label(kind)}" for kind, number in numbers)
        clauses.append([text, *_largest(slow, alerts)])
    if len(other):
        clauses.append([f"{count(len(other), 'other number')} became worse", *_largest(other, alerts)])
    if failed:
        clauses.append([f"{count(failed, 'case')} now fail{'s' if failed == 1 else ''}"])
    if len(changed):
        text = f"{count(len(changed), 'number')} changed whose better direction thresholds.toml does not state"
        clauses.append([text, *_largest(changed, alerts)])
    if silent.any():
        clauses.append([f"{count(int(silent.sum()), 'slowdown')} muted or probably not the code's"])
    if clauses:
        # A number that changed may be a slowdown, if its direction is unknown.
        if not len(slow) and not len(changed):
            clauses.insert(0, [("no new slowdown" if known else "nothing got slower") + _detectable(timed)])
        if known and not len(slow):
            clauses.append([known])
        return [f"On {machine} since {when}: ", *[part for one in clauses for part in ("; ", *one)][1:], "."]
    compared = ~np.isnan(timed.worse)
    if not compared.any():
        return [f"Nothing can be compared on {machine} since {when}: no series was measured at both commits."]
    if np.isnan(timed.noise[compared]).all():
        return [f"No slowdown is confirmed on {machine} since {when}: too few commits to know the noise."]
    if known:
        return [f"No new slowdown on {machine} since {when}{_detectable(timed)}; {known}."]
    return [f"Nothing got slower on {machine} since {when}{_detectable(timed)}."]


def _detectable(timed: Statuses) -> str:
    """Return the words for the smallest change that one run of the median case can show; "" if no case says so."""
    smallest = timed.rows.column("mde")[np.isfinite(timed.worse) & np.isfinite(timed.rows.column("mde"))]
    if not len(smallest):
        return ""
    return f" (one run shows changes from {significant(100 * np.median(smallest), 2)} % on in half of the cases)"


def elsewhere(alerts: OpenAlerts) -> list[Any]:
    """Return the line that names the gravest open alert of the other machines; [] if nothing is open there."""
    if alerts.gravest is None:
        return []
    number = sum(alerts.elsewhere.values())
    words = (
        f"Elsewhere {count(number, 'alert')} {'is' if number == 1 else 'are'} open{', the gravest' * (number > 1)}: "
    )
    href = link(f"/alert/{alerts.gravest.id}")
    return [
        html.P([words, dcc.Link(headline(alerts.gravest.alert), href=href, className="link"), "."], className="said")
    ]


def silenced(statuses: Statuses, muted: frozenset[str]) -> NDArray[np.bool_]:
    """Return a mask of the slower series all of whose changes for the worse are in ``muted``."""
    slower = statuses.are("slower")
    for place in np.flatnonzero(slower).tolist():
        worse = [change.key for change in statuses.changes.get(place, ()) if change.sense == "worse"]
        slower[place] = bool(worse) and muted.issuperset(worse)
    return slower


def _worse(machine: str, statuses: Statuses) -> list[Any]:
    """Return the number of compiled quantities that became worse, with a link to each kind of them."""
    places = np.flatnonzero(statuses.are("slower")).tolist()
    kinds = Counter(quantity_of(statuses.rows.benchmark(place)) for place in places)
    parts: list[Any] = []
    for kind, number in kinds.most_common():
        href = OverviewAddress(machine, quantity=kind).link()
        parts += [
            ", " if parts else ": ",
            html.A(f"{label(kind)} of {count(number, 'case')}", href=href, className="link"),
        ]
    return [f"{whole(len(places)) if places else 'no'} compiled quantities became worse", *parts]


def _largest(statuses: Statuses, alerts: OpenAlerts) -> list[Any]:
    """Return the words that name the largest of these changes, with a link to its alert, or else to its series."""
    largest = int(np.argmax(np.nan_to_num(np.abs(statuses.worse))))
    key, moved = statuses.rows.key_at(largest), float(statuses.moved[largest])
    name = f"{key.suite} {key.variant}".rstrip() + ("" if math.isnan(moved) else f" {change(moved)}")
    parts: list[Any] = [", the largest " if len(statuses) > 1 else ": "]
    changes = {change.key for change in statuses.changes.get(largest, ())}
    told = (one.id for one in alerts.first if changes & {member.key for member in one.alert.members})
    href = next((link(f"/alert/{number}") for number in told), SeriesAddress(*key).link())
    parts.append(html.A(name, href=href, className="link"))
    return [*parts, " at ", html.Span(key.case, className="mono"), f" {key.l2}".rstrip()] if key.case else parts


def news(open_alerts: OpenAlerts, machine: str, now: int) -> list[Any]:
    """Return a table of the machine's most urgent open alerts, with links to all of them and to muted ones.

    ``now``: the time in ms since 1970, for the ages.
    """
    more: list[Any] = []
    if open_alerts.total > len(open_alerts.first):
        text = f"all {whole(open_alerts.total)} open alerts"
        more += [" · ", dcc.Link(text, href=link("/alerts", state="open", machine=machine), className="link")]
    if open_alerts.muted:
        text = f"{whole(open_alerts.muted)} muted"
        more += [" · ", dcc.Link(text, href=link("/alerts", state="muted", machine=machine), className="link")]
    listed = [alert_table(open_alerts.first, now, "Open alerts")] if open_alerts.first else []
    return [*listed, *([html.P(more[1:], className="said")] if more else [])]
