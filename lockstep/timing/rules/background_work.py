"""Detect work that a variant leaves to threads without waiting for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import clock_gettime, sleep

from lockstep.timing.rules.rule import Disqualified, Rule

#: Number of replays to check, seconds to watch after each, and seconds of processor time that threads may use
#: meanwhile. A thread that has handed over its result still returns to its queue, which takes 4 µs at most (120 medians
#: of five watches, half of them beside four busy processes). An unjoined product of 256² takes 260 to 390 µs.
LOOKS = 5
LOOK_S = 5e-3
MOST_S = 5e-5

#: Maximum number of watches while a thread waits for a processor: on a busy machine the thread may get none for a
#: while.
MOST_WATCHES = 20


def require_joined(replay: Callable[[], object]) -> None:
    """Run a replay on a CPU; refuse the replay if Python threads continue to work after it has returned.

    Threads of compiled libraries are not checked: OpenMP's threads spin for a while after each call.

    Raises:
        Disqualified: ``UNJOINED_WORK``.
    """
    if threading.active_count() == 1:
        return
    worked_s = []
    for _ in range(LOOKS):
        replay()
        others = [thread.native_id for thread in threading.enumerate() if thread is not threading.current_thread()]
        before = _processor_s(others)
        for _ in range(MOST_WATCHES):
            sleep(LOOK_S)
            if not any(map(_is_runnable, others)):
                break
        after = _processor_s(others)
        worked_s.append(sum(after[thread] - before[thread] for thread in after if thread in before))
    if median(worked_s) > MOST_S:
        evidence = f"its threads worked on for {median(worked_s) * 1e3:.2f} ms after it had returned: join them"
        raise Disqualified(Rule.UNJOINED_WORK, evidence)


def thread_times() -> dict[threading.Thread, float]:
    """Return the processor time in seconds of every Python thread except the current one."""
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    times = _processor_s([thread.native_id for thread in others])
    return {thread: times[thread.native_id] for thread in others if thread.native_id in times}


def busiest_since(before: Mapping[threading.Thread, float]) -> str:
    """Return a text with the thread that worked most since ``before``, a result of ``thread_times``, and for how long.

    The text is "" if no thread worked for more than ``MOST_S``. A thread that has ended is not found.
    """
    worked = {thread: now - before.get(thread, 0.0) for thread, now in thread_times().items()}
    if not worked or max(worked.values()) <= MOST_S:
        return ""
    thread = max(worked, key=worked.__getitem__)
    return f"the thread {thread.name} worked for {worked[thread] * 1e3:.2f} ms"


def _is_runnable(thread: int | None) -> bool:
    """Return whether a thread runs or waits for a processor (proc(5), state R)."""
    try:
        stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "R"


def _processor_s(threads: list[int | None]) -> dict[int, float]:
    """Return the processor time in seconds of each thread by its id. Threads that have ended are left out."""
    seconds = {}
    for thread in threads:
        try:
            # A thread's clock id is computed from its id: ~id, thread flag, CPUCLOCK_SCHED (linux/posix-timers.h).
            seconds[thread or 0] = clock_gettime((~(thread or 0) << 3) | 6)
        except OSError:
            continue
    return seconds
