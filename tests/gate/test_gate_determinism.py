"""Whether a variant gives the same bits in every call: what changed is found, and luck is not blamed on the change."""

import itertools
import json
import random
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
from fakes import FakeDevice
from made_suites import make_suite
from project import KERNELS, make_project

from lockstep import Cost, grid
from lockstep.gate.measuring.compare_bits import CALLS, MORE, compare_bits
from lockstep.gate.measuring.comparer import Comparer
from lockstep.gate.measuring.pairing import QUICK
from lockstep.gate.model import DETERMINISTIC, GroupRequest, SeriesKey, Verdict
from lockstep.gate.namespaces import Sides
from lockstep.gate.plan import groups
from lockstep.gate.report.report import Report, headline
from lockstep.gate.report.rows import rows
from lockstep.gate.sequential_decision import Test
from lockstep.suite.thresholds import Accept, Pattern, Thresholds

[CASE] = grid(M=6)
SUITE = make_suite(
    family="work",
    module="sums.work",
    quick=(CASE,),
    draw=lambda new, M: {"x": new.normal(M, 4096, dtype="float32")},
    buffers=lambda new, M: new.empty(M, dtype="float32"),
    reference=lambda x: x.double().sum(1),
    cost=lambda M: Cost(M, M),
    tolerance=1e-3,
)

#: A stand-in for atomics: ``first`` is the column at which the sum begins.
SUMS = """
import torch

CALLS = []

def rows(x, *, out):
    first = 0
    return torch.sum(torch.roll(x, first, 1), 1, out=out)

def twin(x, *, out):
    return torch.sum(x, 1, out=out)

VARIANTS = {"rows": rows, "twin": twin}
"""

ANY_ORDER = "CALLS.append(1); first = 97 * len(CALLS)"

#: The order changes in every third call.
SOMETIMES = "CALLS.append(1); first = 97 * (len(CALLS) % 3 == 0)"

KEY = SeriesKey("work", "rows", CASE.label, "warm", DETERMINISTIC)
TWIN = replace(KEY, variant="twin")


def judge(tmp_path, monkeypatch, base, head, keys=(KEY, TWIN), deadline_s=60.0):
    """The verdicts on both variants, of which one sums in the order of each side."""
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    for side, order in (("base", base), ("head", head)):
        (tmp_path / side / "sums").mkdir(parents=True)
        (tmp_path / side / "sums" / "__init__.py").touch()
        (tmp_path / side / "sums" / "work.py").write_text(SUMS.replace("first = 0", order))
    sides = Sides(["sums"], base=tmp_path / "base", head=tmp_path / "head")
    comparer = Comparer(sides, FakeDevice(), QUICK, 1, lambda *_: None)
    for side in ("base", "head"):
        assert not comparer.families.load(SUITE, side).error
    found = {}
    for group in groups(keys):
        tests = dict.fromkeys(group.variants, Test(0.01, 0.01, 1, 0.01))
        for verdict in comparer.judge([(SUITE, GroupRequest(group, tests))], deadline_s):
            found[verdict.key] = verdict
    return found


@pytest.mark.parametrize(
    ("base", "head", "outcome"),
    [
        ("first = 0", "first = 0", "same"),
        ("first = 0", ANY_ORDER, "slower"),
        ("first = 0", SOMETIMES, "slower"),
        (ANY_ORDER, "first = 0", "faster"),
        (ANY_ORDER, SOMETIMES, "same"),
        (SOMETIMES, ANY_ORDER, "same"),
    ],
)
def test_an_order_that_changes_is_found_and_the_other_variant_stays_the_same(
    tmp_path, monkeypatch, base, head, outcome
):
    found = judge(tmp_path, monkeypatch, base, head)
    assert {key.variant: one.outcome for key, one in found.items()} == {"rows": outcome, "twin": "same"}


def test_a_verdict_says_what_differs_and_where(tmp_path, monkeypatch):
    found = judge(tmp_path, monkeypatch, "first = 0", ANY_ORDER, [KEY, replace(KEY, l2="cold")])
    worse = found[KEY]
    assert worse.reason.startswith("not deterministic any more: two calls on the same inputs differ in output 0, in ")
    assert " of 6 elements, first at [" in worse.reason
    assert worse.reason.endswith(f"; base gave the same bits in {1 + MORE} calls")
    assert (worse.label, worse.blocks, worse.change) == ("worse", True, None)
    assert found[replace(KEY, l2="cold")] == replace(worse, key=replace(KEY, l2="cold")), "one check for both states"


def test_the_bits_of_a_head_that_fails_are_not_judged(tmp_path, monkeypatch):
    fails = judge(tmp_path, monkeypatch, "first = 0", "x = x + 1; first = 0", [KEY])
    assert (fails[KEY].outcome, "WrongResult" in fails[KEY].reason) == ("failed", True)


def test_a_head_that_fails_in_a_later_call_fails(tmp_path, monkeypatch):
    later = judge(tmp_path, monkeypatch, "first = 0", "CALLS.append(1); first = 0 if len(CALLS) < 4 else CALLS[99]")
    assert (later[KEY].outcome, later[TWIN].outcome) == ("failed", "same")
    assert later[KEY].reason.startswith("head fails in a further call: IndexError")


