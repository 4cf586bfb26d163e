"""What a failed capture leaves behind, with an allocator and a stream that behave as those of torch 2.11."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from lockstep.timing import graph_capture
from lockstep.timing.graph_capture import CaptureError, capture_graph
from lockstep.timing.rules.rule import Disqualified, Rule

POOL = (0, 7)


class Torch211:
    """Streams, pools and graphs of torch 2.11: a capture that a call invalidates ends half way."""

    def __init__(self):
        self.main, self.side = SimpleNamespace(device_index=0), SimpleNamespace(device_index=0)
        self.stream = self.main
        self.recording, self.capturing, self.invalid, self.ends_with = set(), False, False, ""
        self.users = {}

    def begin(self, pool):
        if pool in self.recording:
            raise RuntimeError(f"beginAllocateToPool: already recording to mempool_id {pool}")
        self.recording.add(pool)
        self.users[pool] = self.users.get(pool, 0) + 1
        self.capturing = True

    def end_capture(self, graph):
        if self.stream is not self.side:
            raise RuntimeError("Capture must end on the same stream it began on.")
        self.capturing = False
        if self.invalid:
            self.invalid = False
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        if self.ends_with:
            told, self.ends_with = self.ends_with, ""
            raise RuntimeError(told)
        self.end_pool(0, graph.pool)
        graph.ended = True

    def end_pool(self, device, pool):
        if pool not in self.recording:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.recording.remove(pool)

    def release(self, device, pool):
        assert self.users[pool] > 0
        self.users[pool] -= 1

    def set_stream(self, stream):
        self.stream = stream


@pytest.fixture
def fake(monkeypatch):
    state = Torch211()

    class Graph:
        def __init__(self, keep_graph):
            self.ended = False

        def reset(self):
            if self.ended:
                state.release(0, self.pool)
            self.ended = False

        def raw_cuda_graph(self):
            return 1

        def instantiate(self): ...

    class Capture:
        default_capture_stream = state.side

        def __init__(self, graph, pool):
            self.graph, graph.pool = graph, pool

        def __enter__(self):
            self.before, state.stream = state.stream, state.side
            state.begin(self.graph.pool)

        def __exit__(self, *error):
            state.end_capture(self.graph)
            state.stream = self.before

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: state.stream)
    monkeypatch.setattr(torch.cuda, "set_stream", state.set_stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.capturing)
    monkeypatch.setattr(torch._C, "_CUDAGraph", SimpleNamespace(capture_end=state.end_capture), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", state.end_pool, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", state.release, raising=False)
    monkeypatch.setattr(graph_capture, "require_work", lambda raw, calls: None)
    return state


def synchronises(fake):
    fake.invalid = True
    raise RuntimeError("CUDA error: operation not permitted when stream is capturing")


def leaves_its_thread_behind(fake):
    fake.invalid = True


def changes_the_stream(fake):
    fake.stream = fake.main


def raises(fake):
    raise ValueError("no such shape")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (synchronises, "not permitted when stream is capturing"),
        (leaves_its_thread_behind, "failed due to a previous error during capture"),
        (changes_the_stream, "must end on the same stream"),
        (raises, "no such shape"),
    ],
)
def test_a_failed_capture_leaves_nothing_behind(fake, call, reason):
    with pytest.raises(CaptureError, match=reason):
        capture_graph([lambda: call(fake)], POOL)
    assert (fake.stream, fake.capturing, fake.recording, fake.users[POOL]) == (fake.main, False, set(), 0)
    graph = capture_graph([lambda: None], POOL)
    assert (graph.ended, fake.users[POOL]) == (True, 1)


def forks_a_stream(fake):
    """End as CUDA does if a forked stream was not joined: the capture is over, and torch raises in ``capture_end``."""
    fake.ends_with = "CUDA error: capturing stream has unjoined work\nSearch for `cudaErrorStreamCaptureUnjoined'"


def waits_for_uncaptured_work(fake):
    raise RuntimeError("CUDA error: dependency created on uncaptured work in another stream")


def test_a_fork_without_a_join_is_unjoined_work(fake):
    with pytest.raises(Disqualified, match="forked another stream from the caller's and did not join it") as found:
        capture_graph([lambda: forks_a_stream(fake)], POOL)
    assert found.value.rule == Rule.UNJOINED_WORK
    assert (fake.stream, fake.capturing, fake.recording, fake.users[POOL]) == (fake.main, False, set(), 0)


def test_a_capture_that_another_thread_ended_says_so(fake):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with pytest.raises(CaptureError, match="or another thread worked meanwhile"):
            capture_graph([lambda: leaves_its_thread_behind(fake)], POOL)


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (synchronises, "reads a value from the device, waits for it"),
        (waits_for_uncaptured_work, "a stream that is not part of the capture"),
    ],
)
def test_an_error_of_a_capture_says_what_its_author_can_do(fake, call, advice):
    with pytest.raises(CaptureError, match=advice):
        capture_graph([lambda: call(fake)], POOL)


@pytest.mark.parametrize("error", [NotImplementedError("float64"), torch.cuda.OutOfMemoryError("no room")])
def test_limits_of_a_variant_are_no_errors_of_the_capture(fake, error):
    def call():
        fake.invalid = True
        raise error

    with pytest.raises(type(error), match=str(error)):
        capture_graph([call], POOL)
    assert fake.recording == set()


def test_memory_of_other_graphs_in_the_pool_stays(fake):
    capture_graph([lambda: None], POOL)
    with pytest.raises(CaptureError):
        capture_graph([lambda: synchronises(fake)], POOL)
    assert fake.users[POOL] == 1
