"""A results tree with something of everything, for tests of pages and to look at them:

    python tests/showcase.py FOLDER && lockstep dashboard --results FOLDER/results --repo FOLDER/repo

Three machines, 60 commits, two suites and another project's benchmarks; steps with code, toolchain and machine
behind them, a series that fails, one that stopped.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from history import CASES, START_MS, VARIANT, Here, commits_of, write_history

from lockstep.record.file import SUFFIX, read_records, write_records

COMMITS = 60
FAST, FREE, SLOW = "h200-locked-1500", "h200-unlocked", "b200-locked-1500"

#: Another project's benchmarks: type, unit, names of the parameters, their values, and a number at commit ``n``.
FOREIGN = {
    "io.Load.time_load": ("time", "seconds", ["path", "rows"], [["'a.csv'", "'b,c.csv'"], ["10", "1000"]]),
    "io.Load.peakmem_load": ("peakmemory", "bytes", ["rows"], [["10", "1000"]]),
    "index.track_depth": ("track", "levels", [], []),
}


def write_showcase(folder: Path, number: int = COMMITS) -> tuple[Path, Path]:
    """Write ``results`` and ``repo`` below the folder; gives both."""
    results, repo = folder / "results", folder / "repo"
    commits = commits_of(repo, number)

    def linear(n: int) -> Here:
        step = 1.07 if n >= number * 2 // 3 else 1.0
        return Here(slower=step, code="ab12" if step > 1 else "cd34")

    def kda(n: int) -> Here:
        new = n >= number // 2
        return Here(slower=0.9 if new else 1.0, host={"triton": "3.7.1"} if new else {}, code="ef56")

    write_history(results, FAST, commits, linear)
    write_history(results, FREE, commits, linear, every=3)
    write_history(results, SLOW, commits, kda, suite="kda")
    _fail(results / FAST, commits[-1])
    _write_foreign(results, "laptop", commits)
    return results, repo


def _fail(folder: Path, commit: str) -> None:
    """The largest case gives a wrong result at a commit."""
    path = folder / f"{commit[:8]}-lockstep{SUFFIX}"
    provenance, records = read_records(path)
    wrong = {"state": "failed", "reason": "wrong result: 0.3 off", "latency": None, "speedup": None}
    write_records(
        path,
        provenance,
        [replace(one, **wrong) if one.variant == VARIANT and one.case == CASES[-1] else one for one in records],
    )


def _write_foreign(results: Path, machine: str, commits: list[str]) -> None:
    table = {
        name: {"name": name, "type": kind, "unit": unit, "param_names": names, "params": params, "version": "1"}
        for name, (kind, unit, names, params) in FOREIGN.items()
    }
    path = results / "benchmarks.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | table))
    (results / machine).mkdir()
    for n, commit in enumerate(commits):
        date = START_MS + n * 86_400_000
        content = {
            "commit_hash": commit,
            "env_name": "virtualenv",
            "date": date,
            "params": {"machine": machine, "python": "3.12"},
            "python": "3.12",
            "requirements": {},
            "env_vars": {},
            "result_columns": ["result", "params", "version", "started_at", "duration"],
            "results": {
                name: [values, FOREIGN[name][3], "1", date, 1.0]
                for name, values in (
                    ("io.Load.time_load", [1e-3, 0.2, 2e-3, 0.5 if n > 30 else 0.4]),
                    ("io.Load.peakmem_load", [50e6, 90e6]),
                    ("index.track_depth", [n // 20]),
                )
            },
            "durations": {},
            "version": 2,
        }
        (results / machine / f"{commit[:8]}-virtualenv.json").write_text(json.dumps(content))


if __name__ == "__main__":
    print(*write_showcase(Path(sys.argv[1])), sep="\n")
