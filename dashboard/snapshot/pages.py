"""Write the pages of a snapshot: one overview per machine, the families, the alerts, the commits and the machines."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dash import html

from dashboard.address import CommitAddress, FamilyAddress, OverviewAddress, SeriesAddress, parse
from dashboard.pages import alert, alerts, commit, family, machines, overview
from dashboard.pages.family_trends import opened, printed, trends
from dashboard.pages.overview_answer import MOST_NEWS, news
from dashboard.pages.overview_choice import (
    TIME,
    Choice,
    chosen,
    newest_first,
    opening_machine,
    shown_quantity,
)
from dashboard.pages.overview_families import MOST_SUITES, by_family
from dashboard.pages.overview_table import ordered
from dashboard.pages.parts import commit_line, commit_link, crumbs, mono
from dashboard.server.app import PLOTLY
from dashboard.snapshot.static_html import DRAW_SCRIPT, page
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.alert_row import Tracked, now_ms
from lockstep.alerts.database.listing import Choice as AlertChoice
from lockstep.alerts.database.listing import OpenAlerts
from lockstep.alerts.database.listing import Page as AlertPage
from lockstep.alerts.pages_service import AlertService
from lockstep.compare.at_commit import compare_commit
from lockstep.history.model import Commit
from lockstep.history.snapshot import Results
from lockstep.notify.published_site import AnalysedProject
from lockstep.suite.thresholds import FILE, Thresholds

#: Maximum number of alerts with a page, and of commits with a page per machine.
MOST_ALERTS, MOST_COMMITS = 100, 50

_NAVIGATION = {
    **{"Overview": "/", "Alerts": "/alerts", "Commits": "/commits", "Machines": "/machines"},
    "asv": "../index.html",
}

_ASSETS = Path(__file__).parents[1] / "assets"


@dataclass(frozen=True)
class Snapshot:
    """What the pages show, and the files that are written.

    Attributes:
        alerts: the most urgent alerts.
        open_alerts: the open alerts by machine, for the overviews.
        muted: the keys of the changes of muted alerts, by machine.
        now: the time in ms since 1970.
    """

    results: Results
    findings: Findings
    thresholds: Thresholds
    alerts: AlertPage
    open_alerts: Mapping[str, OpenAlerts]
    muted: Mapping[str, frozenset[str]]
    now: int

    def suites(self, machine: str) -> list[str]:
        """Return the suites that the machine's overview lists; each has a page."""
        families = by_family(ordered(self.results, self._choice(machine)))
        return sorted(family.rows.key_at(0).suite for family in families[:MOST_SUITES])

    def _choice(self, machine: str) -> Choice:
        """Return what a machine's overview compares: its times with those of seven days before its newest results."""
        quantity = shown_quantity(self.results, machine, TIME)
        return chosen(self.results, self.findings, machine, "all", quantity, "7d", None)

    def overview(self, machine: str) -> Any:
        """Return the overview of a machine."""
        others = [html.A(name, href=OverviewAddress(name).link(), className="link mono") for name in self.machines]
        links = [part for other in others for part in (" · ", other)][1:]
        return html.Main(
            [
                *overview.said(
                    self.results, machine, "7d", 0, self.findings, self.muted[machine], self.open_alerts[machine]
                ),
                html.P(["Machines: ", *links], className="said"),
                *news(self.open_alerts[machine], machine, self.now),
                overview.drawn(self.results, self._choice(machine)),
            ]
        )

    @property
    def machines(self) -> list[str]:
        """The machines, the one measured last first."""
        return newest_first(self.results)

    def family(self, machine: str, suite: str) -> Any:
        """Return the page of a family with its most informative cases."""
        results = self.results
        found = self.findings.of_machine(results, machine)
        address = opened(results, FamilyAddress(machine, suite), found)
        charts = trends(results, address, "light", found, self.findings.repo)
        return html.Main(
            [
                crumbs(f"{suite} on {machine}"),
                html.P(printed(results, address), className="printed"),
                html.H2("Over the commits"),
                html.Div(charts, className="charts"),
                html.H2("The newest numbers"),
                *family.latest(results, address, "light"),
            ]
        )

    def alert(self, tracked: Tracked) -> Any:
        """Return the page of an alert."""
        found = self.findings.of_machine(self.results, tracked.alert.machine)
        return html.Main(alert.body(tracked, self.results, "light", found, source=False))

    def list_of_alerts(self) -> Any:
        """Return the page that lists the alerts."""
        rows = alerts.listed(self.alerts, "all", self.alerts.total, "", self.now)
        return html.Main([html.H1("Alerts"), *rows])

    def commit(self, machine: str, one: Commit) -> Any:
        """Return the page of a commit: what changed on a machine against the commit before."""
        found = compare_commit(
            self.results, machine, one.hash, self.findings.of_machine(self.results, machine), self.thresholds
        )
        return html.Main(
            [
                html.H1([*commit_line(one), " on ", mono(machine)], className="answer"),
                *commit.families(found),
                *commit.listed(found),
            ]
        )

    def list_of_commits(self) -> Any:
        """Return the page that lists the commits of each machine, the newest first."""
        parts: list[Any] = [html.H1("Commits")]
        for machine in self.machines:
            lines = [html.Li([commit_link(one, machine), *commit_line(one)[1:]]) for one in self.commits(machine)]
            parts += [html.H2(mono(machine)), html.Ul(lines, className="card commits")]
        return html.Main(parts)

    def commits(self, machine: str) -> tuple[Commit, ...]:
        """Return the newest commits of a machine, the newest first."""
        return self.results.commits(machine)[: -MOST_COMMITS - 1 : -1]


