"""A variant that works less on values that it knows is told from one that a busy machine disturbed."""

from lockstep.timing.arms.repeated_values import SPARED, TRIALS, Trial, skipped_work, undecided


def test_so_many_trials_must_show_skipped_work():
    skipping, honest = Trial(5e-4, 1e-5), Trial(4.1e-4, 4e-4)
    assert "500.0 µs on new values and 10.0 µs" in skipped_work([skipping] * TRIALS)
    assert skipped_work([honest, *[skipping] * TRIALS])
    assert skipped_work([skipping] * (TRIALS - 1)) == ""
    assert undecided([*[skipping] * (TRIALS - 1), *[honest] * (SPARED - 1)])
    assert not undecided([honest] * SPARED)
    assert not undecided([skipping] * TRIALS)
    assert skipped_work([honest] * TRIALS) == ""
    assert skipped_work([]) == ""


def test_the_first_launch_of_a_short_kernel_is_no_evidence():
    assert skipped_work([Trial(2.4e-5, 3e-6)] * TRIALS) == ""
    assert skipped_work([Trial(3.1e-5, 3e-6)] * TRIALS)
