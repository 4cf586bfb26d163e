"""Shards of a toy project, measured on the CPU and merged; and records of several GPUs, written by the real writer."""

import itertools
import json
import math
from dataclasses import replace

import pytest
from project import make_project

from lockstep.fleet.merge import begin_shard, merge
from lockstep.processes.only_one import only_one
from lockstep.record.file import read_records, write_records
from lockstep.record.model import Estimate, Provenance, Record

TABLE = {
    "product.latency": {
        "name": "product.latency",
        "type": "lockstep",
        "suite": "product",
        "quantity": "latency",
        "param_names": ["variant", "case", "l2"],
    }
}
CASES = [f"M={size}" for size in range(1, 7)]
VARIANTS = ["plain", "twice"]
COMMIT = "ab" * 20


def record(case, variant="plain", at="2026-01-01T00:00:00+00:00", value=1e-5):
    estimate = Estimate(value, value / 2, 2 * value)
    return Record("product", variant, case, "cold", "ok", "1", latency=estimate, started_at=at, baseline="plain")


def provenance(uuid, torch="2.11.0", commit=COMMIT):
    host = {"gpu": "NVIDIA H200", "gpu_uuid": uuid, "vbios": f"of {uuid}", "torch": torch}
    spent = {"time": 10.0}
    return Provenance(
        commit, "lockstep", "here", "2026-01-01T00:00:00+00:00", "cd" * 20, "unlocked", host, {}, 6, spent_s=spent
    )


def write_folder(folder, uuid, records, torch="2.11.0", started_at=1, finished=True, commit=COMMIT):
    """Write results of one GPU as a run writes them, and return the path of asv's file."""
    stem = folder / "here" / f"{commit[:8]}-lockstep"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text(json.dumps({**TABLE, "version": 2}))
    write_records(stem.with_suffix(".provenance.jsonl"), provenance(uuid, torch, commit), records)
    (folder / "here" / "machine.json").write_text(json.dumps({"machine": "here", "version": 1}))
    path = stem.with_suffix(".json")
    if not finished:
        return path
    params = [[repr(one) for one in axis] for axis in (VARIANTS, CASES, ["cold"])]
    values = {one.key: one.latency.value if one.latency else None for one in records}
    result = [values.get(("product", *key), math.nan) for key in itertools.product(VARIANTS, CASES, ["cold"])]
    content = {
        "commit_hash": commit,
        "env_name": "lockstep",
        "date": 1,
        "params": {"machine": "here"},
        "python": "3.12",
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params", "version", "started_at", "duration"],
        "results": {"product.latency": [result, params, "1", started_at]},
        "durations": {},
        "version": 2,
    }
    path.write_text(json.dumps(content))
    return path


def content(folder):
    """What a merge left: the numbers of asv's file by series, the records that count by series, and the provenance."""
    asv = json.loads((folder / "here" / f"{COMMIT[:8]}-lockstep.json").read_text())
    row = dict(zip(asv["result_columns"], asv["results"]["product.latency"], strict=False))
    keys = itertools.product(*([value.strip("'") for value in axis] for axis in row["params"]))
    numbers = {
        key: value for key, value in zip(keys, row["result"], strict=True) if value is None or not math.isnan(value)
    }
    shared, records = read_records(folder / "here" / f"{COMMIT[:8]}-lockstep.provenance.jsonl")
    return numbers, {one.key: one for one in records}, shared


