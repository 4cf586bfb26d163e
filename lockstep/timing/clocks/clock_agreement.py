"""Compare three clocks of one run: events around each replay, the GPU's nanosecond timer, and the host's clock.

A stamp of the GPU's timer precedes and follows each replay, outside the replay's events. So the time between the events
is never longer than the time between the stamps. It is shorter only by gaps in which the GPU waits for launches.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Accepted difference between events and the stamps around them: seconds, and a share of the time between the stamps. A
#: gap is a few microseconds if launches are queued. The limit leaves room for a GPU that waits for its host.
SLACK_S = 1e-4
SLACK_SHARE = 0.05

#: An arm is refused only if at least this many replays, all of them, disagree. A pause of the host lengthens a single
#: gap.
FEWEST = 3

#: Accepted excess of the host's clock over all stamps together: seconds, and a share. Launching and waking take time,
#: and other processes may delay the host.
HOST_SLACK_S = 0.05
HOST_SLACK_SHARE = 0.2

#: Seconds that the device may take to become idle after the replays' stream is idle.
LATE_S = 5e-4


def disagreement(events_s: Sequence[float], stamps_s: Sequence[float]) -> str:
    """Return how CUDA's events and the GPU's timer disagree on the times of one arm's replays; "" if they agree.

    Args:
        events_s: seconds of each replay by the events before and after it.
        stamps_s: seconds of each replay by the stamps of the GPU's timer before and after it.
    """
    if len(events_s) < FEWEST:
        return ""
    gaps = [between - event for event, between in zip(events_s, stamps_s, strict=True)]
    least, most = min(gaps, key=abs), max(stamps_s)
    if abs(least) <= SLACK_S + SLACK_SHARE * most:
        return ""
    nearest = gaps.index(least)
    return (
        f"events say {events_s[nearest] * 1e6:.1f} µs for a replay, the GPU's timer {stamps_s[nearest] * 1e6:.1f} µs "
        f"(the nearest of {len(gaps)} replays)"
    )


def host_disagreement(stamps_s: float, host_s: float) -> str:
    """Return how the host's clock disagrees with the GPU's timer over a whole run of replays; "" if they agree.

    Args:
        stamps_s: seconds between the first stamp and the last stamp of the GPU's timer.
        host_s: seconds from before the first launch until the device was idle.
    """
    if stamps_s <= host_s <= HOST_SLACK_S + (1 + HOST_SLACK_SHARE) * stamps_s:
        return ""
    if host_s < stamps_s <= 1.01 * host_s + 1e-5:
        return ""  # within the drift of two oscillators and the timer's resolution
    return f"the GPU's timer says {stamps_s * 1e3:.2f} ms for all replays, the host's clock {host_s * 1e3:.2f} ms"


def late_work(late_s: float) -> str:
    """Return how long the device still worked after its stream was idle, ``late_s`` seconds; "" if it did not."""
    if late_s <= LATE_S:
        return ""
    return f"the device worked on for {late_s * 1e3:.2f} ms after the replays had ended: join other streams"
