"""A kernel that never returns ends a verb that calls it in its own process, and so does Ctrl-C."""

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import sys, time
from lockstep.processes.deadline import deadline
with deadline(float(sys.argv[1])) as watch:
    for _ in range(4):
        watch.renew("check", "fused")
        time.sleep(0.1)
    print("renewed", flush=True)
    while sys.argv[2] == "hang":
        pass
print("done")
"""


def start(limit, mode):
    words = [sys.executable, "-c", PROGRAM, limit, mode]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_is_renewed_in_time_goes_on():
    process = start("30", "end")
    assert (process.communicate(timeout=60), process.returncode) == (("renewed\ndone\n", ""), 0)


def test_what_never_returns_ends_with_its_stage():
    process = start("5", "hang")
    assert process.communicate(timeout=60) == ("renewed\n", "hung for 5 s: fused (check)\n")
    assert process.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_ended(number):
    process = start("60", "hang")
    assert process.stdout.readline() == "renewed\n"
    began = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == -number
    assert time.monotonic() - began < 30
