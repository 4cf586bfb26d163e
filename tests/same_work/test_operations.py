"""Torch's operations stand for the parameters of torch's own functions."""

from dataclasses import replace

import pytest
import torch

from lockstep.same_work.operations import Operations
from lockstep.same_work.work import UNKNOWN_CODE, Node, by_operations, torchs_functions

X, Y = torch.randn(8, 64, requires_grad=True), torch.randn(8, 64)


def recorded(call):
    with Operations() as operations:
        call()
    return operations


def normalised(x, y, scale=2.5, width=32):
    x.grad = None
    (torch.nn.functional.normalize(x[:, :width], dim=-1) * y[:, :width] * scale).sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda: normalised(X, Y),
        lambda: torch.cat([X.detach()[:4], Y[:4]]).softmax(-1),
        lambda: torch.nn.functional.layer_norm(Y, (64,)),
        lambda: torch.where(Y > 0, Y, torch.tensor(3.0)),
    ],
)
def test_the_same_calls_are_the_same_operations(call):
    first, second = recorded(call), recorded(call)
    assert first.nodes == second.nodes != []
    assert first.known
    assert second.known


@pytest.mark.parametrize(
    "changed",
    [
        lambda: normalised(X, Y, scale=2.25),
        lambda: normalised(X, Y, width=16),
        lambda: normalised(X, Y + 0),
        lambda: normalised(X, Y.t().contiguous().t()),
        lambda: [normalised(X, Y), Y.neg()],
    ],
)
def test_another_argument_shape_layout_or_order_is_another_work(changed):
    assert recorded(changed).nodes != recorded(lambda: normalised(X, Y)).nodes


def test_two_operations_of_one_function_of_the_gpu_differ():
    assert recorded(lambda: Y.add(Y)).nodes[0].facts != recorded(lambda: Y.sub(Y)).nodes[0].facts


def test_views_and_memory_that_is_only_allocated_are_no_operations():
    assert recorded(lambda: [Y[2:].view(-1), torch.empty(3), torch.empty_like(Y)]).nodes == []


def test_a_table_on_the_host_counts_by_its_contents():
    def filled(value):
        return recorded(lambda: Y + torch.full((64,), value))

    assert filled(1.0).nodes == filled(1.0).nodes
    assert filled(1.0).nodes[-1] != filled(2.0).nodes[-1]


@pytest.mark.parametrize("key", ["CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd"])
def test_operations_within_a_function_of_python_are_not_known(key):
    with torch.library._scoped_library("operations_of_test", "FRAGMENT") as library:
        library.define(f"twice_{key}(Tensor x) -> Tensor")
        library.impl(f"twice_{key}", lambda x: x * 2, key)
        library.impl(f"twice_{key}", lambda x: x * 2, "CPU")
        operator = getattr(torch.ops.operations_of_test, f"twice_{key}")
        assert not recorded(lambda: operator(Y)).known


def test_a_function_of_python_in_place_of_torchs_own_is_seen():
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("erfinv", lambda x: x * 2, "CUDA")
        assert not recorded(lambda: torch.erfinv(Y)).known


def test_a_decomposition_of_python_in_place_of_torchs_own_is_seen():
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("matrix_exp", lambda x: x * 2, "CompositeImplicitAutograd")
        with torch.inference_mode():
            assert not recorded(lambda: torch.matrix_exp(torch.eye(3))).known


def test_an_argument_that_is_not_understood_is_not_known():
    class Own(torch.Tensor):
        pass

    assert not recorded(lambda: Y + torch.randn(8, 64).as_subclass(Own)).known
    assert not recorded(lambda: Y.to_sparse() @ X.detach().t()).known


def node(name, **facts):
    code = f"function 0x7f5 {name}, {UNKNOWN_CODE}"
    return Node("kernel", (("machine code", code), *facts.items()), name=name)


TORCHS = node("_ZN2at6native13reduce_kernel", grid=(4, 1, 1), **{"parameter 0": b"leftover"})
LIBRARYS = node("cublas_gemm", grid=(4, 1, 1), **{"parameter 0": b"argument"})
OPERATION = [Node("operation", name="aten::sum")]


def test_only_the_parameters_of_torchs_functions_are_replaced():
    other = replace(TORCHS, facts=(*TORCHS.facts[:2], ("parameter 0", b"residual")))
    work = by_operations((TORCHS, LIBRARYS), (other, LIBRARYS), OPERATION)
    assert work == by_operations((other, LIBRARYS), (TORCHS, LIBRARYS), OPERATION)
    assert work == (replace(TORCHS, facts=TORCHS.facts[:2]), LIBRARYS, *OPERATION)
    assert work != by_operations((TORCHS, LIBRARYS), (other, LIBRARYS), [])


def test_operations_that_launched_something_else_say_nothing():
    wider = replace(TORCHS, facts=(TORCHS.facts[0], ("grid", (8, 1, 1)), TORCHS.facts[2]))
    assert by_operations((TORCHS,), (wider,), OPERATION) == (TORCHS,)
    assert by_operations((TORCHS,), (TORCHS, TORCHS), OPERATION) == (TORCHS,)


def test_torchs_functions_are_known_by_their_names():
    assert torchs_functions((LIBRARYS, TORCHS, Node("copy"))) == {"_ZN2at6native13reduce_kernel"}
