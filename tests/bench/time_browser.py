"""What a person waits for, in a headless Chromium; prints a line a figure:

    python tests/bench/time_browser.py FOLDER

The overview until its table has rows: cold, in a browser that has loaded nothing yet, and warm, in one that has; and
a family's trends, from the click on their quantity until all are painted, with as many cases as the page allows. It
starts ``lockstep dashboard`` on the folder, and waits until the results are analysed. Medians of some.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import sync_playwright
from read_pages import Reader, Seen, dashboard, wait_for_analysis

sys.path.insert(0, str(Path(__file__).parents[1]))

from browser import FLAGS

from dashboard.address import FamilyAddress, OverviewAddress
from dashboard.pages.family import MOST_CASES
from dashboard.results.store import Store
from dashboard.rows import keys_of

_SIZE = {"width": 1280, "height": 800}

# What is waited for is asked in the page, which its policy forbids; the contexts do without it.
_ROWS = "document.querySelector('#overview-grid .ag-center-cols-container .ag-row') !== null"
_CARDS = "document.querySelectorAll('#overview-cards .count-card').length > 0"
_LINES = "document.querySelectorAll('#family-trend .scatterlayer .trace path.js-line').length >= {0}"


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
            browse(browser, base, machine, family_of(args.folder, cache, machine))
            browser.close()


def family_of(folder: Path, cache: Path, machine: str) -> FamilyAddress:
    """A family's page with all the cases that it draws at once."""
    keys = sorted(keys_of(Store.open(folder, cache=cache).current(), machine))
    suite, variants = keys[0][1], (keys[0][2],)
    cases = tuple(dict.fromkeys(case for _, of, _, case, _ in keys if of == suite))[:MOST_CASES]
    return FamilyAddress(machine, suite, cases, keys[0][4], ("latency",), variants)


def browse(browser: Any, base: str, machine: str, family: FamilyAddress) -> None:
    """Print what each page takes."""

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
    lines = _LINES.format(len(family.cases))
    page.goto(base + family.link())
    page.wait_for_function(lines, polling=20)
    chip = page.locator("#family-quantities label, .mantine-Chip-label", has_text="Latency").first
    painted = []
    for _ in range(5):
        chip.click()
        page.wait_for_function("document.querySelectorAll('#family-trend .js-plotly-plot').length === 0")

        def drawn() -> None:
            chip.click()
            page.wait_for_function(lines, polling=20)

        painted.append(seconds(drawn))
    print(f"{len(family.cases)} trends after the click       {1e3 * median(painted):.0f} ms", flush=True)


def seconds(do: Callable[[], None]) -> float:
    """That it takes."""
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
