"""Measure the pages' callbacks on a results tree, such as ``make_tree.py`` writes; prints one line a callback:

    python tests/bench/time_pages.py FOLDER

Times are of the server's whole answers, JSON included, without network: the first, with nothing remembered, then the
median and the 95th percentile of forty, the same of the CPU alone, and the size of an answer. A series is opened for
the first time each time. The analysis runs in another process before, as it does beside a server; the memory is of the
process that answers.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from urllib.parse import quote

from dash import Dash
from read_pages import Reader, Seen
from time_store import bytes_read

from dashboard.address import CommitAddress, SeriesAddress
from dashboard.server.app import create_app
from dashboard.server.serve import collect_seldom
from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.pages_service import AlertService
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds


def main() -> None:
    """Open the tree, have it analysed, and ask every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, help="keep the store's cache here")
    parser.add_argument("--pending", action="store_true", help="ask before the results are analysed")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="ask only what these names say")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        if not args.pending:
            began = time.perf_counter()
            runner = get_context("spawn").Process(target=analyse, args=(args.folder, cache))
            runner.start()
            runner.join()
            print(f"read and analysed in {time.perf_counter() - began:.1f} s")
        store = Store.open(args.folder, cache=cache, patience=0.2)
        results = store.current()
        machine = next(iter(results.machines))
        findings = Findings(store.cache, args.folder)
        if findings.of_machine(results, machine) is None and not args.pending:
            raise SystemExit("the analysis left nothing")
        collect_seldom()
        service = AlertService(AlertStore(Database(cache / "alerts.sqlite")))
        ask(results, machine, Local(create_app(store, service, findings=findings)), args.only)
        print(f"memory      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB at most")


def analyse(folder: Path, cache: Path) -> None:
    """What ``lockstep alerts list`` does before it lists."""
    _, picture = analyse_store(Store.open(folder, cache=cache), Thresholds(), folder)
    AlertStore(Database(cache / "alerts.sqlite")).sync(picture)


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


