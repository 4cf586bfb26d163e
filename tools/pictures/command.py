"""``python -m tools pictures``: photograph the dashboard's pages with the recorded results.

Exit codes: 0 all pictures are written; 3 there is no Chromium, or a page does not draw what it should; 4 a mistake in
the command line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.commands import Command

from lockstep.commands.cli import UsageError
from lockstep.processes.children import reap, run, start
from lockstep.processes.exit_status import BROKEN
from tools.pictures.chromium import FLAGS, find_chromium
from tools.pictures.pages import FOR_README, MACHINE, Page, pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: ``lockstep`` of this environment, whatever the PATH has.
LOCKSTEP = (sys.executable, "-m", "lockstep")

#: Seconds to wait for a page, and for the analysis of the results.
PAGE_S, ANALYSIS_S = 30, 300


class Pictures(Command):  # type: ignore[misc]  # asv has no types
    """Photograph the pages."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Add ``pictures`` to the command line."""
        parser: argparse.ArgumentParser = subparsers.add_parser(
            "pictures",
            help="Photograph the dashboard's pages",
            description="Serve the recorded results, open pages in Chromium and save them as PNG files.",
        )
        parser.add_argument("folder", type=Path, help="folder for the PNG files")
        parser.add_argument("--results", type=Path, default=Path("results"), help="default: %(default)s")
        parser.add_argument("--all", action="store_true", help="every page; without it those of the README")
        parser.add_argument("--size", type=size, default=(1280, 800), metavar="WxH", help="viewport in CSS pixels")
        parser.add_argument("--scheme", choices=("dark", "light"), default="dark", help="default: %(default)s")
        parser.add_argument("--full", action="store_true", help="the whole page, not only what fits the viewport")
        parser.set_defaults(func=cls.run_from_args)
        return parser

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Serve, photograph and save.

        Raises:
            UsageError: there is no such results folder.
        """
        if not (args.results / MACHINE).is_dir():
            raise UsageError(f"{args.results} has no machine {MACHINE}: the pictures show that one")
        binary = find_chromium()
        if binary is None:
            print("there is no Chromium: `make system-deps` installs it", file=sys.stderr)
            return BROKEN
        # asv loads every verb, and the others must run where playwright is not installed.
        from playwright.sync_api import Error, sync_playwright

        args.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch, served(args.results, Path(scratch)) as (site, alert):
            chosen = [page for page in pages(alert) if args.all or page.name in FOR_README]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=binary, args=FLAGS)
                try:
                    for page in chosen:
                        file = args.folder / f"{page.name}.png"
                        photograph(browser, site, page, file, args.size, args.scheme, args.full)
                        print(f"wrote {file} ({file.stat().st_size / 1000:.0f} kB)")
                except Error as error:
                    print(f"{page.name}: {error.message}", file=sys.stderr)
                    return BROKEN
                finally:
                    browser.close()
        return 0


def size(text: str) -> tuple[int, int]:
    """Parse ``1280x800`` as a width and a height.

    Raises:
        ValueError: it is not two numbers.
    """
    width, height = (int(part) for part in text.split("x"))
    return width, height


@contextmanager
def served(results: Path, scratch: Path) -> Iterator[tuple[str, int]]:
    """Analyse and serve a results folder.

    Args:
        results: the folder.
        scratch: folder for the cache and the alerts' database.

    Yields:
        The dashboard's address, and the number of the newest alert about a slowdown.
    """
    places = ["--results", str(results), "--cache", str(scratch / "cache"), "--state", str(scratch / "alerts.sqlite")]
    listed = run([*LOCKSTEP, "alerts", "list", "--json", *places], timeout=ANALYSIS_S, text=True)
    alert = next(
        found["id"] for found in json.loads(listed.stdout) if (found["topic"], found["machine"]) == ("slower", MACHINE)
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
    """Open a page in a context of its own, wait until it is drawn, and save it.

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
        for selector in page.drawn:
            tab.locator(selector).first.wait_for(timeout=1000 * PAGE_S)
        # Charts below the first one, fonts, and the dashboard's own second look for results.
        tab.wait_for_load_state("networkidle")
        tab.wait_for_timeout(1500)
        tab.screenshot(path=file, full_page=full, animations="disabled")
    finally:
        context.close()
