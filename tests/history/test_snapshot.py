"""The picture answers with the files' numbers, and mixes nothing that does not belong together."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from trees import (
    COMMIT,
    DATE,
    MACHINE,
    edit,
    newest_points,
    open_store,
    points_in,
    read,
    record,
    write_measurement,
    write_plain,
)

from lockstep.history.display_names import natural, plain
from lockstep.history.hex_digits import unpacked
from lockstep.record.file import SUFFIX, read_records, write_records
from lockstep.record.model import GpuShare
from lockstep.timing.intervals import exponential, log_interval

RECORDED = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The history in this repository, without what `make run` measured on this machine and left beside it."""
    root = tmp_path_factory.mktemp("recorded")
    shutil.copy(RECORDED / "benchmarks.json", root)
    shutil.copytree(RECORDED / "h200-unlocked", root / "h200-unlocked")
    return open_store(root, cache=tmp_path_factory.mktemp("cache")).current()


def test_the_recorded_history_has_the_numbers_of_its_files(recorded):
    assert recorded.problems == ()
    compared = 0
    for path in RECORDED.glob("h200-unlocked/*.provenance.jsonl"):
        provenance, records = read_records(path)
        points = {}
        for point in recorded.at(provenance.commit, provenance.machine):
            benchmark = recorded.benchmarks[point.series.benchmark]
            axes = tuple(point.series.axis(name) for name in ("variant", "case", "l2"))
            points[benchmark.suite, *axes, benchmark.quantity] = point
        assert len(points) == sum(2 + len(one.costs) for one in records)
        for one in records:
            latency, speedup = (points[*one.key, quantity] for quantity in ("latency", "speedup"))
            assert latency.state == one.state
            assert latency.version == one.version
            for point, estimate in ((latency, one.latency), (speedup, one.speedup)):
                if estimate:
                    compared += 1
                    assert (point.value, point.low, point.high) == (estimate.value, estimate.low, estimate.high)
                assert (point.mde, point.epochs, point.baseline, point.sm_mhz) == (
                    one.mde,
                    one.epochs,
                    one.baseline,
                    one.clocks.sm_mhz,
                )
            assert latency.samples == one.latency_samples
            assert latency.run.controls["copy"].rate == provenance.controls["copy"]["rate"]
            if one.speedup:
                assert latency.log_ratio == pytest.approx(math.log(one.speedup.value))
    assert compared > 1000
    assert recorded.runs[0].toolchain["torch"] == "2.11.0+cu130"


