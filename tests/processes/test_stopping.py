"""A process that was stopped does not run, or it is seen that it did."""

import subprocess
import sys
import time

import pytest

from lockstep.processes.stopping import descendants, ran_since, resident_bytes, resume, stop

COUNTS = """
import os, signal, sys, threading, time

def count():
    while True:
        with open(sys.argv[1], "ab", 0) as file:
            file.write(b".")

{}
threading.Thread(target=count).start()
count()
"""

#: Timers of the kernel continue the process every .2 s. Each fires once: SIGSTOP takes a waiting SIGCONT away for good.
WAKES = """
import ctypes
libc = ctypes.CDLL(None)
signal.signal(signal.SIGCONT, lambda *_: None)
for number in range(1, 50):
    event, timer = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0), ctypes.c_void_p()
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    span = (ctypes.c_long * 4)(0, 0, *divmod(number * 200_000_000, 1_000_000_000))
    assert libc.timer_settime(timer, 0, span, None) == 0
"""

#: Children in sessions of their own, whose parents have ended.
DAEMONS = """
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        count()
"""


@pytest.fixture
def counting(tmp_path):
    """Starts a process that counts in a file with two threads: the process, and the size of the file."""
    started = []

    def start(more=""):
        path = tmp_path / "count"
        started.append(subprocess.Popen([sys.executable, "-c", COUNTS.format(more), str(path)], start_new_session=True))
        while not path.exists():
            time.sleep(0.01)
        return started[-1], lambda: path.stat().st_size

    yield start
    for process in started:
        for one in descendants(process.pid):
            subprocess.run(["kill", "-KILL", str(one)], check=False)
        process.wait()


@pytest.mark.parametrize("more", ["", DAEMONS])
def test_a_stopped_process_does_nothing_and_goes_on(counting, more):
    process, size = counting(more)
    while len(descendants(process.pid)) < 1 + 2 * bool(more):
        time.sleep(0.01)
    stopped = stop(process.pid)
    before = size()
    time.sleep(0.1)
    assert size() == before
    assert ran_since(process.pid, stopped) == ""
    resume(stopped)
    while size() == before:
        time.sleep(0.01)


def test_one_that_wakes_itself_is_seen(counting):
    process, size = counting(WAKES)
    stopped = stop(process.pid)
    before = size()
    while size() == before:
        time.sleep(0.01)
    assert "while it was stopped" in ran_since(process.pid, stopped)


def test_memory_is_that_of_all_processes_together(counting):
    process, _ = counting(DAEMONS)
    assert 0 < resident_bytes(process.pid) < 1 << 30
