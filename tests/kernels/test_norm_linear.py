"""Every variant of ``norm_linear`` against the suite's reference; with LOCKSTEP_TEST_GPU set on a GPU."""

import os

import pytest
import torch
from compiling import compile_in_subprocess

from benchmarks.norm_linear import NormLinear
from kernels.norm_linear import VARIANTS
from lockstep.suite.case import Case
from lockstep.suite.evaluate import bind
from lockstep.suite.inputs import Draw, map_tensors
from lockstep.suite.variants import load_family
from lockstep.timing.checks.check import Checker

SUITE = NormLinear()
FAMILY = load_family(SUITE)
DEVICE = "cuda" if os.environ.get("LOCKSTEP_TEST_GPU") else "cpu"


def checker(M, K, N, dtype=torch.float16):
    """The suite's inputs and reference in another dtype: bfloat16 is wrong under Triton's interpreter."""
    inputs = map_tensors(SUITE.draw(Draw(DEVICE, 0), M, K, N), lambda tensor: tensor.to(dtype))
    out = torch.empty(M, N, dtype=dtype, device=DEVICE)
    return Checker(SUITE, Case(M=M, K=K, N=N), inputs, (SUITE.reference(**bind(SUITE.reference, inputs)),), out)


@pytest.mark.parametrize("case", SUITE.quick, ids=lambda case: case.label)
@pytest.mark.parametrize("variant", ["torch", "best"])
def test_quick_cases_are_right_in_bfloat16(variant, case):
    assert Checker.draw(SUITE, case, DEVICE, seed=1).accuracy(FAMILY, variant).norm < 6e-3


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("M", "K", "N"), [(1, 136, 64), (2, 512, 40), (7, 200, 48), (64, 96, 72)])
def test_variants_match_the_reference(variant, M, K, N):
    assert checker(M, K, N).accuracy(FAMILY, variant).norm < 1e-3


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_output_is_allocated_where_none_is_given(variant):
    case = checker(3, 136, 24, torch.float32)
    result = VARIANTS[variant](**case.inputs)
    torch.testing.assert_close(result, case.reference[0], atol=1e-4, rtol=1e-4)


def test_many_rows_are_left_to_torch():
    case = checker(65, 64, 32)
    assert case.accuracy(FAMILY, "best").norm < 1e-3
    with pytest.raises(NotImplementedError, match=r"names no variant of kernels\.linear for 65 rows"):
        case.accuracy(FAMILY, "apart")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("x", lambda x: x.t()),
        ("gain", lambda gain: gain[1:]),
        ("gain", torch.Tensor.float),
        ("weight", lambda weight: weight[:, 1:]),
        ("out", lambda out: out[:-1]),
    ],
)
def test_a_wrong_argument_is_named(variant, name, change):
    case = checker(4, 64, 32)
    given = {**case.inputs, "out": case.out}
    given[name] = change(given[name])
    with pytest.raises(ValueError, match=f"^{name} must"):
        VARIANTS[variant](**given)


def test_kernels_compile_for_hopper_without_spills():
    kernels = compile_in_subprocess(
        "from benchmarks.norm_linear import NormLinear\n"
        "from kernels.norm_linear import apart, overlapped\n"
        "from lockstep.suite.inputs import Draw\n"
        "for case in NormLinear.cases[::4]:\n"
        "    inputs = NormLinear().draw(Draw('meta', 0), **case)\n"
        "    apart(**inputs)\n"
        "    overlapped(**inputs)\n"
    )
    assert "_norm" in {kernel.name for kernel in kernels}
    assert all(kernel.stack_bytes == 0 for kernel in kernels)
