"""``thresholds.toml``: defaults, rules in order, mutes that end, slowdowns that are meant, errors that help."""

import datetime
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.record.quantity import COSTS
from lockstep.suite.thresholds import FILE, Threshold, Thresholds, ThresholdsError, read_thresholds

SERIES = ("linear", "triton", "M=1,K=4096,N=2048", "cold")
TODAY = datetime.date(2026, 11, 21)

FULL = """
[default]
min_effect = 0.02
owner = "everyone"

[[rule]]
match = { suite = "linear" }
min_effect = "3.5 %"
confidence = 0.9

[[rule]]
match = { suite = "lin*", case = "M=1,*" }
min_effect = "5%"
owner = "small-batch"

[[mute]]
match = { variant = "tri*", l2 = "cold" }
until = 2026-11-21
because = "new primer"

[[mute]]
match = { suite = "linear" }
until = 2026-12-31
because = "the rack moves"

[[accept]]
match = { suite = "linear" }
slower_by = "4 %"
of = ["#12", "abcdef1"]
because = "exact rounding"

[[accept]]
match = { suite = "mlp" }
slower_by = "250 %"
of = "#12"
because = "half of the memory"
"""


@pytest.fixture
def full(tmp_path):
    path = tmp_path / FILE
    path.write_text(FULL)
    return read_thresholds(path)


def test_without_a_file_there_are_defaults(tmp_path):
    thresholds = read_thresholds(tmp_path / FILE)
    assert thresholds == Thresholds()
    assert thresholds.of(*SERIES) == Threshold(min_effect=0.01, confidence=0.99, owner="")
    assert thresholds.muted(*SERIES, TODAY) is None


def test_the_projects_own_file_limits_costs_and_its_examples_are_right(tmp_path):
    path = Path(__file__).parents[2] / FILE
    own = read_thresholds(path)
    assert replace(own, rules=()) == Thresholds()
    assert {one.match.quantity for one in own.rules} == set(COSTS) - {"behind"} | {"launches"}
    assert own.budget_of("kda", "best", "M=64", "", "launches") == 2
    assert own.budget_of("kda", "eight", "M=64", "", "launches") == 0
    assert own.of(*SERIES) == own.of(*SERIES, "speedup") == Threshold()
    # The time behind a kernel scatters as little as a latency.
    assert own.of(*SERIES, "behind_speedup") == own.of(*SERIES, "behind") == Threshold()
    assert own.of(*SERIES, "host").min_effect == 0.1
    text = path.read_text()
    examples = re.sub(r"(?m)^# (?=\[|\w+ = )", "", text)
    path = tmp_path / FILE
    path.write_text(examples)
    shown = read_thresholds(path)
    assert (len(shown.rules), len(shown.mutes), len(shown.accepts)) == (4 + len(own.rules), 1, 1)
    assert dict(shown.budget) == {"spills": 0, "launches": 0, "registers": 8}


def test_the_last_rule_that_matches_gives_each_value(full):
    assert full.of(*SERIES) == Threshold(0.05, 0.9, "small-batch")
    assert full.of("linear", "triton", "M=8,K=64", "cold") == Threshold(0.035, 0.9, "everyone")
    assert full.of("kda", "triton", "M=1,K=64", "cold") == Threshold(0.02, 0.99, "everyone")


def test_entries_that_name_a_quantity_leave_the_others_alone(tmp_path):
    path = tmp_path / FILE
    path.write_text("""
[[rule]]
match = { quantity = "host" }
min_effect = "7 %"

[[mute]]
match = { suite = "linear", quantity = "compile" }
until = 2026-12-31
because = "a new compiler each day"

[[accept]]
match = { quantity = "latency" }
slower_by = "4 %"
of = "#12"
because = "exact rounding"
""")
    told = read_thresholds(path)
    effects = {quantity: told.of(*SERIES, quantity).min_effect for quantity in ("latency", "speedup", "host", "energy")}
    assert effects == {"latency": 0.01, "speedup": 0.01, "host": 0.07, "energy": 0.01}
    assert told.of(*SERIES) == Threshold(), "the gate asks for no quantity: it measures latencies"
    assert [told.muted(*SERIES, TODAY, one) is not None for one in ("compile", "speedup")] == [True, False]
    accepted = [told.accepted(*SERIES, 0.03, ["#12"], one) is not None for one in ("speedup", "latency", "host")]
    assert accepted == [True, True, False]


def test_a_mute_lasts_to_the_end_of_its_day(full):
    assert full.muted(*SERIES, TODAY).because == "the rack moves"
    assert full.muted("kda", "triton", "M=1", "cold", TODAY).because == "new primer"
    assert full.muted("kda", "triton", "M=1", "cold", TODAY + datetime.timedelta(1)) is None
    assert full.muted("kda", "triton", "M=1", "warm", TODAY) is None


