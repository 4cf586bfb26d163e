"""asv plugin that adds a static copy of the dashboard's pages, and feeds of the alerts, to asv's published site.

To use it, add ``".dashboard.snapshot"`` to the ``plugins`` of asv.conf.json, after the other plugins of Lockstep. ``asv
publish`` then writes the pages to the folder ``lockstep`` beside asv's own, and adds links to them and the feeds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from asv.console import log
from asv.publishing import OutputPublisher

from lockstep.notify.published_site import NAVIGATION, analysed_project, insert, write_feeds

#: Folder of the pages, beside asv's.
FOLDER = "lockstep"


class Snapshot(OutputPublisher):  # type: ignore[misc]  # asv has no types
    """Writes the dashboard's pages beside asv's pages when ``asv publish`` runs."""

    name = "snapshot"
    button_label = None
    description = "Overview, families, alerts and commits"

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
        """Write the pages below ``conf.html_dir``. ``asv publish`` calls this after it has written its own pages there.

        Raise ``UserError`` if the results store, the alert database or the thresholds cannot be used.
        """
        try:
            # Imported here: asv imports its plugins for every verb, and a machine that measures has no dashboard.
            from dashboard.snapshot.pages import write_pages
            from lockstep.notify.receivers import SITE
        except ModuleNotFoundError as error:
            log.warning(f"the site has no copy of the dashboard: {error.name} is not installed on this machine")
            return
        html_dir = Path(conf.html_dir)
        with analysed_project(conf) as project:
            number = write_pages(project, conf.project, html_dir / FOLDER)
            write_feeds(html_dir, project.alerts.alerts(), conf.project, os.environ.get(SITE, ""))
        insert(html_dir, NAVIGATION, f'<li><a href="{FOLDER}/index.html">Lockstep</a></li>')
        log.info(f"{number} pages of the dashboard in {FOLDER}/")
