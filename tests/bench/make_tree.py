"""Write a large asv results tree, to measure the store and the dashboard with:

    python tests/bench/make_tree.py FOLDER --machines 4 --commits 2000 --series 1200

Files are what ``asv run`` writes for time benchmarks: medians, 99 % intervals, quartiles, number and repeat. Each
series is 1 % log-normal noise with a few steps, so that analysis has something to find. Benchmarks have in turn many
sizes of few variants and few sizes of many: a page shows the ones side by side, the others in one chart.
"""

from __future__ import annotations

import argparse
import json
from hashlib import sha1
from itertools import cycle
from pathlib import Path

import numpy as np

COLUMNS = (
    *("result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"),
    *("stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples", "profile"),
)
BEGIN = 1_700_000_000_000
HOUR = 3_600_000
#: Sizes and variants of a benchmark, by turns; as many series either way.
SHAPES = ((20, 3), (3, 20))
SIZE = 60
VERSION = "1" * 64


def write_tree(
    root: Path, machines: int, commits: int, series: int, seed: int = 0, together: bool = False, steps: float = 2
) -> None:
    """Write ``machines × commits`` files of ``series`` parameters' values each, 60 a benchmark.

    A series has ``steps`` steps on average. With ``together``, all series of a benchmark step at once, as they do when
    a commit changes what it measures.
    """
    draw = np.random.default_rng(seed)
    at_once = SIZE if together else 1
    names = [f"suite_{number}.Product.time_{number}" for number in range(series // SIZE)]
    shapes = dict(zip(names, map(_parameters, cycle(SHAPES)), strict=False))
    table = {
        name: {"name": name, "type": "time", "unit": "seconds", "param_names": ["m", "variant"], "params": shapes[name]}
        | {"version": VERSION, "code": "", "timeout": 60}
        for name in names
    }
    root.mkdir(parents=True, exist_ok=True)
    (root / "benchmarks.json").write_text(json.dumps({**table, "version": 2}))
    for machine in (f"machine-{number}" for number in range(machines)):
        (root / machine).mkdir()
        strings = {"machine": machine, "os": "Linux 6.1.0", "cpu": "a processor", "arch": "x86_64", "num_cpu": "16"}
        (root / machine / "machine.json").write_text(json.dumps({**strings, "version": 1}))
        level = np.exp(draw.uniform(-13, -4, len(names) * SIZE))
        for place in range(commits):
            many = len(level) // at_once
            factor = np.where(draw.random(many) < steps / commits, np.exp(draw.normal(0, 0.05, many)), 1)
            level *= np.repeat(factor, at_once)
            value = (level * np.exp(draw.normal(0, 0.01, len(level)))).reshape(len(names), SIZE)
            rows = {name: _row(row, shapes[name], place) for name, row in zip(names, value, strict=True)}
            _write_file(root, strings, place, rows)


def write_many(root: Path, benchmarks: int, commits: int, seed: int = 0) -> None:
    """Write a tree of one machine whose files hold very many benchmarks, without parameters."""
    draw = np.random.default_rng(seed)
    names = [f"module_{number // 100}.Suite{number // 10 % 10}.time_{number}" for number in range(benchmarks)]
    one = {"type": "time", "unit": "seconds", "param_names": [], "params": [], "version": VERSION, "code": ""}
    root.mkdir(parents=True, exist_ok=True)
    (root / "benchmarks.json").write_text(json.dumps({**{name: {"name": name, **one} for name in names}, "version": 2}))
    (root / "machine-0").mkdir()
    strings = {"machine": "machine-0", "os": "Linux 6.1.0", "cpu": "a processor", "arch": "x86_64", "num_cpu": "16"}
    (root / "machine-0" / "machine.json").write_text(json.dumps({**strings, "version": 1}))
    level = np.exp(draw.uniform(-13, -4, benchmarks))
    for place in range(commits):
        value = level * np.exp(draw.normal(0, 0.01, benchmarks))
        rows = {name: _row(value[at : at + 1], [], place) for at, name in enumerate(names)}
        _write_file(root, strings, place, rows)


def _write_file(root: Path, strings: dict[str, str], place: int, rows: dict[str, list[object]]) -> None:
    commit = sha1(f"commit {place}".encode()).hexdigest()
    content = {
        "commit_hash": commit,
        "env_name": "virtualenv-py3.12",
        "date": BEGIN + place * HOUR,
        "params": {**strings, "python": "3.12"},
        "python": "3.12",
        "requirements": {"numpy": "2.0"},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": rows,
        "durations": {},
        "version": 2,
    }
    (root / strings["machine"] / f"{commit[:8]}-virtualenv-py3.12.json").write_text(json.dumps(content))


def _parameters(shape: tuple[int, int]) -> list[list[str]]:
    sizes, variants = shape
    return [[f"{m}" for m in range(1, sizes + 1)], [f"'v{number}'" for number in range(variants)]]


def _row(value: np.ndarray, shapes: list[list[str]], place: int) -> list[object]:
    def digits(factor: float, count: int) -> list[float]:
        return [float(f"{one:.{count}g}") for one in (value * factor).tolist()]

    bounds = [digits(factor, 5) for factor in (0.985, 1.016, 0.994, 1.007)]
    counts = [[10] * len(value), [8] * len(value)]
    return [digits(1, 16), shapes, VERSION, BEGIN + place * HOUR + 60_000, 3.21, *bounds, *counts]


def main() -> None:
    """Write the tree that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--series", type=int, default=1200, help=f"a multiple of {SIZE}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=float, default=2, help="steps of a series, on average (default: %(default)s)")
    parser.add_argument("--benchmarks", type=int, help="write one machine with this many benchmarks a file instead")
    parser.add_argument("--together", action="store_true", help="all series of a benchmark step at once")
    args = parser.parse_args()
    if args.benchmarks:
        write_many(args.folder, args.benchmarks, args.commits, args.seed)
    else:
        write_tree(args.folder, args.machines, args.commits, args.series, args.seed, args.together, args.steps)


if __name__ == "__main__":
    main()
