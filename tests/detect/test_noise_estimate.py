"""The noise of a series: from its first points, from its innovations, and with the errors that its runs tell of."""

import math

import numpy as np
import pytest

from lockstep.detect.noise_estimate import CAUTION, NoiseEstimate, spread
from lockstep.detect.settings import BURN_IN

ROW = np.array([0])
REMEMBERED = 128
FLOOR = 1e-12


def scatter(innovations, start=BURN_IN):
    """One series that began with ``start`` points without noise, then missed its forecasts by that much."""
    made = NoiseEstimate(1)
    made.start(ROW, np.zeros((1, start)))
    for index, missed in enumerate(innovations):
        made.note(ROW, np.array([index]), np.array([missed]))
    return made


def refresh(made, length, seen):
    made.refresh(ROW, np.array([length]), np.array([seen]))
    return made.variance[0], made.points[0]


def weigh(made, *errors):
    return [made.weigh(ROW, np.array([error]))[0] for error in errors]


def test_the_spread_of_normal_points_is_their_variance_and_outliers_do_not_count():
    points = np.random.default_rng(1).normal(0, 3, (2, 20_000))
    points[1, ::10] = 1e3
    # Cut at 3.4 standard deviations, a normal distribution has 0.991 of its variance left.
    assert spread(points**2) == pytest.approx([9 * 0.991] * 2, rel=0.03)


@pytest.mark.parametrize(("beyond", "kept"), [(0.99, True), (1.01, False)])
def test_the_gate_stands_where_the_points_within_put_it(beyond, kept):
    square = beyond * 3.4**2
    missing = [math.nan] * 3
    assert spread(np.array([[square, 1, 1, 1, *missing]])) == pytest.approx([(3 + square) / 4 if kept else 1])


def test_the_spread_of_one_point_is_its_square():
    assert spread(np.array([[math.nan, 4.0], [0.0, 0.0]])).tolist() == [4.0, 0.0]


def test_half_of_a_weight_is_the_points_own_error_over_the_usual_one():
    # The usual error is a geometric mean: of 1 and 2 it is √2, with another √2 it stays.
    assert weigh(NoiseEstimate(1), 1, 2, math.sqrt(2)) == pytest.approx([1, 0.5 + 0.5 * 2, 1])


def test_what_has_no_error_weighs_one_and_does_not_count():
    made = NoiseEstimate(1)
    assert weigh(made, math.nan, 1, math.nan, 2, math.inf) == pytest.approx([1, 1, 1, 1.5, 1])
    assert made.had_errors(np.array([0, 0]), np.array([2, 5])).tolist() == [True, False]


def test_the_usual_error_follows_the_last_fifty():
    made = NoiseEstimate(1)
    assert weigh(made, *[1e-3] * 200) == pytest.approx([1] * 200)
    assert weigh(made, 0.1) == pytest.approx([0.5 + 0.5 * 100 ** (2 * 50 / 51)])


def test_the_first_guess_is_the_sample_variance_and_never_nothing():
    made = NoiseEstimate(3)
    steps = np.linspace(-1, 1, BURN_IN)
    made.start(np.array([2, 0]), np.array([7 + 0.01 * steps, 0 * steps]))
    assert made.variance == pytest.approx([FLOOR, math.nan, 1e-4 * steps.var(ddof=1)], nan_ok=True)
    assert made.points.tolist() == [10, 0, 10]
    # From few points it is often too small.
    assert made.cautious(np.array([2])) == pytest.approx(made.variance[2] * (1 + CAUTION / 10))


@pytest.mark.parametrize(("off", "noise"), [(0, 1.5), (2, 2), (9, 4)])
def test_a_guess_from_three_points_keeps_to_what_their_errors_tell(off, noise):
    made, error = NoiseEstimate(1), 1e-3
    weigh(made, error, error, error)
    made.start(ROW, error * np.array([[-off, 0, off]]))  # a sample variance of off²
    assert made.variance == pytest.approx([(noise * error) ** 2])


