"""Detect work that a variant leaves to threads without waiting for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from statistics import median
from time import clock_gettime, sleep

from lockstep.timing.rules import Disqualified, Rule

#: Number of replays to check, seconds to watch after each, and seconds of processor time that threads may use in them:
#: a thread that has handed over its result still returns to its queue.
LOOKS = 5
LOOK_S = 5e-3
MOST_S = 2e-4


def require_joined(replay: Callable[[], object]) -> None:
    """Run a replay that ran before, on a CPU, and check whether Python threads work on after it.

    Threads of compiled libraries are not checked: OpenMP's threads spin for a while after each call.

    Raises:
        Disqualified: ``UNJOINED_WORK``.
    """
    if threading.active_count() == 1:
        return
    taken = []
    for _ in range(LOOKS):
        replay()
        others = [thread.native_id for thread in threading.enumerate() if thread is not threading.current_thread()]
        before = _processor_s(others)
        sleep(LOOK_S)
        after = _processor_s(others)
        taken.append(sum(after[thread] - before[thread] for thread in after if thread in before))
    if median(taken) > MOST_S:
        evidence = f"its threads worked on for {median(taken) * 1e3:.2f} ms after it had returned: join them"
        raise Disqualified(Rule.UNJOINED_WORK, evidence)


def _processor_s(threads: list[int | None]) -> dict[int, float]:
    """Return the processor time in seconds of each thread by its id; threads that have ended are left out."""
    found = {}
    for thread in threads:
        try:
            # A thread's clock id is computed from its id: ~id, thread flag, CPUCLOCK_SCHED (linux/posix-timers.h).
            found[thread or 0] = clock_gettime((~(thread or 0) << 3) | 6)
        except OSError:
            continue
    return found
