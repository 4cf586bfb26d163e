"""Pages of exact quantities: each links to the others of its suite, and calls a change worse, not slower."""

import json

import pytest
from exact import KEY, code, write_exact_history
from history import commits_of
from served import words
from trees import MACHINE, open_store, record, write_measurement

from dashboard.address import FamilyAddress, SeriesAddress
from dashboard.pages import compare as compare_page
from dashboard.pages import family, series
from dashboard.pages.compare_cases import compare_table
from dashboard.pages.overview_choice import opening_machine
from lockstep.compare.two_sides import Side, compare
from lockstep.suite.thresholds import Thresholds

COMPILED = "sm_90-compiled"


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    root = tmp_path_factory.mktemp("exact") / "repo"
    commits = commits_of(root, 2)
    plan = [code(registers=128), code(registers=129, spills=512)]
    write_exact_history(root / "results", commits, plan.__getitem__)
    write_measurement(root / "results", [record(variant=KEY.variant, case=KEY.case)], commit=commits[0])
    return open_store(root / "results").current(), commits


def test_each_quantity_links_to_the_others_on_the_machine_that_has_them(history):
    results, _ = history
    case, variant = KEY.case, KEY.variant
    text = words(family.layout(results, FamilyAddress(COMPILED, "linear.registers", (case,))))
    assert FamilyAddress(COMPILED, "linear.spills", (case,)).link() in text
    assert FamilyAddress(MACHINE, "linear", (case,)).link() in text, "the time was measured elsewhere"
    assert '"Registers"' in text
    assert "device memory that is held after the call" in text, "a word such as kept needs an explanation"
    assert f"time of a call, on {MACHINE}" in text
    assert FamilyAddress(COMPILED, "linear.registers").link() in words(
        family.layout(results, FamilyAddress(MACHINE, "linear"))
    )
    of_series = words(series.layout(results, SeriesAddress(COMPILED, "linear.registers", variant, case)))
    assert SeriesAddress(MACHINE, "linear", variant, case, "cold").link() in of_series
    assert SeriesAddress(COMPILED, "linear.kept", variant, case).link() in of_series


def test_the_overview_opens_on_what_was_measured(history):
    assert opening_machine(history[0]) == MACHINE


def test_numbers_have_their_variant_and_unit(history):
    results, _ = history
    address = FamilyAddress(COMPILED, "linear.registers", (KEY.case,), "", ("value",), (KEY.variant,))
    text = words(family.latest(results, address, "light"))
    assert "registers" in text
    assert f'"{KEY.variant}"' in text
    assert "129 registers" in text


def test_more_registers_are_worse_and_not_slower(history):
    results, commits = history
    sides = [Side(COMPILED, commit) for commit in commits]
    text = words(compare_table(compare(results, *sides, "latency", Thresholds()), sides[1].machine))
    assert [json.dumps(said)[1:-1] in text for said in ("▼ worse", "▼ slower")] == [True, False]


def test_a_comparison_of_exact_quantities_has_no_time_and_whole_numbers(history):
    results, (base, head) = history
    asks = dict.fromkeys(compare_page.KEYS, "") | {"bm": COMPILED, "bc": base, "hm": COMPILED, "hc": head}
    text = words(compare_page.body(results, asks, "light", Thresholds()))
    assert json.dumps("▼ 2 worse")[1:-1] in text
    assert "geometric mean" not in text, "registers and bytes have none in common"
    assert "2 slower" not in text
    assert '"129 registers"' in text
    one = words(compare_page.body(results, asks | {"suite": "linear.registers"}, "light", Thresholds()))
    assert "geometric mean of the registers +0.78 %" in one
    assert '"129"' in one
