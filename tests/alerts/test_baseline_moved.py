"""Of an H200 on which cuBLAS became 1.6 % faster between two commits: four kernels that stayed are slower nowhere.

The figures are a recorded history's (protocol 4, free clocks): linear, 64 × 4096 × 2048, cold.
"""

import math

import numpy as np
import pytest
from compared import each
from served import table_of, words
from trees import open_store, record, write_measurement

from dashboard.pages import commit, overview, overview_table
from dashboard.pages import compare as page
from dashboard.server.app import create_app
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.compare.at_commit import compare_commit
from lockstep.compare.two_sides import Side, compare
from lockstep.compare.verdict import Times
from lockstep.record.model import Code, Estimate, Kernel
from lockstep.suite.thresholds import Thresholds

MACHINE, CASE, RULES = "h200-unlocked", "M=64,K=4096,N=2048", Thresholds()
BEFORE, NEXT, AFTER = "267e5d01" * 5, "a336538c" * 5, "4528eae5" * 5
UNCHANGED = {"best", "split_k", "split_k_pdl", "triton"}

#: µs a call and speedup, each with its 95 % interval.
ONE = (1.0, 1.0, 1.0)
RECORDED = {
    BEFORE: {
        "torch": ((10.5908, 10.5708, 10.6109), ONE),
        "triton": ((10.0329, 10.0269, 10.0390), (1.05714, 1.05529, 1.05899)),
        "split_k": ((8.6923, 8.6635, 8.7212), (1.21976, 1.21557, 1.22397)),
        "split_k_pdl": ((7.9047, 7.8528, 7.9569), (1.34271, 1.33556, 1.34990)),
        "best": ((7.9064, 7.8587, 7.9544), (1.34242, 1.33554, 1.34935)),
    },
    NEXT: {
        "torch": ((10.5939, 10.5855, 10.6023), ONE),
        "triton": ((10.0367, 10.0190, 10.0545), (1.05619, 1.05354, 1.05884)),
        "split_k": ((8.6873, 8.6428, 8.7319), (1.22046, 1.21404, 1.22692)),
        "split_k_pdl": ((7.9061, 7.8949, 7.9174), (1.34129, 1.33926, 1.34331)),
        "best": ((7.9127, 7.9034, 7.9221), (1.34125, 1.33888, 1.34363)),
    },
    AFTER: {
        "torch": ((10.4192, 10.3808, 10.4577), ONE),
        "triton": ((10.0324, 10.0186, 10.0463), (1.03919, 1.03597, 1.04242)),
        "split_k": ((8.6804, 8.6616, 8.6992), (1.20106, 1.19835, 1.20377)),
        "split_k_pdl": ((7.8918, 7.8691, 7.9145), (1.32111, 1.31909, 1.32312)),
        "best": ((7.8937, 7.8702, 7.9172), (1.32084, 1.31840, 1.32328)),
    },
}
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("moved") / "results"
    for number, (commit_hash, figures) in enumerate(RECORDED.items()):
        records = [
            record(
                variant,
                CASE,
                latency=Estimate(*(1e-6 * one for one in microseconds)),
                speedup=Estimate(*speedup),
                baseline="torch",
                epochs=4,
                code=Code((Kernel("_product_kernel", variant, 56, 0, 147456),), "" if commit_hash != AFTER else "host"),
            )
            for variant, (microseconds, speedup) in figures.items()
        ]
        write_measurement(root, records, MACHINE, commit_hash, 1_790_000_000_000 + number * DAY_MS)
    return root


@pytest.fixture(scope="module")
def store(root):
    return open_store(root)


def at_64(pairs):
    return {one.head_variant: one for one in pairs if one.case == CASE and one.l2 == "cold"}


def test_compare_distinguishes_a_moved_baseline_from_a_moved_kernel(store):
    sides = Side(MACHINE, BEFORE), Side(MACHINE, AFTER)
    found = compare(store.current(), *sides, "speedup", RULES, "linear")
    told = at_64(found)
    assert {variant for variant, one in told.items() if one.verdict == "baseline moved"} == UNCHANGED
    assert (found.counts["slower"], found.counts["baseline moved"]) == (0, 4)
    best = told["best"]
    assert best.times.baseline == pytest.approx(math.log(10.4192 / 10.5908), abs=1e-5)
    assert best.times.own == pytest.approx(math.log(7.8937 / 7.9064), abs=1e-5)
    assert best.log == pytest.approx(0.0162, abs=1e-4)
    [torch] = [one for one in compare(store.current(), *sides, "latency", RULES) if at_64([one]).get("torch")]
    assert torch.verdict == "faster"


