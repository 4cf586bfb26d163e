"""What a person waits for, in a headless Chromium; prints a line a figure:

    python tests/bench/time_browser.py FOLDER

The overview until its table has rows: cold, in a browser that has loaded nothing yet, and warm, in one that has; and
twenty trends of a family, from the click on their quantity until the last is drawn and the frame with it painted: a
chart for each of twenty cases, and one chart of twenty variants. It starts ``lockstep dashboard`` on the folder, and
waits until the results are analysed. Medians of some.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import sync_playwright
from read_pages import Reader, Seen, dashboard, wait_for_analysis

sys.path.insert(0, str(Path(__file__).parents[1]))

from browser import FLAGS

from dashboard.address import FamilyAddress, OverviewAddress
from lockstep.history.model import SeriesKey
from lockstep.history.store import Store

_SIZE = {"width": 1280, "height": 800}
_TRENDS = 20

# What is waited for is asked in the page, which its policy forbids; the contexts do without it.
_ROWS = "document.querySelector('#overview-grid .ag-center-cols-container .ag-row') !== null"
_CARDS = "document.querySelectorAll('#overview-cards .families').length > 0"
_LINES = "document.querySelectorAll('#family-trend path.js-line').length"
# The frame is on the screen once the next one begins.
_PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def main() -> None:
    """Serve, browse, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, help="keep the store's cache here")
    args = parser.parse_args()
    machine = sorted(path.parent.name for path in args.folder.glob("*/machine.json"))[0]
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        with dashboard(args.folder, cache) as (base, _), sync_playwright() as playwright:
            wait_for_analysis(Reader(base, Seen(), 0), machine)
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            keys = Store.open(args.folder, cache=cache).current().keys(machine).keys
            browse(browser, base, machine)
            for shape in ((_TRENDS, 1), (1, _TRENDS)):
                trends(browser, base, families(keys, *shape))
            browser.close()


def families(keys: Collection[SeriesKey], cases: int, variants: int) -> FamilyAddress:
    """The page of a family with so many cases of so many variants."""
    for machine, suite, *_, l2 in sorted(keys):
        own = [key for key in sorted(keys) if (key[1], key[4]) == (suite, l2)]
        named = [tuple(dict.fromkeys(key[place] for key in own)) for place in (3, 2)]
        if len(named[0]) >= cases and len(named[1]) >= variants:
            return FamilyAddress(machine, suite, named[0][:cases], l2, ("latency",), named[1][:variants])
    raise SystemExit(f"no family has {cases} cases of {variants} variants")


def browse(browser: Any, base: str, machine: str) -> None:
    """Print what the overview takes."""

    def overview(page: Any) -> float:
        def there() -> None:
            page.goto(base + OverviewAddress(machine).link(), wait_until="commit")
            page.wait_for_function(f"{_ROWS} && {_CARDS}", polling=20)

        return seconds(there)

    cold = []
    for _ in range(5):
        context = browser.new_context(viewport=_SIZE, bypass_csp=True)
        page = context.new_page()
        cold.append(overview(page))
        context.close()
    print(f"overview, nothing loaded yet  {1e3 * median(cold):.0f} ms", flush=True)
    page = browser.new_context(viewport=_SIZE, bypass_csp=True).new_page()
    warm = [overview(page) for _ in range(6)][1:]
    print(f"overview, loaded before       {1e3 * median(warm):.0f} ms", flush=True)


def trends(browser: Any, base: str, family: FamilyAddress) -> None:
    """Print what the trends of a family take."""
    page = browser.new_context(viewport=_SIZE, bypass_csp=True).new_page()
    page.goto(base + family.link())
    page.wait_for_function(f"{_LINES} >= {_TRENDS}", polling=20)
    page.wait_for_timeout(1000)
    whole = page.evaluate(_LINES)
    chip = page.locator("#family-quantities label, .mantine-Chip-label", has_text="Latency").first
    painted = []
    for _ in range(9):
        chip.click()
        page.wait_for_function(f"{_LINES} === 0")
        page.wait_for_timeout(300)

        def drawn() -> None:
            chip.click()
            page.wait_for_function(f"{_LINES} === {whole}", polling="raf")
            page.evaluate(_PAINTED)

        painted.append(seconds(drawn))
    charts = page.locator("#family-trend .js-plotly-plot").count()
    print(f"{_TRENDS} trends in {charts:2} charts          {1e3 * median(painted):.0f} ms after the click", flush=True)
    page.context.close()


def seconds(do: Callable[[], None]) -> float:
    """That it takes."""
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
