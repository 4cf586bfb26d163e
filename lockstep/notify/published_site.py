"""What a plugin of ``asv publish`` needs: the analysed alerts of an asv project, their feeds, links in asv's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.util import UserError

from lockstep.record.json_output import json_text

if TYPE_CHECKING:
    from lockstep.alerts.database.alert_row import Tracked
    from lockstep.alerts.database.store import AlertStore
    from lockstep.history.store import Store
    from lockstep.suite.thresholds import Thresholds

#: Texts in the index.html of asv 0.6.6: entries of the navigation stand before the first, links of the head before the
#: second.
NAVIGATION, END_OF_HEAD = '<li id="nav-li-graphdisplay">', "</head>"


@dataclass(frozen=True)
class AnalysedProject:
    """An asv project whose results are analysed, and whose stored alerts are those of the analysis.

    Attributes:
        store: the store of its results.
        alerts: the stored alerts.
        repo: a folder in the git repository whose commits are measured.
        packages: folders of the packages under test, relative to the repository's root.
    """

    store: Store
    alerts: AlertStore
    thresholds: Thresholds
    repo: Path
    packages: tuple[str, ...]


@contextmanager
def analysed_project(conf: Any) -> Iterator[AnalysedProject]:
    """Analyse the results of an asv project and update its stored alerts; they can be read within the block.

    Raises:
        UserError: the results store, the alert database or the thresholds cannot be used, also within the block.
        ModuleNotFoundError: the packages that the alerts need are not installed.
    """
    # Imported here: asv imports its plugins for every verb, and a machine that measures may lack these packages.
    from lockstep.alerts.analysis.analyse import analyse_store
    from lockstep.alerts.database.connection import Database, StateError
    from lockstep.alerts.database.location import default_state
    from lockstep.alerts.database.store import AlertStore
    from lockstep.history.asv_project import open_project, repository_of
    from lockstep.history.store import StoreError
    from lockstep.suite.thresholds import FILE, ThresholdsError, read_thresholds

    results = Path(conf.results_dir)
    packages = tuple(getattr(conf, "lockstep", {}).get("packages", ()))
    try:
        thresholds, repo = read_thresholds(Path(FILE)), repository_of(conf, results)
        store, database = open_project(conf, results, repo), Database(default_state(results))
        try:
            alerts = AlertStore(database)
            alerts.sync(analyse_store(store, thresholds, repo, packages)[1])
            yield AnalysedProject(store, alerts, thresholds, repo, packages)
        finally:
            database.close()
    except (StateError, StoreError, ThresholdsError) as error:
        raise UserError(str(error)) from error


def insert(html_dir: Path, before: str, text: str) -> None:
    """Insert a text into asv's index.html before another text, such as ``NAVIGATION``."""
    index = html_dir / "index.html"
    index.write_text(index.read_text(encoding="utf-8").replace(before, f"{text}{before}", 1), encoding="utf-8")


def write_feeds(html_dir: Path, alerts: Sequence[Tracked], project: str, site: str) -> None:
    """Write ``alerts.atom`` and ``alerts.json`` beside asv's pages, and name the feed in asv's ``index.html``.

    Args:
        html_dir: folder of asv's pages.
        alerts: the alerts, newest first.
        site: address of the dashboard; "" if there is none.
    """
    from lockstep.notify.feed import alerts_json, atom  # imported here, see ``analysed_project``

    (html_dir / "alerts.atom").write_text(atom(alerts, site, f"{project}: alerts"), encoding="utf-8")
    (html_dir / "alerts.json").write_text(json_text(alerts_json(alerts, site)), encoding="utf-8")
    feed = '<link rel="alternate" type="application/atom+xml" title="Alerts" href="alerts.atom"/>'
    insert(html_dir, END_OF_HEAD, feed)
