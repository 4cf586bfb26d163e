"""Small results trees: records of ours and asv's files around them, as a run would write them."""

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.compare.read_rows import rows_over
from lockstep.history import point_columns
from lockstep.history.store import Store
from lockstep.record.file import write_records
from lockstep.record.model import Clocks, Estimate, Provenance, Record
from lockstep.suite.thresholds import Thresholds

COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25"]
MACHINE = "h200-locked@1500"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
DATE = 1_790_000_000_000


def record(variant="splitk", case="M=8,K=4096,N=2048", l2="cold", suite="linear", **changes):
    """A record as one measurement leaves it: 5 µs, 1.9 times the baseline, bound by bandwidth."""
    base = Record(
        suite=suite,
        variant=variant,
        case=case,
        l2=l2,
        state="ok",
        version="ruler1",
        latency=Estimate(5e-6, 4.9e-6, 5.2e-6),
        speedup=Estimate(1.9, 1.87, 1.92),
        flops=2 * 8 * 4096 * 2048,
        bytes=16.8e6,
        floor_s=3.92e-6,
        floor_source="measured",
        mde=0.004,
        rounds=20,
        clocks=Clocks(sm_mhz=1500.0),
        started_at="2026-09-21T14:00:00+00:00",
    )
    return replace(base, **changes)


def write_measurement(root, records, machine=MACHINE, commit=COMMIT, date=DATE, environment="existing", proof=True):
    """Write asv's file and (``proof``) the provenance beside it, as a run would; returns asv's file."""
    path = root / machine / f"{commit[:8]}-{environment}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    results = {}
    for suite in dict.fromkeys(one.suite for one in records):
        ours = {(one.variant, one.case, one.l2): one for one in records if one.suite == suite}
        axes = [list(dict.fromkeys(part)) for part in zip(*ours, strict=True)]
        every = [ours.get(key) for key in itertools.product(*axes)]
        for quantity in ("latency", "speedup"):
            values = [one and getattr(one, quantity) for one in every]
            skipped = [one is None or one.state == "na" for one in every]
            separator = "_" if "." in suite else "."
            results[f"{suite}{separator}{quantity}"] = [
                [v.value if v else float("nan") if na else None for v, na in zip(values, skipped, strict=True)],
                [[repr(value) for value in axis] for axis in axes],
                next(iter(ours.values())).version,
                date + 3_600_000,
                1.5,
                [v.low if v else None for v in values],
                [v.high if v else None for v in values],
            ]
    path.write_text(
        json.dumps(
            {
                "commit_hash": commit,
                "env_name": environment,
                "date": date,
                "params": {"machine": machine, "python": "3.12"},
                "python": "3.12",
                "requirements": {},
                "env_vars": {},
                "result_columns": COLUMNS,
                "results": results,
                "durations": {},
                "version": 2,
            }
        )
    )
    if proof:
        provenance = Provenance(
            commit=commit,
            environment=environment,
            machine=machine,
            recorded_at="2026-09-21T14:00:00+00:00",
            harness="",
            clock_state="locked@1500",
            host={"gpu": "NVIDIA H200"},
            controls={
                "copy": {"seconds": 1.25e-4, "spread": 0.002, "rate": 4.3e12, "unit": "B/s"},
                "matmul": {"seconds": 1.8e-4, "spread": 0.003, "rate": 790.0, "unit": "TFLOP/s"},
            },
            protocol=1,
        )
        write_records(path.with_name(path.name.replace(".json", ".provenance.jsonl")), provenance, records)
    return path


def write_plain(root, numbers, machine="box", commit=COMMIT, date=DATE, environment="virtualenv-py3.11", **strings):
    """Write a file of another project: ``numbers`` holds a number, or one for each text of a parameter, by benchmark.

    ``strings`` are the machine's strings. Returns the file.
    """
    path = root / machine / f"{commit[:8]}-{environment}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"arch": "x86_64", "cpu": "c", "machine": path.parent.name, "num_cpu": "8", "os": "Linux 6.1"} | strings
    (path.parent / "machine.json").write_text(json.dumps({**facts, "version": 1}))
    results = {
        name: [list(value.values()), [list(value)], "1", date, 1.0]
        if isinstance(value, dict)
        else [[value], [], "1", date]
        for name, value in numbers.items()
    }
    data = {
        "commit_hash": commit,
        "env_name": environment,
        "date": date,
        "params": facts,
        "python": "3.11",
        "requirements": {},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": results,
        "durations": {},
        "version": 2,
    }
    path.write_text(json.dumps(data))
    return path


def edit(path, change):
    """Change asv's file in place."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def open_store(root, **options):
    """The store of a tree, with its cache beside it, that looks at the files whenever it is asked."""
    return Store.open(root, **{"cache": root.parent / f"{root.name}-cache", "patience": 0.0} | options)


def analysed(store, repo):
    """What was found in a store, analysed here and now, as pages read it."""
    analyse_store(store, Thresholds(), repo)
    return Findings(store.cache, repo)


def read(root, **options):
    """A picture of the tree."""
    return open_store(root, **options).current()


def every_row(results):
    """All rows that pages would show, by machine, series and commit."""
    machines = results.machines
    return [row for name in machines for row in rows_over(results, name, results.keys(name).keys)]


def points_in(results, *series):
    """Every point of these series, sorted by machine, series and commit."""
    own = {name: [one for one in series if one.machine == name] for name in results.machines}
    return [
        point
        for name, asked in own.items()
        for point in results.points_of(name, results.columns(name, point_columns.COLUMNS, series=asked))
    ]


def newest_points(results, machine):
    """The newest point of each series of a machine, in the order of ``series()``."""
    return list(results.points_of(machine, results.columns(machine, point_columns.COLUMNS)))


def recorded(folder, *machines):
    """Copy these machines of the recorded results into a results folder of their own; gives its path."""
    results = Path(__file__).parents[1] / "results"
    for machine in machines:
        shutil.copytree(results / machine, folder / "results" / machine)
    shutil.copy(results / "benchmarks.json", folder / "results")
    return folder / "results"
