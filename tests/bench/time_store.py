"""Measure the store on a results tree, such as ``make_tree.py`` writes; prints one line a figure:

    python tests/bench/time_store.py FOLDER

Wall times tell of two cores only where nothing else runs; CPU seconds are printed beside the ingest.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lockstep.history.point_columns import COLUMNS
from lockstep.history.store import Store


def main() -> None:
    """Ingest the tree into a fresh cache, then ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, help="keep the store's cache here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        store = Store.open(args.folder, cache=cache)
        done = store.refresh()
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu = sum(one.ru_utime + one.ru_stime for one in used)
        print(f"ingest     {done.files} files, {done.points} points: {done.seconds:.2f} s, {cpu:.1f} s of CPU")
        print(
            f"memory     {used[0].ru_maxrss >> 10} MB here, {used[1].ru_maxrss >> 10} MB in the largest other process"
        )
        again, anew = fastest(store.refresh), reopened(args.folder, cache)
        print(f"unchanged  {1e3 * again:.0f} ms; with a new store {1e3 * anew:.0f} ms")
        ask(store)


def reopened(folder: Path, cache: Path) -> float:
    """Seconds from opening to a picture, the imports being there."""
    return fastest(lambda: Store.open(folder, cache=cache).current())


def ask(store: Store) -> None:
    """Print what the pages' questions take, on the first machine."""
    results, draw = store.current(), random.Random(1)
    machine = next(iter(results.machines))
    series = results.series(machine=machine)
    questions: dict[str, Callable[[], object]] = {
        "one series": lambda: list(results.trends([draw.choice(series)])),
        "20 series": lambda: list(results.trends(draw.sample(series, min(20, len(series))))),
        "latest": lambda: results.columns(machine, COLUMNS),
        "one commit": lambda: results.at(draw.choice(results.commits(machine)).hash, machine),
        "machine": lambda: sum(map(len, results.trends(series))),
    }
    for name, question in questions.items():
        before, began = bytes_read(), time.process_time()
        question()
        cpu, read = time.process_time() - began, bytes_read() - before
        print(f"{name:10} {1e3 * fastest(question):.1f} ms; first {1e3 * cpu:.0f} ms of CPU, {read / 1e6:.1f} MB read")
    print(f"memory     {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB at most")


def bytes_read() -> int:
    """Bytes that this process has read, also from the page cache."""
    return int(Path("/proc/self/io").read_text().split()[1])


def fastest(question: Callable[[], object], times: int = 7) -> float:
    """Seconds, the best of some."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        question()
        found.append(time.perf_counter() - began)
    return min(found)


if __name__ == "__main__":
    main()
