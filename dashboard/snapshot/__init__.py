"""asv plugin that adds a static copy of the dashboard's pages to asv's published site.

To use it, add ``".dashboard.snapshot"`` to the ``plugins`` of asv.conf.json, after the other plugins of Lockstep. ``asv
publish`` then writes the pages to the folder ``lockstep`` beside asv's own, and adds a link to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asv.console import log
from asv.publishing import OutputPublisher
from asv.util import UserError

#: Text in the index.html of asv 0.6.6 before which the link to the pages is inserted.
_BEFORE = '<li id="nav-li-graphdisplay">'

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

        Raises:
            UserError: the results store, the alert database or the thresholds cannot be used.
        """
        try:
            # Imported here: asv imports its plugins for every verb, and a machine that measures has no dashboard.
            from dashboard.snapshot.pages import write_pages
            from lockstep.alerts.database.connection import StateError
            from lockstep.history.store import StoreError
            from lockstep.suite.thresholds import ThresholdsError
        except ModuleNotFoundError as error:
            log.warning(f"the site has no copy of the dashboard: {error.name} is not installed on this machine")
            return
        try:
            number = write_pages(conf, Path(conf.html_dir) / FOLDER)
        except (StateError, StoreError, ThresholdsError) as error:
            raise UserError(str(error)) from error
        index = Path(conf.html_dir) / "index.html"
        linked = index.read_text(encoding="utf-8").replace(
            _BEFORE, f'<li><a href="{FOLDER}/index.html">Lockstep</a></li>{_BEFORE}', 1
        )
        index.write_text(linked, encoding="utf-8")
        log.info(f"{number} pages of the dashboard in {FOLDER}/")
