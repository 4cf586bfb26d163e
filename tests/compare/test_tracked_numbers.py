"""Numbers of other projects beside each other: the verdict goes by their direction and their noise from run to run."""

from __future__ import annotations

import json
import math

import pytest
from served import words
from tracked_numbers import analysed, levels, write_numbers

from dashboard.pages.compare import body
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.compare.two_sides import Side, compare
from lockstep.history.store import Store
from lockstep.suite.thresholds import FILE, Thresholds, read_thresholds

#: Unit, level and noise of each series; from commit 30 on, the second level.
SERIES = {
    "s.track_rise": ("GFLOPS", 100, 177, 0.5),
    "s.track_fall": ("GFLOPS", 100, 70, 0.5),
    "s.track_time": ("ms", 10, 12, 0.05),
    "s.track_unknown": ("unit", 10, 12, 0.05),
    "s.track_still": ("unit", 10, 10, 0.05),
    "s.track_count": ("errors", 0, 5, 0.1),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tracked") / "r"
    numbers = {name: levels((a, 30), (b, 10), spread=noise) for name, (_, a, b, noise) in SERIES.items()}
    write_numbers(root, numbers, {name: {"unit": unit} for name, (unit, *_) in SERIES.items()})
    results, _ = analysed(root)
    cache = Store.open(root, cache=root.parent / "cache").cache
    return results, Findings(cache, root).of_machine(results, "box"), root


def sides(results, base=28, head=35):
    commits = results.commits("box")
    return Side("box", commits[base].hash), Side("box", commits[head].hash)


def verdicts(tree, thresholds=Thresholds(), **places):  # noqa: B008  # a frozen value
    results, findings, _ = tree
    found = compare(results, *sides(results, **places), "speedup", thresholds, findings=findings)
    return {pair.suite: pair for pair in found}


def test_a_verdict_goes_by_direction_and_noise(tree):
    found = verdicts(tree)
    assert {name: pair.verdict for name, pair in found.items()} == {
        "s.track_rise": "faster",
        "s.track_fall": "slower",
        "s.track_time": "slower",
        "s.track_unknown": "changed",
        "s.track_still": "unsure",
        "s.track_count": "slower",
    }
    assert math.expm1(found["s.track_rise"].log) == pytest.approx(0.77, abs=0.03)
    assert math.expm1(found["s.track_fall"].log) == pytest.approx(-0.3, abs=0.02)
    assert found["s.track_count"].difference == pytest.approx(5, abs=0.5)


def test_within_a_level_nothing_is_slower_or_faster(tree):
    assert {pair.verdict for pair in verdicts(tree, base=20, head=25).values()} <= {"unsure", "same"}


def test_a_rule_states_the_direction(tree, tmp_path):
    (tmp_path / FILE).write_text('[[rule]]\nmatch = { variant = "track_unknown" }\nbetter = "higher"\n')
    assert verdicts(tree, read_thresholds(tmp_path / FILE))["s.track_unknown"].verdict == "faster"


def test_without_findings_the_noise_is_unknown(tree):
    results, _, _ = tree
    found = compare(results, *sides(results), "speedup", Thresholds())
    assert {(pair.verdict, pair.why) for pair in found} == {("unsure", "its noise is unknown")}


def test_the_page_shows_changes_of_the_numbers_themselves(tree):
    results, findings, _ = tree
    base, head = sides(results)
    chosen = dict.fromkeys(("bt", "bv", "ht", "hv", "quantity", "suite", "l2"), "")
    chosen |= {"bm": "box", "bc": base.commit, "hm": "box", "hc": head.commit}
    page = json.dumps(json.loads(words(body(results, chosen, "light", Thresholds(), findings))), ensure_ascii=False)
    assert "−30." in page or "−29." in page
    assert "+4" not in page
    assert "◆ changed" in page
    assert "▼ worse" in page
    assert "▲ better" in page