def ask(results: Results, machine: str, reader: Reader, only: Sequence[str] | None) -> None:
    """Print what each page's answer takes."""
    draw = random.Random(1)
    keys = sorted(results.keys(machine).keys)
    commits = results.commits(machine)
    light = {"colours.data": "light", "series-axis.value": "order", "family-axis.value": "order"}

    def chosen() -> dict[str, object]:
        since = draw.choice(commits).hash
        told = {"machine": machine, "l2": "all", "since": since, "quantity": "time", "search": ""}
        return {f"overview-{name}.value": one for name, one in told.items()}

    def overview() -> object:
        return reader.ask("overview-cards.children", chosen())

    def rows(search: str) -> object:
        return reader.ask("overview-grid.rowData", chosen() | {"overview-search.value": search})

    def alerts(**told: object) -> object:
        values = {f"alerts-{name}.value": one for name, one in ({"state": "open"} | told).items()}
        return reader.ask("alerts-list.children", values)

    def compared() -> object:
        two = [draw.choice(commits).hash for _ in range(2)]
        sides = dict(zip(("compare-bc.value", "compare-hc.value"), two, strict=True)) | {
            "compare-quantity.value": "latency"
        }
        return reader.ask(
            "compare-body.children", {"compare-bm.value": machine, "compare-hm.value": machine, **sides, **light}
        )

    def series(output: str) -> object:
        _, suite, variant, case, l2 = draw.choice(keys)
        at = vars(SeriesAddress(machine, suite, variant, case, l2))
        return reader.ask(output, {"series-quantity.value": "latency", **light, "series-address.data": at})

    def family(output: str, drawn: int, one_chart: bool = False) -> object:
        of: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for _, suite, variant, case, l2 in keys:
            of[(suite, l2, case if one_chart else variant)].append(variant if one_chart else case)
        enough = [place for place, several in of.items() if len(several) >= drawn]
        if not enough:
            raise LookupError(f"no suite has {drawn} of them")
        suite, l2, one = draw.choice(enough)
        several = of[suite, l2, one][:drawn]
        cases, variants = ([one], several) if one_chart else (several, [one])
        chosen = {"machine": machine, "cases": cases, "l2": l2, "quantities": ["latency"], "variants": variants}
        asked = {f"family-{name}.value": value for name, value in chosen.items()}
        return reader.ask(output, {**asked, **light, "family-suite.data": suite})

    def api_compare() -> str:
        base = draw.choice(commits).hash
        return f"/api/v1/compare?bm={quote(machine)}&bc={base}&hm={quote(machine)}&hc=latest&quantity=latency"

    def at_commit(page: bool) -> object:
        at = CommitAddress(draw.choice(commits).hash, machine)
        path, _, search = at.link().partition("?")
        there = {"url.pathname": path, "url.search": f"?{search}"}
        return (
            reader.ask("page.children", there)
            if page
            else reader.ask("commit-series.children", {"commit-address.data": vars(at)})
        )

    questions: dict[str, Callable[[], object]] = {
        "overview": overview,
        "its rows": lambda: rows(""),
        "its rows, searched": lambda: rows(f"v{draw.randrange(9)}"),
        "layout": lambda: reader.ask("page.children", {"url.pathname": "/", "url.search": f"?machine={machine}"}),
        "series": lambda: series("series-facts.children"),
        "family, 2 trends": lambda: family("family-trend.children", 2),
        "20 beside another": lambda: family("family-trend.children", 20),
        "20 in one chart": lambda: family("family-trend.children", 20, one_chart=True),
        "family, newest": lambda: family("family-latest.children", 2),
        "commit": lambda: at_commit(page=False),
        "commit page": lambda: at_commit(page=True),
        "compare": compared,
        "machines": lambda: reader.ask("machines-body.children", {"colours.data": draw.choice(("light", "dark"))}),
        "alerts page": lambda: reader.ask("page.children", {"url.pathname": "/alerts", "url.search": ""}),
        "alerts": alerts,
        "alerts, searched": lambda: alerts(search=f"v{draw.randrange(9)} suite"),
        "alerts, sorted": lambda: alerts(sort="largest", state="all", page=draw.randrange(1, 9)),
        "poll": lambda: reader.get("/_live"),
        "API, alerts": lambda: reader.get("/api/v1/alerts"),
        "API, points": lambda: reader.get(f"/api/v1/points/{quote(machine)}/{draw.choice(commits).hash}"),
        "API, compare": lambda: reader.get(api_compare()),
        "feed": lambda: reader.get("/feed.atom"),
        "metrics": lambda: reader.get("/metrics"),
    }
    for name, question in ((name, questions[name]) for name in only or questions):
        times, cpu, size, read = [], [], 0, 0
        for _ in range(41):
            if "poll" in name:
                # A scan of the files is part of it; the store believes what it saw for so long.
                time.sleep(0.25)
            began, before, had = time.perf_counter(), time.process_time(), bytes_read()
            try:
                answer = question()
            except LookupError as missing:
                print(f"{name:17} not asked: {missing}", flush=True)
                break
            times.append(1e3 * (time.perf_counter() - began))
            cpu.append(1e3 * (time.process_time() - before))
            read = read or bytes_read() - had
            size = len(answer) if isinstance(answer, bytes) else len(json.dumps(answer))
        if not times:
            continue
        (first, *rest), (first_cpu, *rest_cpu) = times, cpu
        rest, rest_cpu = sorted(rest), sorted(rest_cpu)
        wall = f"first {first:.0f} ms, then median {rest[20]:.0f} ms, p95 {rest[37]:.0f} ms"
        used = f"CPU first {first_cpu:.0f} ms, median {rest_cpu[20]:.0f} ms, p95 {rest_cpu[37]:.0f} ms"
        print(
            f"{name:17} {wall}; {used}; {size / 1000:.1f} kB; {read / 1e6:.1f} MB read first",
            flush=True,
        )


if __name__ == "__main__":
    main()
