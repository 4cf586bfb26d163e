"""Three clocks of one run must agree: events around each replay, the GPU's nanosecond timer, and the host's clock.

A stamp of the GPU's timer precedes and follows each replay, outside its events. So the events' time is never longer
than the time between the stamps, and shorter by the gaps only: the GPU waits there for launches.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Seconds, and share of the time between the stamps, by which events may differ from them. A gap is a few microseconds
#: where launches are queued; the bound leaves room for a GPU that waits for its host.
SLACK_S = 1e-4
SLACK_SHARE = 0.05

#: Replays of an arm that must all disagree: a pause of the host lengthens one gap, not each.
FEWEST = 3

#: Seconds, and share, by which the host's clock may exceed all stamps together: launching and waking take time, and
#: other processes may delay the host.
HOST_SLACK_S = 0.05
HOST_SLACK_SHARE = 0.2

#: Seconds that waiting for an idle device may take once its stream is idle.
LATE_S = 5e-4


def disagreement(events_s: Sequence[float], stamps_s: Sequence[float]) -> str:
    """Return how the events of one arm's replays disagree with the stamps around them, or "".

    Args:
        events_s: seconds between the events of each replay.
        stamps_s: seconds between the stamps around each replay.
    """
    if len(events_s) < FEWEST:
        return ""
    gaps = [between - event for event, between in zip(events_s, stamps_s, strict=True)]
    least, most = min(gaps, key=abs), max(stamps_s)
    if abs(least) <= SLACK_S + SLACK_SHARE * most:
        return ""
    at = gaps.index(least)
    return (
        f"events say {events_s[at] * 1e6:.1f} µs for a replay, the GPU's timer {stamps_s[at] * 1e6:.1f} µs "
        f"(the nearest of {len(gaps)} replays)"
    )


def host_disagreement(stamps_s: float, host_s: float) -> str:
    """Return how the host's clock disagrees with the stamps of the same run, or "".

    Args:
        stamps_s: seconds between the first stamp and the last.
        host_s: seconds from before the first launch until the device was idle.
    """
    if stamps_s <= host_s <= HOST_SLACK_S + (1 + HOST_SLACK_SHARE) * stamps_s:
        return ""
    if host_s < stamps_s <= 1.01 * host_s + 1e-5:
        return ""  # two oscillators, and the timer's resolution
    return f"the GPU's timer says {stamps_s * 1e3:.2f} ms for all replays, the host's clock {host_s * 1e3:.2f} ms"


def late_work(late_s: float) -> str:
    """Return what the device did after the stream of the replays was idle, or "".

    Args:
        late_s: seconds from then until the whole device was idle.
    """
    if late_s <= LATE_S:
        return ""
    return f"the device worked on for {late_s * 1e3:.2f} ms after the replays had ended: join other streams"
