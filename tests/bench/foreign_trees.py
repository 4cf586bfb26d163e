"""Put asv's own loader beside ours, file by file and number by number, over results folders of any project.

    python tests/bench/foreign_trees.py FOLDER…

A folder is asv's results folder: it holds a folder for each machine, with ``machine.json`` in it. Prints a row for
each tree: its result files, how many of them ``asv.results.Results.load`` loads, how many are loaded here, how many
numbers were compared, and what is noted about files. Exit status: 1 if asv loads a file or a number that is not the
same here.
"""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
from collections import Counter
from pathlib import Path

from asv.results import Results, iter_results_paths
from asv.util import UserError

from lockstep.history import display_names as names
from lockstep.history.store import Store

_SKIPPED = ("machine.json", "benchmarks.json")


def main(folders: list[str]) -> int:
    """Compare each folder; gives the exit status."""
    wrong = False
    for folder in map(Path, folders):
        with tempfile.TemporaryDirectory() as cache:
            wrong |= _compare(folder, Path(cache))
    return int(wrong)


def _compare(root: Path, cache: Path) -> bool:
    results = Store.open(root, cache=cache).current()
    refused = {one.path for one in results.problems if one.weight == "file"}
    read = {path: (run, run.repeats) for run in results.runs for path in (run.path, *run.repeats)}
    there = sum(one.suffix == ".json" and one.name not in _SKIPPED for one in root.rglob("*.json"))
    said: Counter[str] = Counter()
    missing: list[str] = []
    numbers = differing = 0
    for folder, name, machine in iter_results_paths(str(root)):
        path = Path(folder, name)
        where = path.relative_to(root).as_posix()
        try:
            asv = Results.load(str(path), machine_name=machine)
        except UserError as error:
            said["old" if "asv update" in str(error) else "other machine" if "machine name" in str(error) else "?"] += 1
            continue
        said["loads"] += 1
        if where in refused:
            missing.append(where)
        run, repeated = read.get(where, (None, ()))
        if run is None or repeated:
            continue  # a file without numbers, a copy, or one of those that a mean is made of
        ours = {(one.series.benchmark, one.series.axes): one.value for one in results.at(run.commit, run.machine)}
        for key in asv.get_all_result_keys():
            params = asv.get_result_params(key) or []
            for values, value in zip(itertools.product(*params), asv.get_result_value(key, params), strict=True):
                if isinstance(value, int | float) and math.isfinite(value) and value:
                    numbers += 1
                    differing += ours.get((key, names.axes(results.benchmarks[key], values))) != value
    notes = Counter(one.kind for one in results.notes)
    print(f"{root}: {there} files, asv loads {said['loads']}, loaded here {there - len(refused)}", end="")
    print(f", {numbers} numbers compared, {differing} differ; asv refuses: {dict(said - Counter(loads=said['loads']))}")
    for kind, count in (Counter(one.kind for one in results.problems) + notes).most_common():
        print(f"    {count:6} {'' if kind in notes else 'NOT READ '}{kind}")
    for where in missing:
        print(f"    asv loads {where}, and it is refused here")
    return bool(missing or differing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
