"""asv plugin that adds the alerts to asv's published site, as a page and a feed.

To use it, set ``"plugins": [".lockstep.asv", ".lockstep.notify.asv_site"]`` in asv.conf.json. ``asv publish`` then
writes ``alerts.html``, ``alerts.atom`` and ``alerts.json`` beside asv's pages, and adds links to them. The page is
static: it runs no script and loads nothing.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.console import log
from asv.publishing import OutputPublisher

from lockstep.notify.published_site import END_OF_HEAD, NAVIGATION, analysed_project, insert

if TYPE_CHECKING:
    from lockstep.alerts.database.alert_row import Tracked

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b2026; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.05rem; margin: 2rem 0 .2rem } a { color: #0060a0 }
pre { font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; overflow-x: auto; margin: .4rem 0 }
.state { font-size: .85rem; border: 1px solid #9aa5b1; border-radius: 3px; padding: 0 .4em; margin-right: .5em }
@media (prefers-color-scheme: dark) { body { color: #e4e8ec; background: #14181c } a { color: #6cb8f0 } }
"""


class AlertsPage(OutputPublisher):  # type: ignore[misc]  # asv has no types
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
        write_pages(Path(conf.html_dir), alerts, conf.project, os.environ.get("LOCKSTEP_URL", ""))


def write_pages(html_dir: Path, alerts: Sequence[Tracked], project: str, site: str) -> None:
    """Write the alerts as an HTML page, an Atom feed and a JSON file, and link to all three from asv's ``index.html``.

    Args:
        html_dir: folder of asv's pages.
        alerts: the alerts, newest first.
        site: address of the dashboard; "" if there is none.
    """
    # Imported here: asv imports its plugins for every verb.
    from lockstep.notify.feed import alerts_json, atom

    title = f"{project}: alerts"
    (html_dir / "alerts.html").write_text("".join(_page(alerts, title)), encoding="utf-8")
    (html_dir / "alerts.atom").write_text(atom(alerts, site, title), encoding="utf-8")
    (html_dir / "alerts.json").write_text(json.dumps(alerts_json(alerts, site)), encoding="utf-8")
    feed = '<link rel="alternate" type="application/atom+xml" title="Alerts" href="alerts.atom"/>'
    insert(html_dir, END_OF_HEAD, feed)
    insert(html_dir, NAVIGATION, '<li><a href="alerts.html">Alerts</a></li>')


def _page(alerts: Sequence[Tracked], title: str) -> Iterator[str]:
    # Imported here: asv imports its plugins for every verb.
    from lockstep.alerts.story import tell
    from lockstep.alerts.text import status

    yield f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>"
    yield '<p><a href="index.html">Benchmarks</a> · <a href="alerts.atom">Feed</a> · <a href="alerts.json">JSON</a></p>'
    open_alerts = [alert for alert in alerts if alert.open]
    yield f"<p>{len(open_alerts) or 'Nothing'} open, {len(alerts) - len(open_alerts)} closed, muted or recorded.</p>"
    for alert in [*open_alerts, *(alert for alert in alerts if not alert.open)]:
        story = tell(alert.alert, alert.id)
        text = html.escape("\n".join(story.lines(limit=40)))
        state = f'<span class="state">{html.escape(status(alert))}</span>'
        yield f'<h2 id="{alert.id}">{state}{html.escape(story.title)}</h2><pre>{text}</pre>'
    yield "</body></html>\n"
