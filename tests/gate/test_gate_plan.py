"""What is judged, in which order, and which of what is proved is measured all the same."""

import random
from pathlib import Path

import pytest
from made_suites import make_suite

from lockstep import grid
from lockstep.gate.model import SeriesKey, SideFacts
from lockstep.gate.plan import (
    AA_GROUPS,
    aa_groups,
    cases_here,
    deadline_of,
    series,
    states_here,
)
from lockstep.suite.discovery import load_suites

ROOT = Path(__file__).parents[2]
HERE = ("kernels/thing.py", 1)


@pytest.fixture
def suite():
    return make_suite(
        module="toy.thing",
        cases=grid(M=[1, 2, 3]),
        quick=grid(M=[1, 2]),
        skips=lambda variant, M: "only at M=1" if variant == "small" and M != 1 else "",
    )


def sides(base=(), head=(), **facts):
    """What a worker found of suite "a"."""
    both = {"base": SideFacts(dict.fromkeys(base, HERE), **facts), "head": SideFacts(dict.fromkeys(head, HERE))}
    return {"a": both}


@pytest.mark.parametrize(
    ("asked", "on_cpu", "l2", "labels", "states"),
    [
        (None, True, "both", ["M=1", "M=2"], ("warm",)),
        (None, True, "cold", ["M=1", "M=2"], ()),
        (None, True, "warm", ["M=1", "M=2"], ("warm",)),
        (None, False, "both", ["M=1", "M=2", "M=3"], ("warm", "cold")),
        (None, False, "cold", ["M=1", "M=2", "M=3"], ("cold",)),
        (["M=3", "M=2"], False, "both", ["M=2", "M=3"], ("warm", "cold")),
        (["M=3", "M=2"], True, "both", ["M=2"], ("warm",)),
    ],
)
def test_a_machine_judges_what_was_asked_and_it_can(suite, asked, on_cpu, l2, labels, states):
    assert cases_here({"a": suite}, {"a": asked}, on_cpu=on_cpu) == {"a": labels}
    assert set(states_here(l2, on_cpu=on_cpu)) == set(states)


def test_every_series_that_either_side_has_is_judged_where_it_is_allowed(suite):
    def judged(found, variants=()):
        return [(key.variant, key.case) for key in series({"a": suite}, labels, ["warm"], variants, found)]

    labels = {"a": ["M=1", "M=2"]}
    assert judged(sides(base=("plain", "gone"), head=("plain", "new", "small"))) == [
        ("plain", "M=1"), ("gone", "M=1"), ("new", "M=1"), ("small", "M=1"),
        ("plain", "M=2"), ("gone", "M=2"), ("new", "M=2"),
    ]  # fmt: skip
    assert judged(sides(base=("plain", "gone"), head=("plain",)), ["gone"]) == [("gone", "M=1"), ("gone", "M=2")]
    assert judged(sides(head=("plain",), missing=True)) == [("plain", "M=1"), ("plain", "M=2")]


def test_a_family_that_neither_side_can_import_is_named_and_one_that_neither_has_is_not():
    suites = load_suites(ROOT / "benchmarks")
    [case] = suites["linear"].cases[:1]

    def judged(found):
        of_linear = series({"linear": suites["linear"]}, {"linear": [case.label]}, ["warm"], (), {"linear": found})
        return [key.variant for key in of_linear]

    absent, broken = SideFacts(missing=True), SideFacts(error="no torch")
    for found in ({}, {"base": absent, "head": broken}, {"base": broken, "head": absent}):
        assert set(judged(found)) <= set(suites["linear"].variants())
        assert len(judged(found)) > 1
    assert judged({"base": absent, "head": absent}) == []


def keys(suites=("a", "b"), cases=4):
    return [
        SeriesKey(suite, variant, f"M={n}", l2)
        for suite in suites
        for n in range(cases)
        for l2 in ("cold", "warm")
        for variant in ("x", "y")
    ]


def test_the_aa_control_takes_a_few_of_different_suites_and_the_seed_says_which():
    picked = aa_groups(keys(("a", "b", "c")), random.Random(3))
    assert len(picked) == AA_GROUPS
    assert {group.suite for group in picked} == {"a", "b", "c"}
    assert all(len(group.variants) == 1 for group in picked)
    assert picked == aa_groups(keys(("a", "b", "c")), random.Random(3))
    assert aa_groups([], random.Random(3)) == []
    assert {group.suite for group in aa_groups(keys(("a",), cases=4), random.Random(3))} == {"a"}
    assert len(aa_groups(keys(("a", "b"), cases=1)[:6], random.Random(3))) == AA_GROUPS
    assert len(aa_groups(keys(("a",), cases=1), random.Random(3))) == 2


def test_a_part_gets_no_more_than_twice_its_share_of_the_budget():
    assert deadline_of([1] * 10, 100.0, 200.0) == 120.0  # 2 × 100 s / 10
    assert deadline_of([1] * 10, 100.0, 110.0) == 105.0  # a share of 1 s decides nothing
    assert deadline_of([1], 100.0, 200.0) == 200.0
    assert deadline_of([1] * 10, 100.0, 102.0) == 102.0
    assert deadline_of([3, *[1] * 7], 100.0, 200.0) == 160.0  # by cases, not by parts
