"""Events, the GPU's timer and the host's clock agree, or the time counts for nothing."""

import pytest

from lockstep.timing.clocks.clock_agreement import SLACK_S, disagreement, host_disagreement


@pytest.mark.parametrize(
    ("events_s", "stamps_s"),
    [
        ([3e-3, 3.01e-3, 2.99e-3], [3.004e-3, 3.02e-3, 3.0e-3]),
        # The host was paused once.
        ([3e-3, 3e-3, 3e-3], [3e-3, 50e-3, 3e-3]),
        # Two replays say nothing: a pause of the host may have hit both.
        ([1e-6, 1e-6], [3e-3, 3e-3]),
        ([1e-5] * 8, [1e-5 + 0.9 * SLACK_S] * 8),
    ],
)
def test_gaps_between_replays_are_borne(events_s, stamps_s):
    assert disagreement(events_s, stamps_s) == ""


@pytest.mark.parametrize(
    ("events_s", "stamps_s", "said"),
    [
        (
            [1e-6] * 8,
            [3e-3] * 8,
            "events say 1.0 µs for a replay, the GPU's timer 3000.0 µs (the nearest of 8 replays)",
        ),
        ([2.7e-3] * 3, [3e-3] * 3, "events say 2700.0 µs"),
        # A stamp cannot lie within its events.
        ([3e-3] * 3, [1e-6] * 3, "events say 3000.0 µs"),
    ],
)
def test_events_that_differ_in_every_replay_are_refused(events_s, stamps_s, said):
    assert said in disagreement(events_s, stamps_s)


@pytest.mark.parametrize("host_s", [0.1, 0.1001, 0.13, 0.0999])
def test_the_host_may_be_late(host_s):
    assert host_disagreement(0.1, host_s) == ""


@pytest.mark.parametrize(("stamps_s", "host_s"), [(0.1, 0.3), (1e-6, 0.1), (0.1, 0.05)])
def test_the_host_sees_what_the_gpu_does_not_tell(stamps_s, host_s):
    assert "the host's clock" in host_disagreement(stamps_s, host_s)
