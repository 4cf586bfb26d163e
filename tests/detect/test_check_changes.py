"""Changes of errors and of determinism: what random inputs do is none."""

import math

import numpy as np
import pytest

from lockstep.detect.check_changes import AGREEING, determinism_changes, error_changes

UNKNOWN = math.nan


def found(errors, baseline=None):
    """Index of each change, and whether the error grew; without a baseline the error stands alone."""
    baseline = [UNKNOWN] * len(errors) if baseline is None else baseline
    changes = error_changes(np.array(errors, dtype=float), np.array(baseline, dtype=float))
    return [(one.index, one.last_before, "worse" if one.size > 0 else "better") for one in changes]


def test_what_moves_with_the_baseline_is_due_to_the_inputs():
    # kda at M=1 of the recorded history: the same kernels, other inputs.
    assert found([2.400783e-3, 3.274041e-3, 2.4e-3], [2.400783e-3, 3.274041e-3, 2.4e-3]) == []


def test_one_rounding_more_is_a_change_from_its_first_point_on():
    baseline = [1.66e-3, 1.70e-3, 1.65e-3, 1.68e-3]
    assert found([1.66e-3, 1.70e-3, 2.33e-3, 2.38e-3], baseline) == [(2, 1, "worse")]
    assert found([3.505e-3, 3.507e-3, 2.346e-3], [3.505e-3, 3.507e-3, 3.506e-3]) == [(2, 1, "better")]


def test_another_error_of_the_baseline_is_its_own_change_alone():
    assert found([1.66e-3, 1.70e-3, 1.65e-3], [1.66e-3, 1.70e-3, 8e-4]) == []
    assert found([1.66e-3, 1.70e-3, 8e-4]) == [(2, 1, "better")]


def test_alone_an_error_must_double():
    assert found([2e-3, 3.2e-3, 2e-3]) == []
    assert found([2e-3, 4.1e-3, 4.1e-3, 2e-3]) == [(1, 0, "worse"), (3, 2, "better")]


def test_errors_of_zero_and_below_rounding_have_a_size():
    assert found([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]) == []
    assert found([0.0, 1e-16, 1e-8]) == []
    [change] = error_changes(np.array([0.0, 1e-3]), np.array([0.0, 0.0]))
    assert 0 < change.size < math.inf
    assert found([]) == []


def test_outputs_of_fifty_elements_scatter_by_a_tenth():
    rng = np.random.default_rng(5)
    errors = 1e-6 * np.exp(0.1 * rng.standard_normal((500, 40)))
    wrong = sum(len(found(row, base)) for row, base in zip(errors[:250], errors[250:], strict=True))
    assert wrong <= 10, "one of 1000 points"
    assert found([*errors[0], 1e-4], [*errors[1], 1e-6])[-1] == (40, 39, "worse")


def test_a_level_that_is_back_leaves_nothing():
    first, second = error_changes(np.array([1e-3, 1e-2, 1.1e-3]), np.full(3, UNKNOWN))
    assert (first.left, second.size < 0) == (0.0, True)


@pytest.mark.parametrize(
    ("same", "changes"),
    [
        ([1, 1, 0, 0], [(2, 2, "worse")]),
        ([0, 1, 0, 1, 1, 0], []),
        ([1, 0, 1, 0, 1], [(1, 1, "worse")]),
        ([1, 0, *[1] * AGREEING], [(1, 1, "worse"), (2, AGREEING + 1, "better")]),
        ([0, *[1] * AGREEING], [(1, AGREEING, "better")]),
        ([], []),
    ],
)
def test_equal_bits_by_chance_are_no_improvement(same, changes):
    found = determinism_changes(np.array(same, dtype=float))
    assert [(one.index, one.reported_at, "worse" if one.size < 0 else "better") for one in found] == changes