def test_what_is_unknown_on_a_side_is_not_judged(tmp_path, monkeypatch):
    def full(*_):
        raise torch.cuda.OutOfMemoryError("full")

    monkeypatch.setattr("lockstep.timing.checks.check.Checker.repeated", full)
    verdict = judge(tmp_path, monkeypatch, "first = 0", ANY_ORDER)[KEY]
    assert (verdict.outcome, verdict.reason) == ("na", "the device has too little memory for a further call")


def test_nobody_is_blamed_when_the_time_is_over(tmp_path, monkeypatch):
    steady, wild = itertools.repeat(""), itertools.repeat("they differ")
    assert compare_bits(KEY, steady, wild, deadline=0.0).outcome == "unsure"


@pytest.mark.parametrize("rate", [0.0005, 0.003, 0.01, 0.03, 0.1, 0.3, 0.9, 1.0])
def test_unchanged_code_is_rarely_blamed_however_seldom_its_calls_differ(rate):
    """1 % at most: by luck, base agreed and head did not, or the other way round."""
    chance = random.Random(f"{rate}")

    def calls():
        while True:
            yield "they differ" if chance.random() < rate else ""

    wrong = sum(compare_bits(KEY, calls(), calls(), deadline=1e12).outcome == "slower" for _ in range(2000))
    assert wrong <= 2000 * 0.01


def test_calls_that_agree_need_few_calls():
    taken = []

    def calls(side):
        while True:
            taken.append(side)
            yield ""

    assert compare_bits(KEY, calls("base"), calls("head"), deadline=1e12).outcome == "same"
    assert (taken.count("base"), taken.count("head")) == (CALLS, CALLS)


def report(*verdicts):
    latency = Verdict(SeriesKey("work", "rows", CASE.label, "warm"), "same", unchanged=False)
    return Report("main", "head", 0.01, 0.99, 60.0, 1, {"device": "cuda"}, (latency, *verdicts))


def test_the_headline_and_a_row_name_it_and_it_decides_the_state():
    why = "not deterministic any more: two calls on the same inputs differ in output 0"
    worse = report(Verdict(KEY, "slower", why), Verdict(replace(KEY, l2="cold"), "slower", why))
    assert worse.state == "slower"
    assert headline(worse) == "2 cases not deterministic any more: work rows at M=6 warm (1 same, 2 slower)."
    [row] = rows(worse)
    assert (row.cells[0], row.cells[2:4], row.cells[-1]) == ("worse", ("rows (deterministic)", "2 cases"), why)
    better = report(Verdict(KEY, "faster", "deterministic now"))
    assert better.state == "pass"
    assert "1 case deterministic now: work rows" in headline(better)


def test_an_entry_accepts_it_only_if_it_names_the_quantity():
    def accepted(quantity):
        one = Accept(Pattern(suite="work", quantity=quantity), 0.5, ("#1",), "atomics are meant")
        return Thresholds(accepts=(one,)).accepted("work", "rows", "M=6", "warm", None, ["#1"], DETERMINISTIC)

    assert accepted(DETERMINISTIC).because == "atomics are meant"
    assert accepted("*") is None


@pytest.mark.thorough
def test_the_command_judges_it_if_asked(tmp_path):
    project = make_project(tmp_path / "project", timeout=20.0)
    drifting = textwrap.dedent(KERNELS).replace(
        "    torch.mm(x, weight, out=out)\n    return torch.mm(x, weight, out=out)",
        "    CALLS.append(1)\n    return torch.mm(x, weight, out=out).mul_(1 + 2.0**-22 * (len(CALLS) % 2))",
    )
    assert "CALLS" in drifting
    project.write("toy/product.py", drifting.replace("VARIANTS = ", "CALLS = []\nVARIANTS = "))
    path = project.root / "gate.json"
    ask = ("gate", "--json", str(path), "--case", "M=2", "--budget", "40s", "--min-effect", "95%")
    done = project.lockstep(*ask, "--costs", "deterministic")
    assert done.returncode == 1, done.stdout
    found = {(one["key"]["variant"], one["key"]["quantity"]): one for one in json.loads(path.read_text())["cases"]}
    assert found["twice", "deterministic"]["outcome"] == "slower"
    assert found["twice", "latency"]["outcome"] != "slower"
    assert (found["plain", "deterministic"]["outcome"], found["plain", "deterministic"]["unchanged"]) == ("same", False)
    assert "not deterministic any more" in done.stdout
    assert "--costs deterministic" in done.stdout, "the command that judges the case again"
    project.write(
        "thresholds.toml",
        "[[accept]]\nmatch = { quantity = 'deterministic' }\nslower_by = '1 %'\nof = ['#1']\nbecause = 'meant'\n",
    )
    done = project.lockstep(*ask, "--costs", "--about", "#1")
    assert done.returncode == 0, done.stdout
    found = {(one["key"]["variant"], one["key"]["quantity"]): one for one in json.loads(path.read_text())["cases"]}
    assert found["twice", "deterministic"]["accepted"] == "meant"
    assert found["twice", "host"]["outcome"] == "na"
