"""A headless browser for tests of pages, and a server for folders of files.

Fixtures are made available by ``conftest.py``; a test takes ``visit`` and calls ``visit.page.goto(...)``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tools.pictures.chromium import FLAGS, find_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route


@dataclass(frozen=True)
class Window:
    """Open pages in the browser, each in a context of its own: no cookie, storage or cache of another page."""

    browser: Browser
    contexts: ExitStack

    def open(self, width: int, height: int, phone: bool = False, **options: Any) -> Page:
        """Open an empty page.

        Args:
            width, height: of the viewport, in CSS pixels.
            phone: heed the page's viewport meta element, as a phone does.
            options: further options of playwright's ``Browser.new_context``, e.g. ``color_scheme``.
        """
        viewport: Any = {"width": width, "height": height}
        context = self.contexts.enter_context(self.browser.new_context(viewport=viewport, is_mobile=phone, **options))
        context.set_default_timeout(20_000)
        return context.new_page()


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
    binary = find_chromium()
    if binary is None:
        pytest.skip("no chromium: pages are not tested in a browser (make system-deps installs it)")
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=20_000)
        browser = playwright.chromium.launch(executable_path=binary, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def window(chromium: Browser) -> Iterator[Window]:
    """Pages of one test; they close with it."""
    with ExitStack() as contexts:
        yield Window(chromium, contexts)


@pytest.fixture
def visit(window: Window) -> Iterator[Visit]:
    """Give a page. The test fails at its end if the page asked another host, or met or logged an error."""
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
