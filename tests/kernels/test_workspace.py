"""Buffers that kernels keep between calls."""

import pytest
import torch

from kernels.common import cublaslt, partial_sums
from kernels.common import workspace as scratch
from kernels.kda.ready_flags import counters_of


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(scratch, "BUFFERS", {})


def test_a_buffer_is_made_once_a_device_and_found_where_it_was_put():
    made = []

    @scratch.once_per_device
    def counters(device):
        made.append(device)
        return torch.zeros(4, device=device)

    cpu, meta = torch.device("cpu"), torch.device("meta")
    first = counters(cpu)
    assert counters(cpu) is first
    assert counters(meta).device == meta
    assert made == [cpu, meta]
    [(name, _), _] = scratch.BUFFERS
    scratch.BUFFERS[name, cpu] = elsewhere = torch.zeros(4)
    assert counters(cpu) is elsewhere


def test_one_made_inside_a_capture_is_refused(monkeypatch):
    monkeypatch.setattr(scratch, "capturing", lambda device: True)
    with pytest.raises(
        RuntimeError,
        match=r"before capturing it in a CUDA graph: .* the buffer of kernels\.kda\.ready_flags\.counters_of",
    ):
        counters_of(torch.device("cpu"))
    assert not scratch.BUFFERS


@pytest.mark.parametrize("buffer_of", [counters_of, cublaslt.workspace_of, partial_sums.mailbox])
def test_base_and_head_make_equal_buffers_which_they_can_share(buffer_of, monkeypatch):
    """A buffer of memory that nobody wrote differs between base and head, and then no case counts as the same work."""
    numbers = iter(range(1, 9))
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **of: empty(*shape, **of).fill_(next(numbers)))
    monkeypatch.setattr(partial_sums, "capacity", lambda device: 64)
    cpu = torch.device("cpu")
    base = buffer_of(cpu)
    scratch.BUFFERS.clear()
    assert torch.equal(buffer_of(cpu), base)
