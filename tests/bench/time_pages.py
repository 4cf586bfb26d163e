"""Measure the pages' callbacks on a results tree, such as ``make_tree.py`` writes; prints one line a callback:

    python tests/bench/time_pages.py FOLDER

Times are of the server's answers without network: the first, with nothing remembered, then the median and the 95th
percentile of forty, and the CPU of one. The analysis runs in another process before, as it does beside a server; the
memory is of the process that answers.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

from dashboard import series_view
from dashboard.address import CommitAddress, FamilyAddress, OverviewAddress, SeriesAddress
from dashboard.alerts.publish import survey
from dashboard.findings import Findings
from dashboard.heatmap import heatmap
from dashboard.pages import commit, family, overview, series
from dashboard.pages.overview_cards import cards
from dashboard.pages.overview_table import table
from dashboard.pages.series_table import commit_table
from dashboard.results.picture import Results
from dashboard.results.store import Store
from dashboard.rows import quantities_of, suite_of
from dashboard.shown import Shown
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
        ask(results, machine, findings)
        print(f"memory      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB at most")


def analyse(folder: Path, cache: Path) -> None:
    """What ``lockstep alerts list`` does before it lists."""
    survey(Store.open(folder, cache=cache), Thresholds(), folder)


def ask(results: Results, machine: str, findings: Findings) -> None:
    """Print what each page's answer takes."""
    draw = random.Random(1)
    every = results.series(machine=machine)
    commits = results.commits(machine)
    thresholds = findings.thresholds
    asked = OverviewAddress(machine)

    def picture() -> Shown:
        shown = findings.picture(results, machine)
        assert shown is not None
        return shown

    def whole_overview() -> None:
        since = draw.choice(commits).hash
        stood = overview.stand(results, machine, "all", since, 0, findings)
        table(results, machine, stood)
        cards(stood, picture())
        heatmap(stood, "change", "light")

    def one_series() -> None:
        one = draw.choice(every)
        case = ",".join(f"{name}={value}" for name, value in one.axes)
        address = SeriesAddress(machine, suite_of(results.benchmarks[one.benchmark]), "", case)
        shown = series_view.view(results, address, picture())
        assert shown.points
        series_view.chart(results, address, shown, "light")
        commit_table(commits, machine, shown.points, shown.what)
        series.facts(shown, picture())

    def one_family() -> None:
        suite = suite_of(results.benchmarks[draw.choice(every).benchmark])
        cases = tuple(sorted({key[3] for key in family.series_of(results, suite, machine)})[:2])
        address = FamilyAddress(machine, suite, cases, "", quantities_of(results, suite)[:1], ("",))
        assert family.trends(results, address, "light", picture())
        family.latest(results, address, "light")

    def one_commit() -> None:
        assert commit.compare(results, machine, draw.choice(commits).hash, picture(), thresholds)

    questions: dict[str, Callable[[], object]] = {
        "overview": whole_overview,
        "layout": lambda: overview.layout(results, asked),
        "series": one_series,
        "family": one_family,
        "commit": one_commit,
        "commit page": lambda: commit.layout(results, CommitAddress(draw.choice(commits).hash, machine)),
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
        print(f"{name:11} {told}", flush=True)


if __name__ == "__main__":
    main()
