"""Which timed record a series repeats, and what contradicts a repeat."""

from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.asv.copy_numbers import Timed, Work, contradiction, lacks, repeatable
from lockstep.fleet.join_records import order
from lockstep.record.file import read_records
from lockstep.record.model import CostEstimate, Estimate, Record

KEY = ("s", "a", "M=1", "cold")
FILES = Work("files")
BY_DISTANCE = {"near": 1, "middle": 2, "far": 3}.__getitem__


def record(variant="a", speedup=1.5, **fields):
    interval = Estimate(speedup, speedup * 0.999, speedup * 1.001)
    given = {"sources": "files", "work": f"work of {variant}", "latency": Estimate(1e-6, 9e-7, 1.1e-6)} | fields
    return Record("s", variant, "M=1", "cold", "ok", "v1", speedup=interval, **given)


def timed(records, limit=3):
    known = Timed(limit)
    for commit, one in records:
        known.add(commit, [one])
    return known


def found(known, work=FILES, version="v1", costs=(), keys=(KEY,)):
    return {
        key: one.same_work_as for key, one in repeatable(known, keys, "base", version, work, BY_DISTANCE, costs).items()
    }


def test_the_nearest_commit_with_equal_files_is_repeated():
    known = timed([("far", record()), ("near", record()), ("middle", record())])
    assert found(known) == {KEY: "near"}
    assert found(known, Work("other files")) == {}
    assert found(known, Work("")) == {}
    assert found(known, version="v2") == {}


def test_unknown_files_are_equal_to_nothing():
    known = timed([("near", record(sources="", work="w"))])
    assert found(known, Work("")) == {}


@pytest.mark.parametrize(
    ("works", "repeats"),
    [
        ({"a": "work of a", "base": "work of base"}, True),
        ({"a": "work of a", "base": "other"}, False),
        ({"a": "other", "base": "work of base"}, False),
        ({"a": "work of a"}, False),
        ({"a": "", "base": "work of base"}, False),
        ({}, False),
    ],
)
def test_equal_work_of_variant_and_baseline_is_repeated(works, repeats):
    known = timed([("near", record()), ("near", record("base"))])
    assert found(known, Work("other", works)) == ({KEY: "near"} if repeats else {})


def test_variant_and_baseline_must_be_those_of_one_commit():
    known = timed([("near", record()), ("far", record("base")), ("near", record("base", work="other"))])
    assert found(known, Work("other", {"a": "work of a", "base": "work of base"})) == {}


def test_a_ratio_is_repeated_where_its_baseline_is_a_repeat():
    # A case of which one variant changed is timed with its baseline, whose record stays a repeat.
    known = timed([("far", record("base")), ("near", record()), ("near", record("base", same_work_as="far"))])
    assert found(known, Work("other", {"a": "work of a", "base": "work of base"})) == {KEY: "near"}


def test_failures_and_repeats_are_not_repeated_and_the_limit_holds():
    failed = replace(record(), state="failed", latency=None, speedup=None, reason="wrong")
    assert found(timed([("near", failed)])) == {}
    repeats = [(f"commit {number}", record(same_work_as="far")) for number in range(3)]
    assert found(timed([("far", record()), *repeats])) == {}
    assert found(timed([("far", record()), *repeats[:2]])) == {KEY: "far"}


def test_a_record_without_a_requested_cost_is_not_repeated():
    host = {"host": CostEstimate(1e-6, 1e-6, 1e-6, 4)}
    works = {"a": "work of a", "base": "work of base"}
    known = timed([("near", record()), ("near", record("base"))])
    assert found(known, costs=("host",)) == {}
    known = timed([("near", record(costs=host)), ("near", record("base", costs=host))])
    assert found(known, costs=("host",)) == {KEY: "near"}
    # Equal graphs say nothing about the host.
    assert found(known, Work("other", works), costs=("host",)) == {}


def test_a_commit_that_is_run_again_counts_once():
    repeats = [("middle", record(same_work_as="far"))] * 5
    assert found(timed([("far", record()), *repeats], limit=2)) == {KEY: "far"}


def test_a_repeat_says_why_a_cost_has_no_number():
    known = timed([("near", record(note="no host: it is captured in a graph"))])
    [one] = repeatable(known, [KEY], "base", "v1", FILES, BY_DISTANCE, ("host",)).values()
    assert not lacks(one, ["host"])


def test_a_repeat_is_later_than_what_was_recorded_before():
    earlier = record(started_at="2026-01-01T00:00:00+00:00")
    (repeat,) = repeatable(timed([("near", earlier)]), [KEY], "base", "v1", FILES, BY_DISTANCE).values()
    assert order(repeat) > order(earlier)


def test_a_repeat_is_no_measurement():
    known = timed([("near", record(latency_samples=(1e-6, 1.1e-6), speedup_samples=(1.4, 1.6), wall_s=3.0))])
    [one] = repeatable(known, [KEY], "base", "v1", FILES, BY_DISTANCE).values()
    assert one.validated()
    assert (one.latency_samples, one.speedup_samples, one.wall_s) == ((1e-6,), (1.5,), 0.0)
    assert (one.latency, one.speedup) == (record().latency, record().speedup)


@pytest.mark.parametrize(
    ("new", "contradicts"),
    [(1.5, False), (1.5005, False), (1.519, False), (1.53, True), (1.47, True), (3.0, True)],
)
def test_a_ratio_that_differs_beyond_noise_contradicts(new, contradicts):
    assert bool(contradiction(record(speedup=1.5), record(speedup=new))) is contradicts


def test_kernels_that_did_not_change_do_not_contradict():
    # Recorded on one H200; no kernel changed between the two commits. The tuner of one series chose other tiles.
    folder = Path(__file__).parents[2] / "results" / "h200-unlocked"
    before, after = (
        {one.key: one for one in read_records(folder / f"{commit}-lockstep.provenance.jsonl")[1]}
        for commit in ("ca47948c", "9c3201ae")
    )
    both = [key for key in before if key in after and before[key].speedup and after[key].speedup]
    assert len(both) > 400
    assert {key[1] for key in both if contradiction(before[key], after[key])} == {"max_autotune"}


def test_another_state_contradicts():
    failed = replace(record(), state="failed", latency=None, speedup=None, reason="wrong")
    assert contradiction(record(), failed) == "it was ok and is failed"
    assert contradiction(None, record()) == ""


@pytest.mark.parametrize(
    ("speedup", "timings", "repeats"),
    [(1.5, 1, True), (1.51, 1, True), (1.45, 1, False), (1.45, 2, False), (1.45, 3, True)],
)
def test_a_work_that_moved_the_ratio_is_timed_at_three_commits(speedup, timings, repeats):
    places = ("near", "middle", "far")
    before = ("far", record(work="another", sources="other files"))
    after = [(place, record(speedup=speedup)) for place in places[:timings]]
    assert found(timed([before, *after])) == ({KEY: "near"} if repeats else {})


def test_the_nearest_other_work_decides_whether_the_ratio_moved():
    others = [("far", record(speedup=2.0, work="c", sources="c")), ("middle", record(work="b", sources="b"))]
    assert found(timed([*others, ("near", record())])) == {KEY: "near"}
