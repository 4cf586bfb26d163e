"""Measure the analysis on a results tree, such as ``make_tree.py`` writes; prints one line a figure:

    python tests/bench/time_analysis.py FOLDER

The first analysis, the same results again, and then after one more commit of every machine, which is written to the
tree (``--commits`` so many, one after the other). CPU seconds are of this process and those that it starts.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from hashlib import sha1
from pathlib import Path

from dashboard.alerts.publish import survey
from dashboard.results.store import Store
from lockstep.thresholds import Thresholds


def main() -> None:
    """Analyse, analyse again, and after each further commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, help="keep the store's cache here")
    parser.add_argument("--commits", type=int, default=3, help="further commits (default: %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        analyse("first", args.folder, cache)
        analyse("again", args.folder, cache)
        for _ in range(args.commits):
            add_commit(args.folder)
            analyse("one commit", args.folder, cache)
    used = [resource.getrusage(who).ru_maxrss >> 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"memory      {used[0]} MB here, {used[1]} MB in the largest other process")


def analyse(what: str, folder: Path, cache: Path) -> None:
    """Print what one analysis takes, besides the reading of files that are new."""
    store = Store.open(folder, cache=cache)
    read = store.refresh().seconds
    began, before = time.perf_counter(), cpu()
    _, picture = survey(store, Thresholds(), folder)
    took, used = time.perf_counter() - began, cpu() - before
    print(
        f"{what:11} {took:.2f} s, {used:.2f} s of CPU, {picture.series} series; files read in {read:.1f} s", flush=True
    )


def add_commit(folder: Path) -> None:
    """One more commit of every machine, a copy of its newest with another hash, an hour later."""
    for machine in sorted(path.parent for path in folder.glob("*/machine.json")):
        dates = {path: json.loads(path.read_bytes())["date"] for path in newest(machine)}
        last = max(dates, key=lambda path: dates[path])
        content = json.loads(last.read_bytes())
        content["date"] += 3_600_000
        content["commit_hash"] = sha1(f"after {content['commit_hash']}".encode()).hexdigest()
        (machine / f"{content['commit_hash'][:8]}-{content['env_name']}.json").write_text(json.dumps(content))


def newest(machine: Path) -> list[Path]:
    """The files that were written last, as far as the clock of the file system tells."""
    files = [path for path in machine.glob("*.json") if path.name != "machine.json"]
    return sorted(files, key=lambda path: path.stat().st_mtime_ns)[-20:]


def cpu() -> float:
    """Seconds of CPU so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
