"""Closures of base and head that use the same buffers."""

import torch

from lockstep.scripts.shared_buffers import share


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.factor = torch.full_like(x, 2.0)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * ctx.factor * x


def backward_pass(seed=0):
    torch.manual_seed(seed)
    x = torch.randn(5, requires_grad=True)
    y = Square.apply(x * 3).exp()
    gradient = torch.ones(5)

    def closure():
        x.grad = None
        y.backward(gradient, retain_graph=True)
        return x.grad

    return closure, x, y


def forward_pass():
    x = torch.arange(4.0)
    return lambda: x + 1, x


def test_head_reads_what_base_holds_in_a_forward_and_in_a_backward_pass():
    (one, x), (another, y) = forward_pass(), forward_pass()
    assert share(one, another)
    assert x.data_ptr() == y.data_ptr()
    base, _, y = backward_pass()
    head, _, _ = backward_pass()
    right = head().clone()
    assert share(base, head)
    assert torch.equal(head(), right)
    y.data.zero_()  # the graph of exp saved its result, which head now shares with base
    assert torch.equal(head(), torch.zeros(5))


def test_other_values_are_not_shared():
    base, _, _ = backward_pass()
    head, x, _ = backward_pass(seed=1)
    before = head().clone()
    assert not share(base, head)
    assert torch.equal(head(), before)
    assert x.grad is not None


def transposed_leaf():
    x = torch.ones(4, 6, requires_grad=True)
    y = (x.t() * 3).exp()

    def closure():
        y.backward(torch.ones(6, 4), retain_graph=True)

    return closure, x


def test_gradients_of_tensors_behind_the_closure_have_one_memory():
    (base, x), (head, y) = transposed_leaf(), transposed_leaf()
    base()
    head()
    assert share(base, head)
    assert x.grad.data_ptr() == y.grad.data_ptr()
