"""Changes of errors and of determinism: what random inputs do is none."""

import math

import numpy as np
import pytest

from lockstep.detect.exact_changes import determinism_changes, error_changes


def found(errors):
    """Index of each change, and whether the error grew."""
    changes = error_changes(np.array(errors, dtype=float))
    return [(one.index, "worse" if one.size > 0 else "better") for one in changes]


def test_other_inputs_are_no_change():
    # kda at M=1 of the recorded history: the same kernels, other inputs.
    assert found([2.400783e-3, 3.274041e-3, 2.4e-3]) == []


def test_an_error_that_leaves_its_range_is_a_change_from_its_first_point_on():
    assert found([1.66e-3, 1.70e-3, 3.33e-3, 3.38e-3]) == [(2, "worse")]
    assert found([2e-3, 4.1e-3, 4.1e-3, 2e-3]) == [(1, "worse"), (3, "better")]
    assert found([2e-3, 3.1e-3, 6.2e-3]) == [(2, "worse")]


def test_errors_of_zero_and_below_rounding_have_a_size():
    assert found([0.0, 1e-16, 1e-8]) == []
    [change] = error_changes(np.array([0.0, 1e-3]))
    assert 0 < change.size < math.inf
    assert found([]) == []


def test_outputs_of_fifty_elements_scatter_by_a_tenth():
    rng = np.random.default_rng(5)
    errors = 1e-6 * np.exp(0.1 * rng.standard_normal((250, 40)))
    assert sum(len(found(row)) for row in errors) <= 10, "one of 1000 points"
    assert found([*errors[0], 1e-4])[-1] == (40, "worse")


def test_a_level_that_is_back_leaves_nothing():
    first, second = error_changes(np.array([1e-3, 1e-2, 1.1e-3]))
    assert (first.left, second.size < 0) == (0.0, True)


@pytest.mark.parametrize(
    ("same", "changes"),
    [
        ([1, 1, 0, 0], [(2, 2, "worse")]),
        ([0, 1, 0, 1, 1, 0], []),
        ([1, 0, 1, 0, 1], [(1, 1, "worse")]),
        ([1, 0, *[1] * 5], [(1, 1, "worse"), (2, 6, "better")]),
        ([0, *[1] * 5], [(1, 5, "better")]),
        ([1, 0, 0, 0, 0, 1, 1, 1], [(1, 1, "worse"), (5, 7, "better")]),
        ([1, *[0, 1] * 20, 1, 1, 1, 1, 1], [(1, 1, "worse")]),
        ([], []),
    ],
)
def test_equal_bits_by_chance_are_no_improvement(same, changes):
    found = determinism_changes(np.array(same, dtype=float))
    assert [(one.index, one.reported_at, "worse" if one.size < 0 else "better") for one in found] == changes
