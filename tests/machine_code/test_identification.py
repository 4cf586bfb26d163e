"""Kernels are identified while further kernels are traced, whatever the order in which processes end."""

import os
import sys
import time
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.machine_code import worker
from lockstep.machine_code.compiling import build
from lockstep.machine_code.compiling.build import Identification
from lockstep.machine_code.targets import Target

Source = namedtuple("Source", "name hash")
TREE = Path(__file__).parent


def request(name):
    function = SimpleNamespace(fn=request, starting_line_number=7)
    return SimpleNamespace(source=Source(name, lambda: f"hash of {name}"), function=function, options=None)


@pytest.fixture
def answers(monkeypatch):
    """Replace the compiler by these answers, which forked processes inherit."""
    answers = {}

    def identity(wanted):
        return answers[wanted.source.name](), ""

    monkeypatch.setattr(build, "_identity", identity)
    monkeypatch.setattr(build, "BATCH", 2)
    monkeypatch.setitem(sys.modules, "triton.runtime.cache", SimpleNamespace(triton_key=lambda: ""))
    return answers


def identified(requests, processes=2):
    with Identification(TREE, processes) as identification:
        identification.add(requests)
        return [(wanted.source.name, kernel.identity) for wanted, kernel in identification.finish()]


def test_a_full_batch_is_forked_at_once_and_the_rest_at_the_end(answers):
    now = ["at first"]
    answers |= dict.fromkeys("abc", lambda: now[0])
    a, b, c = map(request, "abc")
    with Identification(TREE, 2) as identification:
        identification.add([a])
        identification.add([b, a])
        now[0] = "later"
        identification.add([c])
        now[0] = "at the end"
        found = identification.finish()
    assert [wanted for wanted, _ in found] == [a, b, c]
    assert [kernel.identity for _, kernel in found] == ["at first", "at first", "at the end"]
    assert {(kernel.source, kernel.failure) for _, kernel in found} == {("test_identification.py:7", "")}


@pytest.mark.parametrize("processes", [1, 3])
def test_the_order_is_that_of_the_requests(answers, processes):
    answers |= {"a": lambda: time.sleep(0.3) or "1", "b": lambda: "2", "c": lambda: "3", "d": lambda: "4"}
    answers |= {"e": lambda: "5"}
    assert identified(map(request, "abcde"), processes) == list(zip("abcde", "12345", strict=True))


def test_a_kernel_that_fails_or_crashes_is_broken_and_affects_no_other(answers):
    answers |= {"a": lambda: "1", "b": lambda: os._exit(3), "c": lambda: 1 / 0, "d": lambda: "4", "e": lambda: "5"}
    requests = [request(name) for name in "abcde"]
    with Identification(TREE, 2) as identification:
        identification.add(requests)
        kernels = [kernel for _, kernel in identification.finish()]
    assert [kernel.identity for kernel in kernels] == ["1", "broken hash of b", "broken hash of c", "4", "5"]
    assert kernels[1].failure == "the process that compiled this kernel crashed"
    assert kernels[2].failure == "ZeroDivisionError: division by zero"


def test_an_error_while_tracing_ends_the_processes(answers, tmp_path):
    def identity():
        (tmp_path / str(os.getpid())).touch()
        time.sleep(1000)

    answers |= {"a": identity, "b": identity}

    def fail():
        with Identification(TREE, 2) as identification:
            identification.add(map(request, "ab"))
            until = time.monotonic() + 30
            while not list(tmp_path.iterdir()) and time.monotonic() < until:
                time.sleep(0.01)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    [pid] = [int(path.name) for path in tmp_path.iterdir()]
    assert not Path(f"/proc/{pid}").exists()


def test_the_tracer_adds_the_requests_of_a_case_before_it_traces_the_next(monkeypatch):
    events = []

    class Recorded(Identification):
        def add(self, requests):
            events.append(f"add {requests}")

        def finish(self):
            events.append("finish")
            return []

    class Traced(worker.Tracer):
        def __init__(self):
            self._suites, self._tree, self._processes, self._requests = {"toy": "toy"}, TREE, 1, {}
            self._environment, self._process = {}, SimpleNamespace(emit=emit)

        def _answer_as(self, target):
            pass

        def _suite(self, suite, target, skip, labels):
            for case in ("small", "large"):
                events.append(f"trace {case}")
                yield suite, "plain", case, ([], [], "", False, None)

    def emit(event, **content):
        events.append(event)

    monkeypatch.setattr(build, "Identification", Recorded)
    Traced().trace(["toy"], Target.parse("sm_90").spell(), {})
    assert events == ["trace small", "add []", "trace large", "add []", "finish", "traced"]
