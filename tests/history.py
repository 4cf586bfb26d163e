"""Results trees with planted events: asv's files by asv's own writer, provenance by ours."""

from __future__ import annotations

import datetime
import json
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from asv.results import Results
from asv.runner import BenchmarkResult

from lockstep.record.file import SUFFIX, write_records
from lockstep.record.model import Code, CostEstimate, Estimate, Kernel, Provenance, Record
from lockstep.record.quantity import COSTS, QUANTITIES, type_of

BASELINE, VARIANT = "torch", "triton"
CASES = ("M=1,K=64", "M=8,K=64", "M=64,K=64")
START_MS = 1_600_000_000_000
DAY_MS = 86_400_000
HOST = {
    "gpu": "NVIDIA H200",
    "gpu_uuid": "GPU-1",
    "driver": "580.1",
    "cuda": "13.0",
    "torch": "2.11.0",
    "triton": "3.6.0",
}


@dataclass(frozen=True)
class Here:
    """How a machine stands at one commit; what a test plants is a function from the commit's number to this.

    Attributes:
        slower: factor of the variant's time, baseline: of the baseline's, everything: of all times and controls.
        host: facts that differ from ``HOST``.
        code: fingerprint of the variant's machine code; "" unknown.
        costs: factor of each cost of the variant, by the quantity that a suite would ask for; {} none was measured.
        mde: smallest change that a run could have shown, as a share; ``None`` unknown.
        deterministic: what the check of the variant said; ``None`` if it did not say it.
        best: factor of the time of a variant "best", which gives the GPU the baseline's work; ``None`` without one.
        copies: number of the commit whose numbers are copied, because it has the same work; ``None`` to measure.
    """

    slower: float = 1.0
    baseline: float = 1.0
    everything: float = 1.0
    host: Mapping[str, str] = field(default_factory=dict)
    version: str = "ruler1"
    protocol: int = 1
    code: str = ""
    costs: Mapping[str, float] = field(default_factory=dict)
    best: float | None = None
    copies: int | None = None
    deterministic: bool | None = None
    mde: float | None = None


def commits_of(repo: Path, number: int, touch: Callable[[int], bool] = lambda n: True) -> list[str]:
    """A repository with this many commits, one a day; those that ``touch`` change ``kernels/``."""
    repo.mkdir(parents=True)
    stream = []
    for n in range(number):
        path = "kernels/linear/__init__.py" if touch(n) else "notes.txt"
        when = (START_MS + n * DAY_MS) // 1000
        text = f"{n}\n"
        stream += [
            f"commit refs/heads/main\ncommitter T <t@example.org> {when} +0000\ndata <<EOT\nCommit {n}\nEOT",
            f"M 644 inline {path}\ndata {len(text)}\n{text}",
        ]
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=repo, check=True)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repo, input="\n".join(stream), text=True, check=True)
    listed = subprocess.run(
        ["git", "rev-list", "--reverse", "main"], cwd=repo, check=True, capture_output=True, text=True
    )
    return listed.stdout.split()


def write_history(
    results: Path,
    machine: str,
    commits: Sequence[str],
    planted: Callable[[int], Here],
    suite: str = "linear",
    first: int = 0,
    every: int = 1,
) -> None:
    """Results of ``commits[first::every]``, one commit a day; a ratio scatters by 0.1 %, a latency by 0.3 %."""
    dice = random.Random(f"{machine} {suite}")
    folder = results / machine
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.json").write_text(json.dumps({"machine": machine, "arch": "x86_64", "version": 1}))
    benchmarks = {}
    written: dict[int, list[Record]] = {}
    # A commit may copy the numbers of a later one, because a run may begin with the newest commit.
    for number in sorted(range(first, len(commits), every), key=lambda number: planted(number).copies is not None):
        here, commit = planted(number), commits[number]
        if here.copies is None:
            records = written[number] = list(_records(dice, here, suite, number))
        else:
            copied = commits[here.copies]
            records = [replace(one, same_work_as=copied, code=None, started_at="") for one in written[here.copies]]
        quantities = ("latency", "speedup", *(one for name in here.costs for one in COSTS[name]))
        benchmarks = {f"{suite}.{quantity}": _benchmark(suite, quantity, here) for quantity in quantities}
        _write_asv(results, machine, commit, number, benchmarks, records)
        provenance = Provenance(
            commit=commit,
            environment="lockstep",
            machine=machine,
            recorded_at=_time(number).isoformat(),
            harness="",
            clock_state="unlocked",
            host=HOST | dict(here.host),
            controls={
                "copy": {
                    "seconds": 1e-4 * here.everything * dice.gauss(1, 0.001),
                    "spread": 0.001,
                    "rate": 4e12,
                    "unit": "B/s",
                }
            },
            protocol=here.protocol,
        )
        write_records(folder / f"{commit[:8]}-lockstep{SUFFIX}", provenance, records)
    path = results / "benchmarks.json"
    known = json.loads(path.read_text()) if path.exists() else {"version": 2}
    path.write_text(json.dumps(known | benchmarks))


