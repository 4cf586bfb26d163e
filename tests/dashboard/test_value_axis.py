"""The vertical axis of charts follows the values, and intervals as far as they say something."""

import numpy as np
import pytest

from dashboard.charts.axes import fitted, log_axis, value_axis

NONE = np.array([np.nan, np.nan])


def ends(axis):
    return [10**end for end in axis["range"]] if axis["type"] == "log" else axis["range"]


def test_a_very_wide_interval_does_not_set_the_axis():
    """asv's 99 % interval of two samples: 100 s, from -200 to 400 s."""
    value = np.array([100.0, 103.0])
    low, high = fitted(value, np.array([-200.0, 90.0]), np.array([400.0, 110.0]))
    assert (low, high) == (50, 206)
    bottom, top = ends(value_axis(low, high, ""))
    assert 0 < bottom < 50
    assert 206 < top < 230


def test_usual_intervals_are_shown_whole():
    assert fitted(np.array([1.0, 1.1]), np.array([0.9, np.nan]), np.array([1.05, np.nan])) == (0.9, 1.1)


@pytest.mark.parametrize(("values", "expected"), [([0, 5], (0, 5)), ([-120, -100], (-120, -100)), ([0, 0], (0, 0))])
def test_zeros_and_negative_numbers_have_a_linear_axis(values, expected):
    found = fitted(np.array(values, dtype=float), NONE, NONE)
    assert found == expected
    axis = value_axis(*found, "")
    assert axis["type"] == "linear"
    assert axis["range"][0] < expected[0] <= expected[1] < axis["range"][1]


def test_without_values_there_is_no_range():
    assert fitted(NONE, NONE, NONE) is None


@pytest.mark.parametrize("low", [1.0, 1.1, 2.1, 4.9, 99.0, 160.0])
@pytest.mark.parametrize("ratio", [1.6, 3.9, 5.0, 7.9, 9.0, 80.0, 150.0, 1e4, 1e6])
def test_a_narrow_logarithmic_axis_has_at_least_one_label_and_at_most_seven(low, ratio):
    axis = log_axis(low, low * ratio, narrow=True)
    assert 1 <= sum(bool(label) for label in axis["ticktext"]) <= 7
