"""asv plugin that adds the alerts to asv's published site, as a feed and as JSON.

To use it, set ``"plugins": [".lockstep.asv", ".lockstep.notify.asv_site"]`` in asv.conf.json. ``asv publish`` then
writes ``alerts.atom`` and ``alerts.json`` beside asv's pages. The plugin ``.dashboard.snapshot`` writes pages of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.console import log
from asv.publishing import OutputPublisher

from lockstep.notify.published_site import END_OF_HEAD, analysed_project, insert

if TYPE_CHECKING:
    from lockstep.alerts.database.alert_row import Tracked


class AlertFeeds(OutputPublisher):  # type: ignore[misc]  # asv has no types
    """Writes the alerts beside asv's pages when ``asv publish`` runs."""

    name = "alerts"
    button_label = None
    description = "Alerts with their causes"

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
        """Write the alerts to ``conf.html_dir``. ``asv publish`` calls this after it has written its own pages there.

        Raises:
            UserError: the results store, the alert database or the thresholds cannot be used.
        """
        try:
            with analysed_project(conf) as project:
                alerts = project.alerts.alerts()
        except ModuleNotFoundError as error:
            # A machine that only measures may lack the packages that the alerts need.
            log.warning(f"the site has no alerts: {error.name} is not installed on this machine")
            return
        write_feeds(Path(conf.html_dir), alerts, conf.project, os.environ.get("LOCKSTEP_URL", ""))


def write_feeds(html_dir: Path, alerts: Sequence[Tracked], project: str, site: str) -> None:
    """Write the alerts as an Atom feed and as JSON, and name the feed in asv's ``index.html``.

    Args:
        html_dir: folder of asv's pages.
        alerts: the alerts, newest first.
        site: address of the dashboard; "" if there is none.
    """
    # Imported here: asv imports its plugins for every verb.
    from lockstep.notify.feed import alerts_json, atom

    (html_dir / "alerts.atom").write_text(atom(alerts, site, f"{project}: alerts"), encoding="utf-8")
    (html_dir / "alerts.json").write_text(json.dumps(alerts_json(alerts, site)), encoding="utf-8")
    feed = '<link rel="alternate" type="application/atom+xml" title="Alerts" href="alerts.atom"/>'
    insert(html_dir, END_OF_HEAD, feed)