def test_trends_points_and_latest_agree(recorded):
    [machine] = recorded.machines
    every = recorded.series(machine=machine)
    commits = recorded.commits(machine)
    trends = {trend.series: trend for trend in recorded.trends(every)}
    assert trends.keys() == set(every)
    for series in every[:: len(every) // 40]:
        points, trend = points_in(recorded, series), trends[series]
        assert [point.commit for point in points] == trend.commit.tolist() == sorted(set(trend.commit.tolist()))
        assert [recorded.runs[run].commit for run in trend.run] == [commits[one].hash for one in trend.commit]
        for name in ("value", "low", "high", "error", "log_ratio", "ratio_error", "mde"):
            told = [math.nan if getattr(point, name) is None else getattr(point, name) for point in points]
            np.testing.assert_allclose(told, getattr(trend, name), rtol=1e-12, err_msg=name)
        assert [point.version for point in points] == [recorded.versions[code] for code in trend.version]
    latest = newest_points(recorded, machine)
    assert [point.series for point in latest] == list(every)
    assert all(point.commit == trends[point.series].commit[-1] for point in latest)


def test_only_the_last_commits_if_asked(recorded):
    [machine] = recorded.machines
    last = {trend.series: trend for trend in recorded.trends(last=2)}
    whole = {trend.series: trend for trend in recorded.trends()}
    newest = len(recorded.commits(machine)) - 2
    for series, trend in whole.items():
        expected = trend.value[trend.commit >= newest]
        if len(expected):
            np.testing.assert_array_equal(last[series].value, expected)
        else:
            assert series not in last


def test_filters_pick_series(recorded):
    chosen = recorded.series(family="linear", quantity="speedup", axes={"l2": "cold", "variant": "torch"})
    assert chosen
    assert {one.benchmark for one in chosen} == {"linear.speedup"}
    assert {(one.axis("variant"), one.axis("l2")) for one in chosen} == {("torch", "cold")}
    cases = [one.axis("case") for one in chosen]
    assert cases == sorted(cases, key=natural)
    assert recorded.series(suite="grouped.linear")
    assert recorded.series(machine="nowhere") == recorded.series(family="nothing") == ()
    assert newest_points(recorded, "nowhere") == recorded.at("nothing") == []
    assert recorded.commits("nowhere") == recorded.runs_of("nowhere") == ()


def test_a_paired_ratio_carries_its_standard_error(tmp_path):
    epochs = [0.64, 0.641, 0.6405, 0.6425]
    ratio = exponential(log_interval(epochs))
    write_measurement(tmp_path, [record(speedup=ratio, epochs=4)])
    latency, speedup = read(tmp_path).at(COMMIT)
    for point in (latency, speedup):
        assert point.log_ratio == pytest.approx(np.mean(epochs))
        # The file keeps seven digits of an interval that is 0.3 % wide.
        assert point.ratio_error == pytest.approx(np.std(epochs, ddof=1) / 2, rel=1e-3)
    assert speedup.error == pytest.approx(speedup.ratio_error)
    assert latency.error != pytest.approx(latency.ratio_error)


def test_what_was_left_out_of_a_run_is_no_point(tmp_path):
    asked = [record(case=f"M={m}") for m in (1, 2, 4)]
    path = write_measurement(tmp_path, asked)
    beside = path.with_name(path.name.replace(".json", ".provenance.jsonl"))
    beside.write_text("\n".join(beside.read_text().splitlines()[:-1]))
    edit(path, lambda data: data["results"]["linear.latency"][0].__setitem__(2, math.nan))
    edit(path, lambda data: data["results"]["linear.speedup"][0].__setitem__(2, math.nan))
    assert {one.axis("case") for one in read(tmp_path).series()} == {"M=1", "M=2"}


def test_a_ratio_without_a_baseline_says_so(tmp_path):
    write_measurement(tmp_path, [record(speedup=None, baseline="torch")])
    speedup = next(point for point in read(tmp_path).at(COMMIT) if point.series.benchmark == "linear.speedup")
    assert (speedup.state, speedup.reason) == ("na", "the baseline torch has no number for this case")


def machine_strings(**strings):
    def change(data):
        data["params"] |= strings

    return change


def test_two_operating_systems_in_a_folder_are_two_machines(tmp_path):
    linux = {"os": "Linux 6.1.0-9", "cpu": "a", "ram": "100"}
    for place, strings in enumerate(
        (
            linux,
            linux | {"os": "Linux 6.1.0-18", "ram": "101"},
            {"os": "Windows 10.0.1", "cpu": "a"},
            linux | {"gpu": "g"},
        )
    ):
        path = write_measurement(tmp_path, [record()], commit=f"{place}" * 40, date=DATE + place, proof=False)
        edit(path, machine_strings(**strings))
    results = read(tmp_path)
    assert {name: [one.hash[0] for one in results.commits(name)] for name in results.machines} == {
        MACHINE: ["0", "1", "3"],
        f"{MACHINE} (Windows 10.0)": ["2"],
    }
    assert [len(trend) for trend in results.trends(results.series(machine=MACHINE))] == [3, 3]
    assert results.machines[f"{MACHINE} (Windows 10.0)"].folder == MACHINE
    assert [run.strings["os"] for run in results.runs_of(MACHINE)] == [
        "Linux 6.1.0-9",
        "Linux 6.1.0-18",
        "Linux 6.1.0-9",
    ]


def test_environments_side_by_side_are_told_apart_and_successors_go_on(tmp_path):
    measured = {"py3.10": (0, 1, 2), "py3.11": (1, 2, 3), "py3.12": (3, 4), "py3.13": (4,)}
    for environment, places in measured.items():
        for place in places:
            write_measurement(
                tmp_path, [record()], commit=f"{place}" * 40, date=DATE + place, environment=environment, proof=False
            )
    results = read(tmp_path)
    assert {name: machine.environments for name, machine in results.machines.items()} == {
        MACHINE: ("py3.10", "py3.12"),
        f"{MACHINE} (py3.11)": ("py3.11", "py3.13"),
    }
    [trend] = results.trends(results.series(machine=MACHINE, quantity="latency"))
    assert [results.runs[run].environment for run in trend.run] == ["py3.10"] * 3 + ["py3.12"] * 2


def test_names_and_units_come_from_the_table_whenever_it_changes(tmp_path):
    path = write_measurement(tmp_path, [record()], proof=False)
    edit(path, lambda data: data.update(results={"a.track_it": [[1.0, 2.0], [["1", "2"]]]}))
    store = open_store(tmp_path)
    assert [one.text for one in store.current().series()] == ["param1=1", "param1=2"]
    table = {"a.track_it": {"unit": "GB/s", "type": "track", "param_names": ["size"]}, "version": 2}
    (tmp_path / "benchmarks.json").write_text(json.dumps(table))
    assert store.refresh().changed == 0
    results = store.current()
    assert [one.text for one in results.series()] == ["size=1", "size=2"]
    assert results.benchmarks["a.track_it"].better == "higher"
    (tmp_path / "benchmarks.json").write_text("[" * 10)
    assert [problem.path for problem in store.current().problems] == ["benchmarks.json"]
    assert [one.text for one in store.current().series()] == ["size=1", "size=2"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("'cold'", "cold"),
        ("'M=8,K=4096'", "M=8,K=4096"),
        ("1", "1"),
        ("'1'", "'1'"),
        ("'None'", "'None'"),
        ("'nan'", "'nan'"),
        ("''", "''"),
        ("<class 'int'>", "<class 'int'>"),
        ('"it\'s"', "it's"),
        ("'", "'"),
        ("'[1, 2]'", "'[1, 2]'"),
    ],
)
def test_a_value_looks_like_no_other(value, shown):
    assert plain(value) == shown


