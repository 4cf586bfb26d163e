"""Measure the pages' callbacks on a results tree, such as ``make_tree.py`` writes; prints one line a callback:

    python tests/bench/time_pages.py FOLDER

Times are of the server's whole answers, JSON included, without network: the first, with nothing remembered, then the
median and the 95th percentile of forty, and the CPU of one. A series is opened for the first time each time. The
analysis runs in another process before, as it does beside a server; the memory is of the process that answers.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

from dash import Dash
from read_pages import Reader, Seen

from dashboard.address import CommitAddress, SeriesAddress
from dashboard.alerts.publish import survey
from dashboard.app import create_app
from dashboard.findings import Findings
from dashboard.results.picture import Results
from dashboard.results.store import Store
from dashboard.rows import keys_of
from dashboard.server import collect_seldom
from lockstep.thresholds import Thresholds


def main() -> None:
    """Open the tree, have it analysed, and ask every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, help="keep the store's cache here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        began = time.perf_counter()
        analyst = get_context("spawn").Process(target=analyse, args=(args.folder, cache))
        analyst.start()
        analyst.join()
        print(f"read and analysed in {time.perf_counter() - began:.1f} s")
        store = Store.open(args.folder, cache=cache)
        results = store.current()
        machine = next(iter(results.machines))
        findings = Findings(store.cache, args.folder)
        if findings.picture(results, machine) is None:
            raise SystemExit("the analysis left nothing")
        collect_seldom()
        ask(results, machine, Local(create_app(store, findings=findings)))
        print(f"memory      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB at most")


def analyse(folder: Path, cache: Path) -> None:
    """What ``lockstep alerts list`` does before it lists."""
    survey(Store.open(folder, cache=cache), Thresholds(), folder)


class Local(Reader):
    """A reader in the server's own process."""

    def __init__(self, app: Dash) -> None:
        self.client = app.server.test_client()
        super().__init__("", Seen(), 1)

    def get(self, path: str) -> bytes:
        """An answer."""
        answer: bytes = self.client.get(path).data
        return answer

    def post(self, path: str, data: bytes) -> bytes:
        """An answer to JSON."""
        answer = self.client.post(path, data=data, content_type="application/json")
        assert answer.status_code == 200, answer.text
        body: bytes = answer.data
        return body


def ask(results: Results, machine: str, reader: Reader) -> None:
    """Print what each page's answer takes."""
    draw = random.Random(1)
    keys = sorted(keys_of(results, machine))
    commits = results.commits(machine)
    light = {"colours.data": "light"}

    def overview() -> object:
        chosen = {"machine": machine, "l2": "all", "since": draw.choice(commits).hash, "show": "change"}
        return reader.ask(
            "overview-grid.rowData", {f"overview-{name}.value": one for name, one in chosen.items()} | light
        )

    def series(output: str) -> object:
        _, suite, variant, case, l2 = draw.choice(keys)
        at = vars(SeriesAddress(machine, suite, variant, case, l2))
        return reader.ask(output, {"series-quantity.value": "latency", **light, "series-address.data": at})

    def family(output: str, drawn: int, one_chart: bool = False) -> object:
        of: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for _, suite, variant, case, l2 in keys:
            of[(suite, l2, case if one_chart else variant)].append(variant if one_chart else case)
        suite, l2, one = draw.choice([place for place, several in of.items() if len(several) >= drawn])
        several = of[suite, l2, one][:drawn]
        cases, variants = ([one], several) if one_chart else (several, [one])
        chosen = {"machine": machine, "cases": cases, "l2": l2, "quantities": ["latency"], "variants": variants}
        asked = {f"family-{name}.value": value for name, value in chosen.items()}
        return reader.ask(output, {**asked, **light, "family-suite.data": suite})

    def at_commit(page: bool) -> object:
        at = CommitAddress(draw.choice(commits).hash, machine)
        path, _, search = at.link().partition("?")
        there = {"url.pathname": path, "url.search": f"?{search}"}
        return (
            reader.ask("page.children", there)
            if page
            else reader.ask("commit-grid.rowData", {"commit-address.data": vars(at)})
        )

    questions: dict[str, Callable[[], object]] = {
        "overview": overview,
        "layout": lambda: reader.ask("page.children", {"url.pathname": "/", "url.search": f"?machine={machine}"}),
        "series": lambda: series("series-drawn.data"),
        "hindsight": lambda: series("series-chart.figure@"),
        "family, 2 trends": lambda: family("family-trend.children", 2),
        "20 beside another": lambda: family("family-trend.children", 20),
        "20 in one chart": lambda: family("family-trend.children", 20, one_chart=True),
        "family, newest": lambda: family("family-latest.children", 2),
        "commit": lambda: at_commit(page=False),
        "commit page": lambda: at_commit(page=True),
    }
    for name, question in questions.items():
        times, before = [], time.process_time()
        for _ in range(41):
            began = time.perf_counter()
            question()
            times.append(1e3 * (time.perf_counter() - began))
        cpu = 1e3 * (time.process_time() - before) / len(times)
        first, rest = times[0], sorted(times[1:])
        told = f"first {first:.0f} ms, then median {rest[20]:.0f} ms, p95 {rest[37]:.0f} ms, CPU {cpu:.0f} ms"
        print(f"{name:17} {told}", flush=True)


if __name__ == "__main__":
    main()
