"""A headless browser for tests of pages, and a server for folders of files.

Fixtures are made available by ``conftest.py``; a test takes ``visit`` and calls ``visit.page.goto(...)``.
"""

from __future__ import annotations

import functools
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

#: All pages of a window in one process. Without the others Chromium talks to its maker, which a test for silent pages
#: would report.
FLAGS = [
    "--process-per-site",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(frozen=True)
class Window:
    """A browser window in which tests open their pages, each as if it were the first.

    The process of a page has compiled its scripts when the next one needs them: that takes 1.8 s of CPU time, in a
    window of its own 4.0. A page that nobody looks at keeps the process.
    """

    context: BrowserContext
    visited: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start the process."""
        kept = self.context.new_page()
        kept.route("**/*", lambda route: route.fulfill(body="", content_type="text/html"))
        kept.goto("http://127.0.0.1/")

    def open(self, width: int, height: int, phone: bool = False, **media: Any) -> Page:
        """A page that knows nothing of earlier ones; ``media`` is what ``emulate_media`` takes."""
        self._forget()
        page = self.context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        if phone:  # it heeds what the page says of its viewport
            screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
            self.context.new_cdp_session(page).send("Emulation.setDeviceMetricsOverride", screen)
        page.emulate_media(**media)
        page.set_default_timeout(20_000)
        page.on("framenavigated", lambda frame: self.visited.add(frame.url))
        return page

    def _forget(self) -> None:
        """Empty what pages kept, those that are still open too."""
        self.context.clear_cookies()
        session = self.context.new_cdp_session(self.context.pages[0])
        for origin in {f"{url.scheme}://{url.netloc}" for url in map(urlsplit, self.visited) if url.netloc}:
            session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        session.detach()


@dataclass
class Visit:
    """One browser page, and what was wrong with what it loaded."""

    page: Page
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.route("**/*", self._guard)
        self.page.on("console", lambda message: self._note(message.type == "error", f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self._note(True, f"script: {error}"))
        self.page.on(
            "response", lambda response: self._note(response.status >= 400, f"{response.status}: {response.url}")
        )

    def _guard(self, route: Route) -> None:
        url = urlsplit(route.request.url)
        outside = url.scheme in ("http", "https", "ws", "wss") and url.hostname != "127.0.0.1"
        self._note(outside, f"left the host: {route.request.url}")
        if outside:
            route.abort()
        else:
            route.continue_()

    def _note(self, fault: bool, text: str) -> None:
        if fault:
            self.faults.append(text)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The system's Chromium, driven by playwright; tests that need it are skipped where it is absent."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pages are not tested in a browser")
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("no chromium: pages are not tested in a browser (make system-deps installs it)")
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=20_000)
        browser = playwright.chromium.launch(executable_path=binary, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def window(chromium: Browser) -> Iterator[Window]:
    """One window for all tests of a session."""
    with chromium.new_context() as context:
        yield Window(context)


@pytest.fixture
def visit(window: Window) -> Iterator[Visit]:
    """A fresh page. The test fails at its end if the page asked another host, or met or logged an error."""
    visit = Visit(window.open(1280, 800))
    yield visit
    visit.page.close()
    if visit.faults:
        pytest.fail("the page was not quiet:\n  " + "\n  ".join(visit.faults))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder on 127.0.0.1; gives the address, without a slash at its end.

    It must outlive the page, which is told of a reset connection otherwise: serve in a fixture of module scope.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a line on stderr for each."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""