def test_the_machine_code_is_reported_as_far_as_it_is_recorded(store):
    found = compare(store.current(), Side(MACHINE, BEFORE), Side(MACHINE, AFTER), "speedup", RULES)
    assert at_64(found)["triton"].code == "the kernels are the same"


def test_the_page_shows_both_times_of_a_moved_baseline(store):
    chosen = dict.fromkeys(page.KEYS, "") | {"bm": MACHINE, "bc": BEFORE, "hm": MACHINE, "hc": AFTER}
    text = words(page.body(store.current(), chosen | {"suite": "linear"}, "light", RULES))
    assert "\\u25c7 4 baseline moved" in text
    assert "slower" not in words(page.body(store.current(), chosen | {"suite": "linear"}, "light", RULES)[0])
    assert "baseline's time \\u22121.6 %, own \\u22120.1 %" in text


def test_the_api_gives_both_times_of_a_moved_baseline(store):
    client = create_app(store).server.test_client()
    asked = f"/api/v1/compare?bm={MACHINE}&bc={BEFORE}&hm={MACHINE}&hc={AFTER}&suite=linear"
    told = client.get(asked).json
    assert told["verdicts"]["baseline moved"] == 4
    assert "slower" not in told["verdicts"]
    [best] = [one for one in told["cases"] if (one["head_variant"], one["case"], one["l2"]) == ("best", CASE, "cold")]
    assert best["times"]["baseline"] == pytest.approx(-0.0164, abs=1e-3)


def test_the_page_of_the_commit_shows_the_moved_baseline(store):
    results = store.current()
    found, earlier = compare_commit(results, MACHINE, AFTER, None, RULES)
    told = {
        one.row.variant: one
        for one in each(found)
        if (one.row.suite, one.row.case, one.row.l2) == ("linear", CASE, "cold")
    }
    assert {variant for variant, one in told.items() if one.verdict == "baseline moved"} == UNCHANGED
    assert not any(one.verdict == "slower" for one in each(found))
    assert told["torch"].verdict == "faster"
    [card] = commit.families(found, earlier)
    _, head, body = card.children.children
    column = [cell.children for cell in head.children.children].index("Verdicts")
    assert ["◇ 4 baseline moved" in "".join(row.children[column].children) for row in body.children] == [True]


def test_the_overview_and_its_file_say_so(store, root):
    stood = overview.statuses_of(store.current(), MACHINE, NEXT, 0, Findings(store.cache, root))
    moved = stood.select(np.flatnonzero(stood.are("baseline moved")))
    assert {one.row.variant for one in each(moved)} == UNCHANGED
    rows = table_of(store.current(), MACHINE, moved)
    assert "own_change" in [column["field"] for column in overview_table.columns(moved.rows)]
    assert rows[0]["baseline_change"] == pytest.approx(-1.65, abs=0.05)
    assert "baseline's time −1.6 %, own" in rows[0]["why"]


@pytest.mark.parametrize(
    ("worse", "own", "baseline", "error", "moved"),
    [
        (0.016, 0.000, -0.016, 0.001, True),
        # Faster because its baseline became slower.
        (-0.05, 0.002, 0.052, 0.001, True),
        (0.016, 0.016, 0.000, 0.001, False),
        # Both share it: the kernel has its part.
        (0.016, 0.009, -0.008, 0.001, False),
        # The whole machine moved, and the kernel less than its baseline.
        (0.020, -0.360, -0.380, 0.001, False),
        # The times are too noisy to say which of the two it was.
        (0.016, 0.000, -0.016, 0.02, False),
        # A normal distribution has 99 % within 2.576 standard deviations.
        (0.016, 0.000, -0.016, 0.016 / 2.575, False),
        (0.016, 0.000, -0.016, 0.016 / 2.577, True),
        (0.016, 0.000, -0.016, math.nan, False),
        # The baseline moved surely, by too little or the other way.
        (0.016, 0.000, -0.007, 0.001, False),
        (0.016, 0.000, 0.016, 0.001, False),
    ],
)
def test_the_baseline_has_to_move_surely_and_the_kernel_to_stay(worse, own, baseline, error, moved):
    assert Times(own, baseline, error).baseline_moved(worse, 0.99) is moved
