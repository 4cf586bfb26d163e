"""Serve the recorded results, open a page in Chromium, wait until it is drawn, and save it as a picture."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.processes.end_with_parent import reap, run, start
from tools.pictures.pages import MACHINE, Page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Command that starts the ``lockstep`` of this environment, whatever ``lockstep`` the PATH has.
LOCKSTEP = (sys.executable, "-m", "lockstep")

#: Seconds to wait for a page, and seconds to wait for the analysis of the results.
PAGE_S, ANALYSIS_S = 30, 300


@contextmanager
def served(results: Path, scratch: Path) -> Iterator[tuple[str, int]]:
    """Analyse a results folder and serve its dashboard during the block.

    Args:
        scratch: folder for the cache and the alerts' database.

    Yields:
        The dashboard's address, and the number of the newest alert about a slowdown.
    """
    places = ["--results", str(results), "--cache", str(scratch / "cache"), "--state", str(scratch / "alerts.sqlite")]
    listed = run([*LOCKSTEP, "alerts", "list", "--json", *places], timeout=ANALYSIS_S, text=True)
    alert = next(
        alert["id"] for alert in json.loads(listed.stdout) if (alert["topic"], alert["machine"]) == ("slower", MACHINE)
    )
    server = start([*LOCKSTEP, "dashboard", "--port", "0", "--workers", "1", *places], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        line = server.stdout.readline().decode()
        yield line.partition(" at ")[2].partition("/ ")[0], alert
    finally:
        server.terminate()
        reap(server, timeout=10)


def photograph(
    browser: Browser, site: str, page: Page, file: Path, viewport: tuple[int, int], scheme: str, full: bool
) -> None:
    """Open a page in a new browser context, wait until it is drawn, and save a picture of it.

    Raises:
        playwright.sync_api.Error: an element that the page must have is not there in time.
    """
    width, height = viewport
    dark: Any = scheme
    phone = width < 640
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=dark, is_mobile=phone)
    try:
        tab = context.new_page()
        tab.goto(site + page.address)
        for selector in page.selectors:
            tab.locator(selector).filter(visible=True).first.wait_for(timeout=1000 * PAGE_S)
        # Wait for charts below the first one, for fonts, and until the dashboard has checked again for new results.
        tab.wait_for_load_state("networkidle")
        tab.wait_for_timeout(1500)
        tab.screenshot(path=file, full_page=full, animations="disabled")
    finally:
        context.close()
