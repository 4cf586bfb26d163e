"""Write the pages of a snapshot: one overview per machine, the families, the alerts, the commits and the machines."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dash import html

from dashboard.address import CommitAddress, FamilyAddress, OverviewAddress, SeriesAddress, parse
from dashboard.pages import alert, alerts, commit, family, machines, overview
from dashboard.pages.family_trends import opened, printed, trends
from dashboard.pages.overview_answer import MOST_NEWS, news
from dashboard.pages.overview_choice import TIME, Choice, chosen, newest_first, opening_machine, shown_quantity
from dashboard.pages.overview_families import by_family
from dashboard.pages.overview_table import ordered
from dashboard.pages.parts import commit_line, commit_link, crumbs, mono
from dashboard.server.app import PLOTLY
from dashboard.snapshot.static_html import DRAW_SCRIPT, page
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.alert_row import Tracked, now_ms
from lockstep.alerts.database.listing import Choice as AlertChoice
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.pages_service import AlertService
from lockstep.compare.at_commit import compare_commit
from lockstep.history.model import Commit
from lockstep.history.snapshot import Results
from lockstep.notify.published_site import AnalysedProject
from lockstep.suite.thresholds import FILE

#: Maximum number of alerts with a page, and of commits with a page per machine.
MOST_ALERTS, MOST_COMMITS = 100, 50

_NAVIGATION = {
    **{"Overview": "/", "Alerts": "/alerts", "Commits": "/commits", "Machines": "/machines"},
    "asv": "../index.html",
}

_ASSETS = Path(__file__).parents[1] / "assets"


@dataclass(frozen=True)
class _Pages:
    """Builds the pages of a snapshot; ``now`` is the time in ms since 1970."""

    results: Results
    findings: Findings
    alerts: AlertStore
    now: int

    def choice(self, machine: str) -> Choice:
        """Return what a machine's overview compares: its times with those of seven days before its newest results."""
        quantity = shown_quantity(self.results, machine, TIME)
        return chosen(self.results, self.findings, machine, "all", quantity, "7d", None)

    def suites(self, machine: str) -> list[str]:
        """Return the suites that the machine's overview lists; each has a page."""
        families, _ = by_family(ordered(self.results, self.choice(machine)))
        return sorted(family.rows.key_at(0).suite for family in families)

    def commits(self, machine: str) -> tuple[Commit, ...]:
        """Return the newest commits of a machine, the newest first; each has a page."""
        return self.results.commits(machine)[: -MOST_COMMITS - 1 : -1]

    def overview(self, machine: str) -> list[Any]:
        machines = [html.A(name, href=OverviewAddress(name).link(), className="link mono") for name in self.machines]
        links = [part for other in machines for part in (" · ", other)][1:]
        muted, open_alerts = AlertService(self.alerts).quiet_on(machine), self.alerts.open_on(machine, MOST_NEWS)
        return [
            *overview.said(self.results, machine, "7d", 0, self.findings, muted, open_alerts),
            html.P(["Machines: ", *links], className="said"),
            *news(open_alerts, machine, self.now),
            overview.drawn(self.results, self.choice(machine)),
        ]

    @property
    def machines(self) -> list[str]:
        """The machines, the one measured last first."""
        return newest_first(self.results)

    def family(self, machine: str, suite: str) -> list[Any]:
        results, found = self.results, self.findings.of_machine(self.results, machine)
        address = opened(results, FamilyAddress(machine, suite), found)
        charts = trends(results, address, "light", found, self.findings.repo)
        return [
            crumbs(f"{suite} on {machine}"),
            html.P(printed(results, address), className="printed"),
            html.H2("Over the commits"),
            html.Div(charts, className="charts"),
            html.H2("The newest numbers"),
            *family.latest(results, address, "light"),
        ]

    def alert(self, tracked: Tracked) -> list[Any]:
        found = self.findings.of_machine(self.results, tracked.alert.machine)
        return alert.body(tracked, self.results, "light", found, source=False)

    def commit(self, machine: str, one: Commit) -> list[Any]:
        findings = self.findings.of_machine(self.results, machine)
        found = compare_commit(self.results, machine, one.hash, findings, self.findings.thresholds)
        title = html.H1([*commit_line(one), " on ", mono(machine)], className="answer")
        return [title, *commit.families(*found), *commit.listed(found[0])]

    def list_of_commits(self) -> list[Any]:
        parts: list[Any] = [html.H1("Commits")]
        for machine in self.machines:
            lines = [html.Li([commit_link(one, machine), *commit_line(one)[1:]]) for one in self.commits(machine)]
            parts += [html.H2(mono(machine)), html.Ul(lines, className="card commits")]
        return parts