def snapshot(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def folders(tmp_path):
    found = []
    for place, uuid in enumerate(("GPU-a", "GPU-b", "GPU-c")):
        mine = CASES[place::3]
        records = [record(case, name, value=(place + 1) * 1e-5) for case in mine for name in VARIANTS]
        write_folder(tmp_path / uuid, uuid, records, started_at=place)
        found.append(tmp_path / uuid)
    return found


def test_a_merge_in_any_order_and_again_gives_the_same_files(folders, tmp_path):
    shown = set()
    for number, order in enumerate(itertools.permutations(folders)):
        target = tmp_path / f"target-{number}"
        assert merge(order[:2], target).problems == ()
        merge(order[2:], target)
        first = snapshot(target)
        again = merge(order, target)
        assert (again.commits, again.unchanged) == (0, 1)
        assert snapshot(target) == first
        shown.add(str([(path.name, data) for path, data in first.items()]))
    assert len(shown) == 1


def test_merged_records_know_their_gpu(folders, tmp_path):
    merge(folders, tmp_path / "all")
    numbers, records, shared = content(tmp_path / "all")
    assert len(numbers) == len(records) == len(CASES) * len(VARIANTS)
    assert {one.case: one.gpu for one in records.values()} == dict(
        zip(CASES, ["GPU-a", "GPU-b", "GPU-c"] * 2, strict=True)
    )
    assert shared.host["gpu_uuid"] == "GPU-a, GPU-b, GPU-c"
    assert shared.gpus["GPU-b"].host == {"gpu_uuid": "GPU-b", "vbios": "of GPU-b"}
    assert shared.spent_s == {"time": 30.0}
    assert numbers["twice", "M=2", "cold"] == 2e-5


def test_a_shard_takes_over_the_records_of_its_gpu_as_it_wrote_them(folders, tmp_path):
    merge(folders, tmp_path / "all")
    begin_shard(tmp_path / "all", tmp_path / "new", "here", "GPU-b")
    name = f"here/{COMMIT[:8]}-lockstep.provenance.jsonl"
    assert read_records(tmp_path / "new" / name) == read_records(tmp_path / "GPU-b" / name)


def test_of_two_measurements_the_last_counts(folders, tmp_path):
    later = record("M=1", value=9e-5, at="2026-02-01T00:00:00+00:00")
    write_folder(tmp_path / "later", "GPU-d", [later], started_at=0)
    target = tmp_path / "all"
    merge([tmp_path / "later", *folders], target)
    numbers, records, shared = content(target)
    assert numbers["plain", "M=1", "cold"] == 9e-5
    assert records["product", "plain", "M=1", "cold"] == replace(later, gpu="GPU-d")
    assert set(shared.gpus) == {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}


def test_a_merge_keeps_what_each_gpu_measured(folders, tmp_path):
    """The records of a bridge are those of both GPUs, in any order of merging; the last one counts."""
    bridge = [record("M=1", name, value=9e-5, at="2026-02-01T00:00:00+00:00") for name in VARIANTS]
    failed = Record("product", "plain", "M=4", "cold", "failed", "1", reason="hung", started_at="2026-02-01")
    write_folder(tmp_path / "later", "GPU-d", [*bridge, failed])
    texts = set()
    for number, order in enumerate(itertools.permutations((tmp_path / "later", *folders))):
        target = tmp_path / f"target-{number}"
        merge(order[:2], target)
        merge(order[2:], target)
        texts.add(str([(path.name, data) for path, data in snapshot(target).items()]))
    assert len(texts) == 1
    _, records = read_records(target / "here" / f"{COMMIT[:8]}-lockstep.provenance.jsonl")
    of = {
        case: [(one.gpu, one.state) for one in records if (one.variant, one.case) == ("plain", case)] for case in CASES
    }
    assert of["M=1"] == [("GPU-a", "ok"), ("GPU-d", "ok")]
    assert of["M=4"] == [("GPU-a", "ok"), ("GPU-d", "failed")]
    assert of["M=2"] == [("GPU-b", "ok")]
    begin_shard(target, tmp_path / "again", "here", "GPU-a")
    assert merge([tmp_path / "again"], target).commits == 0


def test_a_commit_that_a_shard_has_not_finished_stays_in_its_folder(folders, tmp_path):
    write_folder(tmp_path / "begun", "GPU-d", [record("M=1")], finished=False)
    merged = merge([tmp_path / "begun"], tmp_path / "all")
    assert merged.unfinished == (f"here/{COMMIT[:8]}-lockstep.json",)
    assert not list((tmp_path / "all").rglob("*lockstep*"))


def test_records_of_an_older_toolchain_are_told_and_left_out(folders, tmp_path):
    newer = [record("M=1", at="2026-02-01T00:00:00+00:00")]
    write_folder(tmp_path / "newer", "GPU-a", newer, torch="2.12.0")
    merged = merge([*folders, tmp_path / "newer"], tmp_path / "all")
    assert "older toolchain" in merged.problems[0]
    _, records, shared = content(tmp_path / "all")
    assert shared.host["torch"] == "2.12.0"
    assert list(records) == [newer[0].key]


def test_a_toolchain_of_the_results_that_is_older_is_set_aside(folders, tmp_path):
    merge(folders, tmp_path / "all")
    write_folder(tmp_path / "newer", "GPU-a", [record("M=1", at="2026-02-01T00:00:00+00:00")], torch="2.12.0")
    assert merge([tmp_path / "newer"], tmp_path / "all").problems == ()
    [old] = (tmp_path / "all" / "here").glob("*.old")
    assert len(read_records(old)[1]) == len(CASES) * len(VARIANTS)


def test_a_full_disk_leaves_files_whole(folders, tmp_path, monkeypatch):
    target = tmp_path / "all"
    merge(folders[:1], target)
    before = snapshot(target)

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            merge(folders, target)
    assert snapshot(target) == before
    merge(folders, target)
    assert len(content(target)[1]) == len(CASES) * len(VARIANTS)


def test_shards_of_a_run_merge_to_its_results(tmp_path):
    project = make_project(tmp_path / "project")
    head = project.git("rev-parse", "HEAD")
    for place in (1, 2):
        done = project.lockstep("run", "HEAD^!", "--shard", f"{place}/2")
        assert done.returncode == 0, done.stdout
    done = project.lockstep("merge", "results-shards")
    assert done.stdout.strip().endswith("1 result files changed, 0 had everything"), done.stdout
    [path] = (project.root / "results").glob("*-cpu/*.provenance.jsonl")
    _, records = read_records(path)
    measured = {one.case for one in records if one.state == "ok"}
    assert measured == {"M=2,K=1024,N=512", "M=3,K=1024,N=512"}
    parts = [read_records(one)[1] for one in (project.root / "results-shards").glob("*/*-cpu/*.provenance.jsonl")]
    keys = [{one.key for one in part} for part in parts]
    assert not keys[0] & keys[1]
    assert keys[0] | keys[1] == {one.key for one in records}
    assert path.name.startswith(head[:8])
    assert project.git("status", "--porcelain") == "?? results/"


def test_a_shard_is_measured_by_one_process_at_a_time(tmp_path):
    project = make_project(tmp_path / "project")
    folder = project.root / "results-shards" / "1-of-2"
    folder.mkdir(parents=True)
    with only_one(folder, wait=False):
        done = project.lockstep("run", "HEAD^!", "--shard", "1/2")
    assert done.returncode == 4
    assert "another process measures shard 1/2" in done.stdout
    assert project.lockstep("run", "HEAD^!", "--shard", "3/2").returncode == 4


def test_a_shard_without_cases_has_nothing_to_do_but_a_range_without_commits_is_a_mistake(tmp_path):
    project = make_project(tmp_path / "project")
    first = project.popen("run", "HEAD^!", "--shard", "2/2", "--bench", "track_answer")
    shown, _ = first.communicate(timeout=60)  # a process holds the shard until its end
    assert (first.returncode, "No selected case belongs to shard 2" in shown) == (0, True), shown
    done = project.lockstep("run", "HEAD..HEAD", "--shard", "2/2")
    assert (done.returncode, "No commit hashes selected" in done.stdout) == (4, True), done.stdout


def test_run_with_shards_starts_them_and_merges(tmp_path):
    project = make_project(tmp_path / "project")
    done = project.lockstep("run", "HEAD^!", "--shards=2", "--bench", "latency|speedup")
    assert done.returncode == 0, done.stdout
    assert "shard 1: done" in done.stdout
    assert "shard 2: done" in done.stdout
    assert "1 result files changed" in done.stdout
    assert "Traceback" not in done.stdout
    logs = {path.name for path in (project.root / "results-shards").glob("*.log")}
    assert logs == {"1-of-2.log", "2-of-2.log"}


def test_the_verb_ends_with_the_status_of_its_table(folders, tmp_path):
    project = make_project(tmp_path / "project")
    assert project.lockstep("merge", "nowhere").returncode == 4
    write_folder(tmp_path / "newer", "GPU-a", [record("M=1", at="2026-02-01T00:00:00+00:00")], torch="2.12.0")
    done = project.lockstep("merge", *map(str, folders), str(tmp_path / "newer"))
    assert done.returncode == 1, done.stdout
    assert "older toolchain" in done.stdout
    project.write("blocked/asv.conf.json", (project.root / "asv.conf.json").read_text())
    project.write("blocked/results/here", "a file where a folder is needed")
    done = project.lockstep("--config", "blocked/asv.conf.json", "merge", *map(str, folders))
    assert done.returncode == 3, done.stdout
