"""A recorded commit of an H200, divided between two GPUs and merged, is what it was."""

import ast
import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.fleet.merge import begin_shard, merge
from lockstep.fleet.shard import Shard, owners
from lockstep.record.file import read_records, write_records
from lockstep.suite.discovery import load_suites

ROOT = Path(__file__).parents[2]
MACHINE = "h200-unlocked"
GPUS = ("GPU-11111111", "GPU-22222222")


@pytest.fixture(scope="module")
def recorded():
    """The newest recorded result file of the machine."""
    files = sorted((ROOT / "results" / MACHINE).glob("*.provenance.jsonl"))
    return max(files, key=lambda path: read_records(path)[0].recorded_at)


def numbers(content):
    """Every entry of asv's file but times of the run, by benchmark and combination."""
    found = {}
    for name, row in content["results"].items():
        columns = dict(zip(content["result_columns"], row, strict=False))
        for place, combination in enumerate(itertools.product(*columns["params"])):
            for column in ("result", "stats_ci_99_a", "stats_ci_99_b", "stats_number", "samples"):
                if (values := columns.get(column)) is not None and values[place] is not None:
                    found[name, combination, column] = values[place]
    return {key: value for key, value in found.items() if value == value}


def divided(recorded, folder, gpu, mine):
    """The results as one GPU would have written them: its own cases, NaN for all others."""
    shutil.copytree(ROOT / "results" / MACHINE, folder / MACHINE, ignore=lambda *names: [recorded.name])
    for path in (folder / MACHINE).glob("*-lockstep.*"):
        path.unlink()
    shutil.copy(ROOT / "results" / "benchmarks.json", folder)
    provenance, records = read_records(recorded)
    own = replace(provenance, host={**provenance.host, "gpu_uuid": gpu})
    write_records(folder / MACHINE / recorded.name, own, [one for one in records if (one.suite, one.case) in mine])
    name = recorded.name.replace(".provenance.jsonl", ".json")
    content = json.loads(recorded.with_name(name).read_text())
    table = json.loads((ROOT / "results" / "benchmarks.json").read_text())
    for benchmark, row in content["results"].items():
        columns = dict(zip(content["result_columns"], row, strict=False))
        for place, (_, case, _) in enumerate(itertools.product(*columns["params"])):
            if (table[benchmark]["suite"], ast.literal_eval(case)) not in mine:
                for column, values in columns.items():
                    if values is not None and (column in ("result", "samples") or column.startswith("stats_")):
                        values[place] = math.nan if column == "result" else None
    (folder / MACHINE / name).write_text(json.dumps(content))


def test_what_two_gpus_measured_is_merged_to_the_whole(recorded, tmp_path):
    provenance, records = read_records(recorded)
    name = recorded.name.replace(".provenance.jsonl", ".json")
    owned = owners(GPUS, load_suites(ROOT / "benchmarks").values())
    cases = {(one.suite, one.case) for one in records}
    for gpu in GPUS:
        divided(recorded, tmp_path / gpu, gpu, {case for case in cases if owned.get(case, GPUS[0]) == gpu})
    assert merge([tmp_path / gpu for gpu in GPUS], tmp_path / "all").problems == ()

    whole = json.loads(recorded.with_name(name).read_text())
    assert numbers(json.loads((tmp_path / "all" / MACHINE / name).read_text())) == numbers(whole)
    shared, merged = read_records(tmp_path / "all" / MACHINE / recorded.name)
    assert {replace(one, gpu="") for one in merged} == set(records)
    assert {(one.suite, one.case): one.gpu for one in merged} == {case: owned.get(case, GPUS[0]) for case in cases}
    assert shared.host == {**provenance.host, "gpu_uuid": ", ".join(GPUS)}

    # A new runner of the second GPU goes on with what that GPU measured.
    shard = Shard(2, GPUS)
    begin_shard(tmp_path / "all", tmp_path / "new", MACHINE, shard.uuid)
    assert read_records(tmp_path / "new" / MACHINE / recorded.name) == read_records(
        tmp_path / GPUS[1] / MACHINE / recorded.name
    )
    assert merge([tmp_path / "new"], tmp_path / "all").commits == 0
    begin_shard(tmp_path / "all", tmp_path / "third", MACHINE, "GPU-33333333")
    assert not list((tmp_path / "third").rglob("*-lockstep.*"))
