"""The tensors of a closure: found, compared with those of another process, and put back after a call."""

import pytest
import torch

from lockstep.scripts.closure_state import ClosureState, differing


def unequal(one, other):
    return differing(ClosureState.of(one).digests, ClosureState.of(other).digests)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn, torch.int8, torch.bool, torch.complex64])
def test_two_processes_see_that_their_tensors_differ(dtype):
    def closure(values):
        x = torch.tensor(values).to(dtype)
        return lambda: x

    assert not unequal(closure([0.0, 1.0]), closure([0.0, 1.0]))
    assert unequal(closure([0.0, 1.0]), closure([1.0, 1.0])) == {".x"}
    assert unequal(closure([0.0, 1.0]), closure([0.0, 1.0, 1.0])) == {".x"}


def test_they_see_another_order_too():
    def closure(x):
        return lambda: x + 1

    rows = torch.arange(1000)
    assert not unequal(closure(rows), closure(rows.clone()))
    assert unequal(closure(rows), closure(rows.flip(0)))


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_tensors_whose_values_cannot_be_kept_accuse_nobody():
    def closure(scale):
        x, y = torch.eye(3).to_sparse() * scale, torch.quantize_per_tensor(torch.ones(2) * scale, 0.1, 0, torch.qint8)
        return lambda: (x, y)

    assert not unequal(closure(1), closure(2))


def test_too_little_memory_for_the_copies_changes_nothing(monkeypatch):
    def refuse(*_):
        raise torch.cuda.OutOfMemoryError("no memory")

    x = torch.ones(3)
    monkeypatch.setattr(torch.Tensor, "clone", refuse)
    taken = ClosureState.of(lambda: x)
    x += 1
    taken.restore()
    assert (taken.changed(), x.tolist()) == ({}, [2.0] * 3)


def test_a_tensor_whose_elements_share_memory_stays_as_the_call_left_it():
    one = torch.zeros(1)
    many, other = one.expand(3), torch.zeros(2)

    def call():
        one.add_(1)
        other.add_(1)
        return many

    taken = ClosureState.of(call)
    call()
    taken.restore()
    assert (other.tolist(), taken.changed().keys() - {".one"}) == ([0.0] * 2, set())


class Model:
    def __init__(self):
        self.cache = torch.zeros(4)


@pytest.mark.parametrize("inference", [False, True])
def test_what_a_call_changed_is_put_back(inference):
    with torch.inference_mode(inference):
        model, state, weight, bits = Model(), torch.arange(6.0).view(2, 3).T, torch.ones(3), torch.ones(2).bool()

    def call():
        with torch.inference_mode(inference):
            model.cache += 1
            state[0] = torch.nan
            bits[1] = False
            return weight * 2

    taken = ClosureState.of(call)
    call()
    masks = taken.changed()
    assert {path: mask.sum().item() for path, mask in masks.items()} == {".bits": 1, ".model.@cache": 4, ".state": 2}
    taken.restore(but={".bits"})
    assert taken.changed().keys() == {".bits"}
    assert torch.equal(state, torch.arange(6.0).view(2, 3).T)
    assert not model.cache.any()


def test_a_graph_may_go_backward_after_its_tensors_were_put_back():
    x = torch.ones(3, requires_grad=True)
    y = x.square()
    extra = torch.zeros(3)

    def call():
        extra.add_(1)
        y.sum().backward(retain_graph=True)

    taken = ClosureState.of(lambda: call() or (x, y, extra))
    call()
    taken.restore()
    call()
    assert torch.equal(extra, torch.ones(3))