def test_a_slowdown_is_accepted_in_its_commits_and_up_to_its_size(full):
    assert full.accepted(*SERIES, 0.03, ["abcdef1" + "0" * 33]).because == "exact rounding"
    assert full.accepted(*SERIES, 0.03, ["Round exactly (#12)"]) is not None
    assert full.accepted(*SERIES, 0.03, ["Round exactly (#123)"]) is None
    assert full.accepted(*SERIES, 0.03, ["f" * 40]) is None
    assert full.accepted(*SERIES, 0.05, ["#12"]) is None
    assert full.accepted("mlp", *SERIES[1:], 2.4, ["#12"]) is not None
    assert full.accepted("mlp", *SERIES[1:], 2.6, ["#12"]) is None
    assert full.accepted("kda", *SERIES[1:], 0.03, ["#12"]) is None


WRONG = {
    "min_effect = 1": "min_effect is not a key of this table; its keys are default, rule, mute, accept",
    "[default": "cannot be read",
    f"[default]\nmin_effect = {'9' * 5000}": "cannot be read: .* digits",
    f"[default]\nmin_effect = 0x{'f' * 5000}": "min_effect is an integer of thousands of digits; write a share",
    f"[default]\nmin_effect = {'9' * 400}": "min_effect is 9{80}…; write a share",
    f"default = {'[' * 5000}": "cannot be read",
    "[default]\nmin_effect = 5": 'min_effect is 5; write a share: min_effect = "2 %"',
    "[default]\nmin_effect = '-1 %'": "min_effect is '-1 %'",
    "[default]\nmin_effect = true": "min_effect is True",
    "[default]\nconfidence = 99": "confidence is 99; write a number from 0.5",
    "[default]\nconfidence = 1.0": "confidence is 1.0",
    "[default]\nminimum = 1": "minimum is not a key of this table; its keys are min_effect, confidence, owner",
    "[rule]\nmin_effect = 0.1": r"rule must be written \[\[rule\]\]",
    "[[rule]]\nmin_effect = 0.1": r"\[\[rule\]\] no. 1: match is missing; write a table of globs",
    "[[rule]]\nmatch = {suite='a'}": "is the only key: add min_effect",
    "[[rule]]\nmatch = {kernel='a'}\nowner = 'me'": "match: kernel is not a key of this table",
    "[[rule]]\nmatch = {suite='a'}\nbetter = 'more'": "better is 'more'; write the better direction",
    "[[rule]]\nmatch = {suite=3}\nowner = 'me'": "match: suite is 3; write a glob",
    "[[mute]]\nmatch = {suite='a'}\nbecause='noise'": "until is missing; write a day",
    "[[mute]]\nmatch = {suite='a'}\nuntil = 'soon'\nbecause='noise'": "until is 'soon'; write a day",
    "[[mute]]\nmatch = {suite='a'}\nuntil = 2027-01-01": "because is missing; write a reason",
    "[[mute]]\nmatch = {suite='a'}\nuntil = 2027-01-01\nbecause = ' '": "because is empty",
    "[[accept]]\nmatch = {suite='a'}\nslower_by = '5 %'\nbecause = 'x'": "of is missing; write commits",
    "[[accept]]\nmatch = {suite='a'}\nslower_by = '5 %'\nof = 'main'\nbecause = 'x'": "at least seven digits",
}


@pytest.mark.parametrize("content", WRONG)
def test_an_error_names_the_file_the_key_and_what_to_do(tmp_path, content):
    path = tmp_path / FILE
    path.write_text(content)
    with pytest.raises(ThresholdsError, match=WRONG[content]) as caught:
        read_thresholds(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_the_system_refuses_is_named_once(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(ThresholdsError, match=rf"^{tmp_path / FILE} cannot be read: Is a directory$"):
        read_thresholds(tmp_path / FILE)


def test_a_budget_is_a_number_of_an_exact_quantity(tmp_path):
    path = tmp_path / "thresholds.toml"
    path.write_text("[budget]\nspills = 64\nregisters = 8\n")
    thresholds = read_thresholds(path)
    assert dict(thresholds.budget) == {"spills": 64, "launches": 0, "registers": 8}
    asked = {name: thresholds.budget_of(*SERIES, name) for name in ("spills", "registers", "launches", "instructions")}
    assert asked == {"spills": 64, "registers": 8, "launches": 0, "instructions": None}
    for wrong in ("latency = 1", "spills = -1", "spills = 'none'", "spills = true"):
        path.write_text(f"[budget]\n{wrong}\n")
        with pytest.raises(ThresholdsError, match="budget"):
            read_thresholds(path)


def test_a_rule_gives_an_exact_quantity_of_some_series_a_budget(tmp_path):
    path = tmp_path / FILE
    path.write_text(
        '[budget]\nspills = 64\n[[rule]]\nmatch = { suite = "hgemm", quantity = "registers" }\nbudget = 8\n'
        '[[rule]]\nmatch = { quantity = "spills" }\nbudget = 128\n'
    )
    thresholds = read_thresholds(path)
    place = ("best", "M=1", "")
    assert [thresholds.budget_of("hgemm", *place, name) for name in ("registers", "shared", "spills")] == [8, None, 128]
    assert thresholds.budget_of("kda", *place, "registers") is None
    for match in ('{ suite = "hgemm" }', '{ quantity = "latency" }'):
        path.write_text(f"[[rule]]\nmatch = {match}\nbudget = 8\n")
        with pytest.raises(ThresholdsError, match="budget needs the name of an exact quantity"):
            read_thresholds(path)