def write_pages(project: AnalysedProject, name: str, folder: Path) -> int:
    """Write the pages of an asv project, which has this name, into a folder, and return their number.

    Raise ``StateError`` or ``StoreError`` if the alerts or the results cannot be used.
    """
    results, now = project.store.current(), now_ms()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_ASSETS / "lockstep.css", folder)
    shutil.copy(PLOTLY, folder / "plotly.min.js")
    (folder / "draw.js").write_text(DRAW_SCRIPT, encoding="utf-8")
    if not results.machines:
        return 0
    findings = Findings(project.store.cache, project.repo, project.packages, Path(FILE))
    made, opening = _made(_Pages(results, findings, project.alerts, now)), opening_machine(results)
    made["index.html"] = made.pop(_file("machine", opening))

    def file_of(address: str) -> str:
        name = _file_of(results, address, opening)
        return name if name in made or name == "../index.html" else ""

    navigation = [html.A(name, href=address) for name, address in _NAVIGATION.items()]
    written = f"{name}, written {datetime.fromtimestamp(now / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    for file, (title, build) in made.items():
        text = page(f"{title} · {name}", html.Main(build()), navigation, written, file_of)
        (folder / file).write_text(text, encoding="utf-8")
    return len(made)


def _made(pages: _Pages) -> dict[str, tuple[str, Callable[[], list[Any]]]]:
    """Return title and builder of each page, by the name of its file."""
    results, listed = pages.results, pages.alerts.page(AlertChoice(), "urgent", MOST_ALERTS)
    made: dict[str, tuple[str, Callable[[], list[Any]]]] = {}
    for machine in pages.machines:
        made[_file("machine", machine)] = machine, partial(pages.overview, machine)
        for suite in pages.suites(machine):
            made[_file("family", machine, suite)] = suite, partial(pages.family, machine, suite)
        for one in pages.commits(machine):
            made[_file("commit", one.hash, machine)] = one.short, partial(pages.commit, machine, one)
    for tracked in listed.alerts:
        made[_file("alert", str(tracked.id))] = f"alert {tracked.id}", partial(pages.alert, tracked)
    rows = alerts.listed(listed, "all", listed.total, "", pages.now)
    made["alerts.html"] = "alerts", lambda: [html.H1("Alerts"), *rows]
    made["commits.html"] = "commits", pages.list_of_commits
    made["machines.html"] = "machines", partial(machines.body, results, "light", pages.now)
    return made


def _file(*parts: str) -> str:
    """Return the name of a file. A name with characters that an address would have to escape ends with a digest."""
    plain = re.sub(r"[^\w.-]+", "-", "-".join(parts), flags=re.ASCII)
    digest = "" if plain == "-".join(parts) else f"-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"
    return f"{plain[:120]}{digest}.html"


def _file_of(results: Results, address: str, opening: str) -> str:
    """Return the file of an address of the dashboard, which may not have been written."""
    parts = urlsplit(address)
    if parts.path in ("/alerts", "/commits", "/machines"):
        return f"{parts.path[1:]}.html"
    if parts.path.startswith("/alert/"):
        return _file("alert", parts.path.removeprefix("/alert/"))
    match parse(parts.path, parts.query):
        case OverviewAddress(machine):
            return "index.html" if machine in ("", opening) else _file("machine", machine)
        case CommitAddress(commit, machine):
            machine = machine or next((name for name in results.machines if results.run_at(name, commit)), "")
            return _file("commit", commit, machine)
        # The page of a series is part of the page of its family.
        case SeriesAddress(machine, suite) | FamilyAddress(machine, suite):
            return _file("family", machine, suite)
    return address
