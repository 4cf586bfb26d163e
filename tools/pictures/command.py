"""``python -m tools pictures``: photograph the dashboard's pages with the recorded results.

Exit codes: 0 all pictures are written; 3 there is no Chromium, or a page lacks an element; 4 a mistake in the command
line.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from asv.commands import Command

from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BROKEN, UsageError
from tools.pictures.chromium import FLAGS, find_chromium
from tools.pictures.pages import FOR_README, MACHINE, pages
from tools.pictures.photograph import photograph, served


class Pictures(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Photograph the dashboard's pages.

    Serve the recorded results, open pages in Chromium and save them as PNG files.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("folder", type=Path, help="folder for the PNG files")
        parser.add_argument(
            "--results", type=Path, default=Path("results"), help="results folder (default: %(default)s)"
        )
        parser.add_argument("--all", action="store_true", help="save every page, not only those of the README")
        parser.add_argument("--size", type=size, default=(1280, 800), metavar="WxH", help="viewport in CSS pixels")
        parser.add_argument(
            "--scheme", choices=("dark", "light"), default="dark", help="colour scheme (default: %(default)s)"
        )
        parser.add_argument("--full", action="store_true", help="save the whole page, not only the viewport")

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Serve the results, open each page in Chromium, and save a PNG file of it.

        Raises:
            UsageError: there is no such results folder.
        """
        if not (args.results / MACHINE).is_dir():
            raise UsageError(f"{args.results} has no results of {MACHINE}: name a folder that has them by --results")
        binary = find_chromium()
        if binary is None:
            print("there is no Chromium: `make system-deps` installs it", file=sys.stderr)
            return BROKEN
        # Imported here, because asv loads every verb, and the other verbs must run without playwright.
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
        ValueError: the text is not two numbers with an "x" between them.
    """
    width, height = (int(part) for part in text.split("x"))
    return width, height