def test_the_recorded_history_reads_as_segments_of_three_gpus(recorded):
    segments = {}
    for trend in recorded.trends(recorded.series(machine="h200-unlocked", quantity="speedup")):
        for commit, gpu in zip(trend.commit.tolist(), trend.gpu.tolist(), strict=True):
            segments.setdefault(commit, set()).add(unpacked(gpu)[:8])
    gpus = ["739044fb"] * 8 + ["e59cbb46", "1f509920"]
    assert [segments[commit] for commit in sorted(segments)] == [{gpu} for gpu in gpus]


def test_a_merged_file_says_of_each_point_which_gpu_measured_it(tmp_path):
    uuids = [f"GPU-{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "ab"]
    write_measurement(tmp_path, [record(variant=f"v{uuid[4]}", gpu=uuid) for uuid in uuids])
    trends = list(open_store(tmp_path).current().trends())
    assert {trend.series.axis("variant"): unpacked(int(trend.gpu[0]))[:8] for trend in trends} == {
        "va": "a" * 8,
        "vb": "b" * 8,
    }


def test_each_gpu_of_a_merged_file_has_its_own_controls(tmp_path):
    first, second = (f"GPU-{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "ab")
    path = write_measurement(tmp_path, [record(variant=uuid[4], gpu=uuid) for uuid in (first, second)])
    proof = path.with_name(path.name.replace(".json", SUFFIX))
    provenance, records = read_records(proof)
    copies = {first: 1e-4, second: 2e-4}
    shares = {
        uuid: GpuShare({"gpu_uuid": uuid}, provenance.recorded_at, "", {"copy": {"seconds": copy}}, {})
        for uuid, copy in copies.items()
    }
    write_records(proof, replace(provenance, gpus=shares, host={"gpu_uuid": f"{first}, {second}"}), records)
    results = open_store(tmp_path).current()
    for trend in results.trends():
        [run], [gpu] = (results.runs[index] for index in trend.run), trend.gpu.tolist()
        uuid = first if trend.series.axis("variant") == "a" else second
        assert run.gpu_controls[gpu]["copy"].seconds == copies[uuid]
    assert run.board == "aaaaaaaa, bbbbbbbb"
    assert run.controls["copy"].seconds == 1.25e-4


def test_parts_of_a_suite_in_nested_folders_are_machines_of_their_own(tmp_path):
    for shard, name in (("one", "a.A.time_x"), ("two", "b.B.time_y")):
        write_plain(tmp_path / shard, {name: 1.0}, "box")
    assert sorted(open_store(tmp_path).current().machines) == ["one/box", "two/box"]


def test_parts_of_a_suite_in_one_folder_are_no_repetitions(tmp_path):
    write_plain(tmp_path, {"a.A.time_x": 1.0}, "box")
    path = write_plain(tmp_path, {"b.B.time_y": 2.0}, "box", environment="part2")
    edit(path, lambda data: data.update(env_name="virtualenv-py3.11"))
    results = open_store(tmp_path).current()
    assert results.notes == ()
    assert len(list(results.trends())) == 2
