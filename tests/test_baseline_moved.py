"""On the recorded H200 cuBLAS became 1.6 % faster between two commits: four kernels that stayed are slower nowhere.

The kernels' own times at M=64 are 10.033, 8.692, 7.906 and 7.905 µs before and 10.032, 8.680, 7.894 and 7.892 after;
cuBLAS' 10.591 and 10.419 (``results/h200-unlocked``).
"""

import math
from pathlib import Path

import pytest
from served import words
from trees import open_store

from dashboard.app import create_app
from dashboard.comparison import Side, compare
from dashboard.findings import Findings
from dashboard.pages import commit, overview
from dashboard.pages import compare as page
from dashboard.times import Times
from lockstep.thresholds import Thresholds

RESULTS = Path(__file__).parents[1] / "results"
MACHINE, CASE, RULES = "h200-unlocked", "M=64,K=4096,N=2048", Thresholds()
BEFORE, NEXT, AFTER = "267e5d01", "a336538c", "4528eae5"
UNCHANGED = {"best", "split_k", "split_k_pdl", "triton"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return open_store(RESULTS, cache=tmp_path_factory.mktemp("recorded") / "cache")


@pytest.fixture(scope="module")
def full(store):
    return {one.short: one.hash for one in store.current().commits(MACHINE)}


def at_64(pairs):
    return {one.head_variant: one for one in pairs if one.case == CASE and one.l2 == "cold"}


def test_compare_tells_a_baseline_that_moved_from_a_kernel_that_did(store, full):
    sides = Side(MACHINE, full[BEFORE]), Side(MACHINE, full[AFTER])
    found = compare(store.current(), *sides, "speedup", RULES, "linear")
    told = at_64(found.pairs)
    assert {variant for variant, one in told.items() if one.verdict == "baseline moved"} == UNCHANGED
    assert (found.counts["slower"], found.counts["baseline moved"], found.counts["faster"]) == (0, 4, 5)
    best = told["best"]
    assert best.times.baseline == pytest.approx(math.log(10.419 / 10.591), abs=1e-4)
    assert best.times.own == pytest.approx(math.log(7.894 / 7.906), abs=1e-4)
    assert best.log == pytest.approx(0.0162, abs=1e-4)
    [torch] = [one for one in compare(store.current(), *sides, "latency", RULES).pairs if at_64([one]).get("torch")]
    assert torch.verdict == "faster"


def test_the_machine_code_is_told_as_far_as_the_records_know_it(store, full):
    found = compare(store.current(), Side(MACHINE, full[BEFORE]), Side(MACHINE, full[AFTER]), "speedup", RULES)
    assert at_64(found.pairs)["triton"].code == "the kernels are the same"


def test_the_page_says_so_with_both_times(store, full):
    chosen = dict.fromkeys(page.KEYS, "") | {"bm": MACHINE, "bc": full[BEFORE], "hm": MACHINE, "hc": full[AFTER]}
    text = words(page.body(store.current(), chosen | {"suite": "linear"}, "light", RULES))
    assert "\\u25c7 4 baseline moved" in text
    assert "slower" not in words(page.body(store.current(), chosen | {"suite": "linear"}, "light", RULES)[0])
    assert "baseline's time \\u22121.6 %, own \\u22120.1 %" in text


def test_the_api_says_so_with_both_times(store):
    client = create_app(store).server.test_client()
    asked = f"/api/v1/compare?bm={MACHINE}&bc={BEFORE}&hm={MACHINE}&hc={AFTER}&suite=linear"
    told = client.get(asked).json
    assert told["verdicts"]["baseline moved"] == 4
    assert "slower" not in told["verdicts"]
    [best] = [one for one in told["cases"] if (one["head_variant"], one["case"], one["l2"]) == ("best", CASE, "cold")]
    assert best["times"]["baseline"] == pytest.approx(-0.0164, abs=1e-3)


def test_the_commits_page_says_so(store, full):
    results = store.current()
    found = commit.compare(results, MACHINE, full[AFTER], None, RULES)
    told = {
        one.row.variant: one for one in found if (one.row.suite, one.row.case, one.row.l2) == ("linear", CASE, "cold")
    }
    assert {variant for variant, one in told.items() if one.difference.verdict == "baseline moved"} == UNCHANGED
    assert not any(one.difference.verdict == "slower" for one in found)
    assert told["torch"].difference.verdict == "faster"
    assert "\\u25c7 4 baseline moved" in words(commit.families(found))


def test_the_overview_and_its_file_say_so(store, full):
    stood = overview.stand(store.current(), MACHINE, "cold", full[NEXT], 0, Findings(store.cache, RESULTS))
    moved = [one for one in stood if one.verdict == "baseline moved"]
    assert {one.row.variant for one in moved} == UNCHANGED
    rows = overview.table(store.current(), MACHINE, moved)
    assert "own_change" in overview.csv_text(rows).splitlines()[0]
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