def test_it_is_made_anew_from_the_last_innovations():
    missed = 0.01 * (1 + np.arange(300) / 300)
    made = scatter(missed)
    assert refresh(made, 300, 300) == pytest.approx((np.mean(missed[-REMEMBERED:] ** 2), REMEMBERED))
    assert refresh(scatter(missed[:65]), 65, 65) == pytest.approx((np.mean(missed[:65] ** 2), 65))
    assert refresh(scatter(np.zeros(300)), 300, 300) == (FLOOR, REMEMBERED)


def test_it_is_made_anew_where_there_are_as_many_as_a_burn_in_takes():
    assert refresh(scatter([0.01] * 9), 9, 100) == (FLOOR, 10)
    assert refresh(scatter(0.01 * np.arange(1, 11)), 10, 100) == pytest.approx((1e-4 * 38.5, 10))


@pytest.mark.parametrize(("seen", "again"), [(20, 22), (200, 220)])
def test_it_is_made_anew_when_a_tenth_more_is_known_and_at_once_after_a_change(seen, again):
    made = scatter([0.01] * seen)
    assert refresh(made, seen, seen)[0] == pytest.approx(1e-4)
    made.note(np.repeat(ROW, 250), np.arange(250), np.full(250, 0.02))
    assert refresh(made, again - 1, again - 1)[0] == pytest.approx(1e-4)
    assert refresh(made, again, again)[0] == pytest.approx(4e-4)
    made.note(np.repeat(ROW, 250), np.arange(250), np.full(250, 0.03))
    # The last four were told from a level that had ended.
    made.forget(0, again - 3, again + 1, again + 1)
    assert refresh(made, again + 1, again + 1) == pytest.approx((9e-4, min(again - 3, REMEMBERED - 4)))


def test_the_first_guess_stands_until_four_more_points_are_known():
    made = scatter([0.01] * 30)
    assert refresh(made, 13, 13) == (FLOOR, 10)
    assert refresh(made, 14, 14) == pytest.approx((1e-4, 14))


def test_only_the_series_that_are_due_are_made_anew():
    made, rows = NoiseEstimate(2), np.array([0, 1])
    made.start(rows, np.zeros((2, 10)))
    for index in range(20):
        made.note(rows, np.array([index, index]), np.array([0.01, 0.02]))
    made.refresh(rows, np.array([20, 20]), np.array([20, 13]))
    assert made.variance == pytest.approx([1e-4, FLOOR])


def test_residuals_are_innovations_in_standard_deviations_without_gaps():
    made = scatter([1.0, 2.0, np.nan, 3.0])
    made.variance[:] = 4.0
    assert made.residuals(0, 3).tolist() == [0.5, 1.0]
    assert made.residuals(0, 4).tolist() == [0.5, 1.0, 1.5]
    assert scatter(np.ones(200)).residuals(0, 200).size == REMEMBERED


def test_rounded_numbers_are_no_quieter_than_their_rounding():
    made = NoiseEstimate(1)
    for value in (0.0, 0.0, 0.02, 0.0, 0.01, 0.0):
        made.see(ROW, np.array([value]))
    made.start(ROW, np.zeros((1, BURN_IN)))
    assert made.variance == pytest.approx([0.01**2 / 6])


def test_a_step_among_the_first_points_is_not_noise():
    points = np.random.default_rng(1).normal(0, 0.01, (400, BURN_IN))
    made, stepped = NoiseEstimate(400), NoiseEstimate(400)
    made.start(np.arange(400), points)
    stepped.start(np.arange(400), points + 0.2 * (np.arange(BURN_IN) >= 5))
    assert np.median(made.variance) == pytest.approx(1e-4, rel=0.15)
    assert np.median(stepped.variance) == pytest.approx(1e-4, rel=0.3)


@pytest.mark.parametrize("own", [0.002, 0.05])
def test_a_level_has_the_noise_that_its_points_have(own):
    generator = np.random.default_rng(2)
    made = scatter(generator.normal(0, 0.01, 60))
    made.forget(0, 60, 63, 63)
    for index in range(63, 90):
        made.note(ROW, np.array([index]), generator.normal(0, own, 1))
    variance, points = refresh(made, 90, 90)
    assert math.sqrt(variance) == pytest.approx(own, rel=0.3)
    assert points == 27