def _records(dice: random.Random, here: Here, suite: str, number: int) -> list[Record]:
    records = []
    for index, case in enumerate(CASES):
        base = 1e-5 * (1 + index) * here.everything * here.baseline * dice.gauss(1, 0.003)
        ratio = 1.5 * here.baseline / here.slower * dice.gauss(1, 0.001)
        arms = [(BASELINE, 1.0), (VARIANT, ratio)]
        if here.best is not None:
            arms.append(("best", 1.5 / here.best * dice.gauss(1, 0.001)))
        for variant, ratio in arms:
            records.append(
                Record(
                    suite=suite,
                    variant=variant,
                    case=case,
                    l2="cold",
                    state="ok",
                    version=here.version,
                    latency=Estimate(base / ratio, base / ratio * 0.997, base / ratio * 1.003),
                    speedup=Estimate(ratio, *((0.998 * ratio, 1.002 * ratio) if variant != BASELINE else (1.0, 1.0))),
                    rounds=20,
                    epochs=4,
                    mde=here.mde,
                    baseline=BASELINE,
                    started_at=_time(number).isoformat(),
                    code=_code(here.code, variant),
                    work=f"{1000 * here.slower + (variant == VARIANT):08.0f}" if here.best is not None else "",
                    deterministic=here.deterministic,
                    costs=_costs(dice, here, index, variant),
                )
            )
    return records


#: A cost of the baseline's first case, and its scatter from commit to commit.
LEVELS = {"host": (2e-5, 0.01), "behind": (1.1e-5, 0.003), "energy": (2e-3, 0.01), "compile": (1.5, 0.03)}


def _costs(dice: random.Random, here: Here, index: int, variant: str) -> dict[str, CostEstimate]:
    """The variant costs as much as the baseline, unless something is planted."""
    found = {}
    for name, factor in here.costs.items():
        level, scatter = LEVELS[name]
        value = level * (1 + index) * (factor if variant == VARIANT else 1.0) * dice.gauss(1, scatter)
        found[name] = _estimate(value, scatter)
        if name == "behind":
            found["behind_speedup"] = _estimate(1 / factor if variant == VARIANT else 1.0, 0.001, dice)
    return found


def _estimate(value: float, scatter: float, dice: random.Random | None = None) -> CostEstimate:
    value *= dice.gauss(1, scatter) if dice else 1.0
    return CostEstimate(value, value * (1 - scatter), value * (1 + scatter), 5)


def _code(fingerprint: str, variant: str) -> Code | None:
    """The baseline calls torch, and its own code never changes."""
    if not fingerprint:
        return None
    kernels = (Kernel("matmul", fingerprint, registers=168, spills=0, shared=49152),) if variant == VARIANT else ()
    return Code(kernels, host=f"host of {variant}")


def _benchmark(suite: str, quantity: str, here: Here) -> dict[str, Any]:
    variants = (BASELINE, VARIANT, "best") if here.best is not None else (BASELINE, VARIANT)
    return {
        "name": f"{suite}.{quantity}",
        "code": "",
        "type": type_of(quantity),
        "unit": QUANTITIES[quantity].unit,
        "version": here.version,
        "timeout": 60,
        "param_names": ["variant", "case", "l2"],
        "params": [[repr(one) for one in axis] for axis in (variants, CASES, ("cold",))],
        "suite": suite,
        "quantity": quantity,
    }


def _write_asv(
    results: Path, machine: str, commit: str, number: int, benchmarks: Mapping[str, Any], records: Sequence[Record]
) -> None:
    params = {"machine": machine, "arch": "x86_64", "python": "3.12"}
    file = Results(params, {}, commit, START_MS + number * DAY_MS, "3.12", "lockstep", {})
    by_key = {(one.variant, one.case): one for one in records}
    variants = dict.fromkeys(one.variant for one in records)
    for name, benchmark in benchmarks.items():
        values = [by_key[variant, case] for variant in variants for case in CASES]
        quantity = name.rpartition(".")[2]
        numbers = [(one.costs.get(quantity) or getattr(one, quantity)).value for one in values]
        outcome = BenchmarkResult(numbers, [None] * len(numbers), [None] * len(numbers), 0, "", None)
        file.add_result(benchmark, outcome, _time(number))
    file.save(str(results))


def _time(number: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp((START_MS + number * DAY_MS) / 1000, datetime.UTC)


def write_foreign(
    results: Path,
    machine: str,
    commits: Sequence[str],
    seconds: Callable[[int], float],
    number: Callable[[int], int] = lambda n: 10,
    requirements: Callable[[int], Mapping[str, str]] = lambda n: {},
) -> None:
    """Results of another project's ``sorting.TimeSort.time_sort`` with one parameter, sampled as asv does."""
    dice = random.Random(machine)
    benchmark = {
        "name": "sorting.TimeSort.time_sort",
        "code": "",
        "type": "time",
        "unit": "seconds",
        "version": "1",
        "timeout": 60,
        "param_names": ["size"],
        "params": [["100", "1000"]],
    }
    folder = results / machine
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.json").write_text(json.dumps({"machine": machine, "arch": "x86_64", "version": 1}))
    (results / "benchmarks.json").write_text(json.dumps({"version": 2, benchmark["name"]: benchmark}))
    for n, commit in enumerate(commits):
        params = {"machine": machine, "arch": "x86_64", "python": "3.12"}
        file = Results(
            params, dict(requirements(n)), commit, START_MS + n * DAY_MS, "3.12", f"env{requirements(n)}", {}
        )
        levels = [seconds(n) * dice.gauss(1, 0.004) for _ in range(2)]
        samples = [[level * dice.gauss(1, 0.002) for _ in range(8)] for level in levels]
        outcome = BenchmarkResult([True, True], samples, [number(n)] * 2, 0, "", None)
        file.add_result(benchmark, outcome, _time(n), record_samples=True)
        file.save(str(results))
