"""What Triton's interpreter computes wrongly on a CPU says nothing of a kernel."""

import os

import pytest
import torch
import triton
import triton.language as tl
from made_suites import make_suite

from lockstep import Cost, grid
from lockstep.suite.variants import Family
from lockstep.timing.checks.check import Checker, WrongResult

pytestmark = pytest.mark.skipif("TRITON_INTERPRET" not in os.environ, reason="a GPU multiplies bfloat16 rightly")


@triton.jit
def square(x, out, factor):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tile = tl.load(x + at)
    tl.store(out + at, (tl.dot(tile, tile) * factor).to(out.dtype.element_ty))


def checked(dtype, factor):
    suite = make_suite(
        cases=grid(M=16), quick=grid(M=16), cost=lambda M: Cost(1.0, 1.0),
        draw=lambda new, M: {"x": new.normal(M, M, dtype=dtype)}, reference=lambda x: x.double() @ x.double(),
    )  # fmt: skip

    def variant(x):
        out = torch.empty_like(x)
        square[(1,)](x, out, factor)
        return out

    return Checker.draw(suite, suite.cases[0], "cpu", 1).accuracy(Family({"it": variant}, {}), "it")


def test_a_product_of_bfloat16_in_the_interpreter_is_not_judged():
    with pytest.raises(NotImplementedError, match="Triton's interpreter multiplies bfloat16 wrongly"):
        checked("bfloat16", 1.0)


def test_a_wrong_product_of_float16_is_wrong():
    assert checked("float16", 1.0).norm < 1e-3
    with pytest.raises(WrongResult):
        checked("float16", 2.0)
