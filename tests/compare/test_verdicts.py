"""What two measurements differ by, and what that is called: one rule, and what a row's page adds to it."""

import math

import pytest

from lockstep.compare.rows import Measured, Row
from lockstep.compare.since_commit import difference
from lockstep.compare.verdict import LOUDEST, Change, changed, error_of, loudness


def row(value, error):
    return Row("m", "c", "s", "", "", "", "1", "ok", value=Measured(value, error=error), unit="MB")


@pytest.mark.parametrize(
    ("worse", "error", "rule", "row_says"),
    [
        (0.03, 0.01, "slower", "slower"),
        (-0.03, 0.01, "faster", "faster"),
        (0.02, 0.01, "unsure", "unsure"),
        (0.002, 0.003, "same", "same"),
        (0.002, 0.006, "unsure", "unsure"),
        # Surely there and too small to matter, while the interval reaches beyond that.
        (0.009, 0.003, "unsure", "same"),
        (-0.009, 0.003, "unsure", "same"),
        # Equal, and nothing known of the noise.
        (0.0, math.nan, "unsure", "same"),
        (0.03, math.nan, "unsure", "unsure"),
    ],
)
def test_a_row_is_called_by_the_rule_but_for_two_kinds_of_same(worse, error, rule, row_says):
    assert Change(worse, error).verdict(0.01, 0.99) == rule
    each = None if math.isnan(error) else error / math.sqrt(2)
    told = difference(row(100.0, each), row(100.0 * math.exp(worse), each), matters=0.01, confidence=0.99)
    assert told.verdict == row_says
    if each is not None:
        assert (told.low, told.high) == pytest.approx(Change(worse, error).interval(0.99))


def test_an_interval_of_no_width_tells_a_row_no_noise():
    before, after = row(100.0, 0.0), row(105.0, 0.0)
    assert changed(before.value, after.value).verdict(0.01, 0.99) == "slower"
    assert difference(before, after).verdict == "unsure"


def test_more_of_a_rate_is_better_and_nothing_is_told_of_what_is_not_positive():
    two, three = Measured(2.0), Measured(3.0)
    assert changed(two, three).worse == -changed(two, three, higher_is_better=True).worse == math.log(1.5)
    assert all(math.isnan(changed(*both).worse) for both in ((Measured(0.0), two), (two, Measured(-1.0))))


@pytest.mark.parametrize(
    ("before", "after", "noise", "error"),
    [
        (0.003, 0.004, math.nan, 0.005),
        (0.003, 0.004, 0.001, 0.005),
        (0.003, 0.004, 0.01, math.sqrt(2) * 0.01),
        (None, 0.004, 0.01, math.sqrt(2) * 0.01),
        (None, 0.004, math.nan, math.nan),
    ],
)
def test_the_larger_of_the_noise_within_and_between_runs_counts(before, after, noise, error):
    assert error_of(before, after, noise) == pytest.approx(error, nan_ok=True)


def test_the_loudest_come_first_and_what_has_no_number_last():
    keys = [("unsure", 0.1), ("slower", 0.02), ("unsure", math.nan), ("slower", -0.05), ("failed", math.nan)]
    found = sorted(keys, key=lambda one: loudness(*one, "s", "M=8", "cold", "v"))
    assert [verdict for verdict, _ in found] == ["failed", "slower", "slower", "unsure", "unsure"]
    assert [worse for _, worse in found[1:4]] == [-0.05, 0.02, 0.1]
    assert LOUDEST[0] == "failed"
    assert sorted(["M=16", "M=8"], key=lambda case: loudness("same", 0.0, "s", case, "", "")) == ["M=8", "M=16"]
