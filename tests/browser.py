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
    from playwright.sync_api import BrowserContext, Page, Route


@dataclass(frozen=True)
class Window:
    """Open pages in the browser, each without cookies or storage of an earlier page.

    Pages on a desktop share a cache: compiling the pages' scripts anew takes more of a processor than all else.
    """

    desktop: BrowserContext
    contexts: ExitStack

    def open(self, width: int, height: int, phone: bool = False, **media: Any) -> Page:
        """Open an empty page.

        Args:
            width, height: of the viewport, in CSS pixels.
            phone: heed the page's viewport meta element, and touches, as a phone does.
            media: options of playwright's ``Page.emulate_media``, e.g. ``color_scheme``.
        """
        viewport: Any = {"width": width, "height": height}
        if phone:
            assert self.desktop.browser
            options = {"viewport": viewport, "is_mobile": True, "has_touch": True}
            page = self.contexts.enter_context(self.desktop.browser.new_context(**options)).new_page()
        else:
            page = self.desktop.new_page()
            self.contexts.callback(page.close)
            self.desktop.clear_cookies()
            self.desktop.clear_permissions()
            stored = {"origin": "*", "storageTypes": "local_storage"}
            self.desktop.new_cdp_session(page).send("Storage.clearDataForOrigin", stored)
            page.set_viewport_size(viewport)
        page.set_default_timeout(20_000)
        page.emulate_media(**media)
        return page


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
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """The system's Chromium, driven by playwright; tests that need it are skipped where it is absent."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pages are not tested in a browser")
    binary = find_chromium()
    if binary is None:
        pytest.skip("no chromium: pages are not tested in a browser (make system-deps installs it)")
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=20_000)
        profile = tmp_path_factory.mktemp("profile")
        with playwright.chromium.launch_persistent_context(profile, executable_path=binary, args=FLAGS) as context:
            yield context


@pytest.fixture
def window(chromium: BrowserContext) -> Iterator[Window]:
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