def write_pages(project: AnalysedProject, name: str, folder: Path) -> int:
    """Write the pages of an asv project, which has this name, into a folder, and return their number.

    Raises:
        StateError, StoreError: the alerts or the results cannot be used.
    """
    results = project.store.current()
    snapshot = Snapshot(
        results,
        Findings(project.store.cache, project.repo, project.packages, Path(FILE)),
        project.thresholds,
        project.alerts.page(AlertChoice(), "urgent", MOST_ALERTS),
        {machine: project.alerts.open_on(machine, MOST_NEWS) for machine in results.machines},
        {machine: AlertService(project.alerts).muted_on(machine) for machine in results.machines},
        now_ms(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_ASSETS / "lockstep.css", folder)
    shutil.copy(PLOTLY, folder / "plotly.min.js")
    (folder / "draw.js").write_text(DRAW_SCRIPT, encoding="utf-8")
    return write(snapshot, folder, name) if results.machines else 0


def write(snapshot: Snapshot, folder: Path, project: str) -> int:
    """Write the pages of a snapshot into a folder, and return their number."""
    results = snapshot.results
    opening = opening_machine(results)
    made: dict[str, tuple[str, Any]] = {}
    for machine in snapshot.machines:
        name = "index.html" if machine == opening else _file("machine", machine)
        made[name] = (machine, lambda machine=machine: snapshot.overview(machine))
        for suite in snapshot.suites(machine):
            made[_file("family", machine, suite)] = (suite, lambda m=machine, s=suite: snapshot.family(m, s))
        for one in snapshot.commits(machine):
            made[_file("commit", one.hash, machine)] = (one.short, lambda m=machine, c=one: snapshot.commit(m, c))
    for tracked in snapshot.alerts.alerts:
        made[_file("alert", str(tracked.id))] = (f"alert {tracked.id}", lambda one=tracked: snapshot.alert(one))
    made["alerts.html"] = ("alerts", snapshot.list_of_alerts)
    made["commits.html"] = ("commits", snapshot.list_of_commits)
    made["machines.html"] = ("machines", lambda: html.Main(machines.body(results, "light", snapshot.now)))

    def file_of(address: str) -> str:
        name = _file_of(results, address, opening)
        return name if name in made or name == "../index.html" else ""

    navigation = [html.A(name, href=address) for name, address in _NAVIGATION.items()]
    written = f"{datetime.fromtimestamp(snapshot.now / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    for name, (title, build) in made.items():
        text = page(f"{title} · {project}", build(), navigation, f"{project}, written {written}", file_of)
        (folder / name).write_text(text, encoding="utf-8")
    return len(made)


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
