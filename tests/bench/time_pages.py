"""Measure the pages' callbacks on a results tree, such as ``make_tree.py`` writes; prints one line a callback:

    python tests/bench/time_pages.py FOLDER

Times are of the server's answers without network: the first, with nothing remembered, then the median and the 95th
percentile of twenty. The last lines are the analysis of one machine, which runs beside the pages, and the memory.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dashboard.address import CommitAddress, FamilyAddress, OverviewAddress, SeriesAddress
from dashboard.alerts.watch import Picture
from dashboard.findings import Findings
from dashboard.heatmap import heatmap
from dashboard.pages import commit, family, overview, series
from dashboard.pages.overview_cards import cards
from dashboard.pages.overview_table import table
from dashboard.results.picture import Results
from dashboard.results.store import Store
from dashboard.rows import quantities_of, suite_of


def main() -> None:
    """Open the tree, ask every page, then let the analysis run and ask again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, help="keep the store's cache here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = Store.open(args.folder, cache=args.cache or Path(scratch))
        done = store.refresh()
        print(f"ingest     {done.files} files, {done.points} points: {done.seconds:.1f} s")
        results = store.current()
        machine = next(iter(results.machines))
        findings = Findings(args.folder)
        ask(results, machine, None, findings)
        sys.stdout.flush()
        began = time.perf_counter()
        while (picture := findings.picture(results, machine)) is None:
            time.sleep(0.1)
        print(f"analysis   {time.perf_counter() - began:.1f} s for {len(picture.analyses)} series")
        ask(results, machine, picture, findings)
        print(f"memory     {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB at most")


def ask(results: Results, machine: str, picture: Picture | None, findings: Findings) -> None:
    """Print what each page's answer takes."""
    draw = random.Random(1)
    every = results.series(machine=machine)
    commits = results.commits(machine)
    thresholds = findings.thresholds

    def whole_overview() -> None:
        since = overview.reference(results, machine, draw.choice(commits).hash)
        stood = overview.standings(results, machine, since, picture, thresholds)
        table(results, machine, stood)
        cards(stood, picture)
        heatmap(stood, "change", "light")

    def one_series() -> None:
        one = draw.choice(every)
        case = ",".join(f"{name}={value}" for name, value in one.axes)
        address = SeriesAddress(machine, suite_of(results.benchmarks[one.benchmark]), "", case)
        shown = series.view(results, address, picture)
        assert shown.points
        series.chart(results, address, shown, "light")
        series.commit_table(results, address, shown)
        series.facts(shown, picture)

    def one_family() -> None:
        suite = suite_of(results.benchmarks[draw.choice(every).benchmark])
        cases = tuple(sorted({key[3] for key in family.series_of(results, suite, machine)})[:2])
        address = FamilyAddress(machine, suite, cases, "", quantities_of(results, suite)[:1], ("",))
        assert family.trends(results, address, "light", picture)
        family.latest(results, address, "light")

    def one_commit() -> None:
        assert commit.compare(results, machine, draw.choice(commits).hash, picture, thresholds)

    questions: dict[str, Callable[[], object]] = {
        "overview": whole_overview,
        "layout": lambda: overview.layout(results, OverviewAddress(machine)),
        "series": one_series,
        "family": one_family,
        "commit": one_commit,
        "commit page": lambda: commit.layout(results, CommitAddress(draw.choice(commits).hash, machine)),
    }
    for name, question in questions.items():
        times = []
        for _ in range(21):
            began = time.perf_counter()
            question()
            times.append(1e3 * (time.perf_counter() - began))
        first, rest = times[0], sorted(times[1:])
        print(f"{name:11} first {first:.0f} ms, then median {rest[10]:.0f} ms, p95 {rest[18]:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
