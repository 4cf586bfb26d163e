"""Threads that work on after a variant has returned are found; threads that wait are not."""

import threading
from concurrent.futures import ThreadPoolExecutor
from time import thread_time

import pytest

from lockstep.timing.clocks.clock_agreement import LATE_S, late_work
from lockstep.timing.rules.background_work import require_joined
from lockstep.timing.rules.rule import Disqualified, Rule


def work():
    until = thread_time() + 3e-3
    while thread_time() < until:
        pass


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        yield pool


def test_work_that_nobody_waits_for_is_found(pool):
    with pytest.raises(Disqualified, match="its threads worked on for") as found:
        require_joined(lambda: pool.submit(work))
    assert found.value.rule == Rule.UNJOINED_WORK


def test_work_that_is_waited_for_is_not(pool):
    require_joined(lambda: pool.submit(work).result())


def test_threads_that_wait_or_end_are_not_accused():
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    require_joined(lambda: threading.Thread(target=int).start())
    waiting.set()
    thread.join()


def test_a_device_that_works_on_is_told():
    assert late_work(0.9 * LATE_S) == ""
    assert "3.00 ms after the replays had ended" in late_work(3e-3)
