"""Measure the analysis on a results tree, such as ``make_tree.py`` writes; prints one line a figure:

    python tests/bench/time_analysis.py FOLDER

Times the first analysis, the same results again, and one more commit of every machine, which is written to the tree:
from the new files to the findings and alerts, part by part, in a running process. The last lines time ``lockstep alerts
list --no-list`` as the dashboard runs it, including start and imports. CPU seconds include child processes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from random import Random
from statistics import median
from typing import TypeVar

from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.location import STATE
from lockstep.alerts.database.store import AlertStore
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

T = TypeVar("T")

START = "from lockstep.commands.cli import main; main()"


def main() -> None:
    """Analyse, analyse again, and after each further commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, help="keep the store's cache and the alerts here")
    parser.add_argument("--commits", type=int, default=9, help="further commits (default: %(default)s)")
    args = parser.parse_args()
    # As the verb does it.
    gc.disable()
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        analyse("first", args.folder, cache)
        analyse("again", args.folder, cache)
        several = []
        for _ in range(args.commits):
            add_commit(args.folder)
            several.append(analyse("one commit", args.folder, cache))
        for what, of in (("median", median), ("fastest", min)):
            took, used = (of(one) for one in zip(*several, strict=True))
            print(f"one commit  {took:.2f} s, {used:.2f} s of CPU: the {what}")
        here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"memory      {here} MB")
        whole = [outside(args.folder, cache, new) for new in (True, False) for _ in range(3)]
        for what, times in (("one commit", whole[:3]), ("nothing new", whole[3:])):
            took, used = (median(one) for one in zip(*times, strict=True))
            print(f"{what:11} {took:.2f} s, {used:.2f} s of CPU, in a process of its own")
        used = median(start(args.folder, cache) for _ in range(3))
        print(f"process     {used:.2f} s of CPU to start and to import")


def analyse(what: str, folder: Path, cache: Path) -> tuple[float, float]:
    """Do what ``lockstep alerts list`` does before it lists; print each part, return seconds and CPU seconds."""
    alerts = AlertStore(Database(cache / "alerts.sqlite"))
    parts: dict[str, float] = {}

    def timed(part: str, do: Callable[[], T]) -> T:
        began = time.perf_counter()
        done = do()
        parts[part] = time.perf_counter() - began
        return done

    thresholds, before = Thresholds(), cpu()
    store = Store.open(folder, cache=cache)
    results, file = timed("files", store.current), AnalysisFile(store.cache)
    now = datetime.now(UTC)
    result = timed("changes", lambda: analyse_results(results, thresholds, Ranges(folder), now, file))
    timed("alerts", lambda: alerts.sync(result))
    took, used = sum(parts.values()), cpu() - before
    each = ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items())
    found = f"{sum(result.series.values())} series, {len(result.changes)} changes, {len(result.alerts)} alerts"
    print(f"{what:11} {took:.2f} s, {used:.2f} s of CPU ({each}); {found}", flush=True)
    return took, used


def outside(folder: Path, cache: Path, new: bool) -> tuple[float, float]:
    """Run the verb in its own process, after a further commit if ``new``; return seconds and CPU seconds."""
    if new:
        add_commit(folder)
    began, before = time.perf_counter(), cpu()
    verb = ["alerts", "list", "--no-list", "--results", str(folder), "--cache", str(cache)]
    environment = os.environ | {STATE: str(cache / "alerts.sqlite")}
    subprocess.run([sys.executable, "-c", START, *verb], env=environment, check=True)
    return time.perf_counter() - began, cpu() - before


def start(folder: Path, cache: Path) -> float:
    """Return the CPU seconds of start and imports: those of an analysis of an empty folder."""
    nothing = cache / "nothing"
    nothing.mkdir(exist_ok=True)
    outside(nothing, cache / "of nothing", new=False)
    return outside(nothing, cache / "of nothing", new=False)[1]


def add_commit(folder: Path) -> None:
    """Write one more commit of every machine, an hour after its newest, with the numbers of a recent one."""
    for machine in sorted(path.parent for path in folder.glob("*/machine.json")):
        contents = sorted((json.loads(path.read_bytes()) for path in newest(machine)), key=lambda one: one["date"])
        before = contents[-1]
        content = Random(before["commit_hash"]).choice(contents)
        content["date"] = before["date"] + 3_600_000
        content["commit_hash"] = sha1(f"after {before['commit_hash']}".encode()).hexdigest()
        (machine / f"{content['commit_hash'][:8]}-{content['env_name']}.json").write_text(json.dumps(content))


def newest(machine: Path) -> list[Path]:
    """Return the newest files by the clock of the file system."""
    files = [path for path in machine.glob("*.json") if path.name != "machine.json"]
    return sorted(files, key=lambda path: path.stat().st_mtime_ns)[-20:]


def cpu() -> float:
    """Return the CPU seconds used so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
