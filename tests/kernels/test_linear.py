"""Every variant of ``linear`` against the suite's own reference, on a CPU and through Triton's interpreter.

With LOCKSTEP_TEST_GPU set the same tests run on a GPU.
"""

import os
from functools import partial

import pytest
import torch
from compiling import compile_in_subprocess

from benchmarks.linear import Linear
from kernels.linear import CANDIDATES, VARIANTS, linear
from lockstep.suite.case import Case
from lockstep.suite.evaluate import bind
from lockstep.suite.inputs import Draw, map_tensors
from lockstep.suite.variants import Family, load_family
from lockstep.timing.checks.check import Checker, WrongResult

SUITE = Linear()
FAMILY = load_family(SUITE)
DEVICE = "cuda" if os.environ.get("LOCKSTEP_TEST_GPU") else "cpu"


def checker(dtype: torch.dtype, device: str = DEVICE, **axes) -> Checker:
    """The suite's inputs and reference in another dtype: bfloat16 is wrong under Triton's interpreter."""
    drawn = SUITE.draw(Draw(device, 0), **axes)
    inputs = map_tensors(drawn, lambda tensor: tensor.to(dtype))
    out = torch.empty(axes["M"], axes["N"], dtype=dtype, device=device)
    return Checker(SUITE, Case(**axes), inputs, (SUITE.reference(**bind(SUITE.reference, inputs)),), out)


@pytest.mark.parametrize("case", SUITE.quick, ids=lambda case: case.label)
@pytest.mark.parametrize("variant", ["torch", "best"])
def test_quick_cases_are_right_in_bfloat16(variant, case):
    assert Checker.draw(SUITE, case, DEVICE, seed=1).accuracy(FAMILY, variant).norm < 4e-3


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("M", "N", "K"), [(1, 64, 128), (5, 40, 72), (33, 96, 200), (130, 144, 64)])
@pytest.mark.parametrize("variant", ["torch", "split_k", "best"])
def test_variants_match_the_reference(variant, M, N, K, bias):
    assert checker(torch.float16, M=M, K=K, N=N, bias=bias).accuracy(FAMILY, variant).norm < 1e-3


@pytest.mark.parametrize("variant", ["torch", "split_k", "gemv", "best"])
def test_float32_and_an_allocated_output(variant):
    case = checker(torch.float32, M=3, K=136, N=24, bias=True)
    result = VARIANTS[variant](**FAMILY.arguments(variant, case.inputs))
    torch.testing.assert_close(result, case.reference[0], atol=1e-4, rtol=1e-4)


def test_an_output_that_is_not_written_fails_the_check():
    def forgets_the_last_column(x, weight, bias=None, *, out=None):
        out[:, :-1] = VARIANTS["torch"](x, weight, bias)[:, :-1]
        return out

    family = Family({"forgetful": forgets_the_last_column}, {})
    with pytest.raises(WrongResult, match="forgetful"):
        checker(torch.float16, M=4, K=64, N=32).accuracy(family, "forgetful")


@pytest.mark.parametrize("variant", ["split_k", "gemv", "best"])
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("x", torch.zeros(4, 64, dtype=torch.int32)),
        ("x", torch.zeros(64, 4).t()),
        ("weight", torch.zeros(32, 65)),
        ("weight", torch.zeros(32, 64, dtype=torch.float16)),
        ("bias", torch.zeros(31)),
        ("out", torch.zeros(4, 33)),
    ],
    ids=["x dtype", "x layout", "weight shape", "weight dtype", "bias shape", "out shape"],
)
def test_a_wrong_argument_is_named(variant, name, wrong):
    arguments = {"x": torch.zeros(4, 64), "weight": torch.zeros(32, 64), "bias": torch.zeros(32)}
    moved = map_tensors(arguments | {name: wrong}, lambda tensor: tensor.to(DEVICE))
    with pytest.raises(ValueError, match=f"^{name} must"):
        VARIANTS[variant](**moved)


@pytest.mark.parametrize(
    "variant",
    [
        "compile",
        "max_autotune",
        "tgv",
        "tgv_pdl",
        "split_k_pdl",
        "gemv_pdl",
        "stream",
        "share",
        "spread",
        "turns",
        "direct",
    ],
)
def test_what_cannot_run_here_says_why(variant):
    with pytest.raises(NotImplementedError, match=r"CUDA|Blackwell|Hopper"):
        checker(torch.float16, "cpu", M=1, K=64, N=32).accuracy(FAMILY, variant)


def test_tgv_gets_a_bias_of_zeros_where_there_is_none():
    weight = torch.ones(8, 4)
    assert torch.equal(FAMILY.arguments("tgv", {"x": weight, "weight": weight})["bias"], torch.zeros(8))
    given = torch.ones(8)
    assert FAMILY.arguments("tgv", {"x": weight, "weight": weight, "bias": given})["bias"] is given


def test_costs_count_each_byte_once():
    assert SUITE.cost(M=1, K=4096, N=2048).bytes == 2 * (4096 + 4096 * 2048 + 2048)
    assert SUITE.cost(M=1, K=4096, N=2048).flops == 2 * 4096 * 2048


def test_compile_is_limited_to_a_few_shapes():
    allowed = [case.label for case in SUITE.cases if not SUITE.skips("max_autotune", **case)]
    assert allowed == ["M=1,K=4096,N=2048", "M=8,K=4096,N=2048"]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("N", "K"), [(64, 256), (37, 200), (5, 5000)])
@pytest.mark.parametrize("M", [1, 2, 3, 4])
def test_gemv_matches_the_reference(M, N, K, bias):
    assert checker(torch.float16, M=M, K=K, N=N, bias=bias).accuracy(FAMILY, "gemv").norm < 1e-3


@pytest.mark.parametrize("M", [8, 20, 48, 100, 200])
def test_split_k_adds_all_parts_of_k(M):
    # K = 1536 has 12 steps, which all tiles of the table share among several programs.
    assert checker(torch.float16, M=M, K=1536, N=72, bias=True).accuracy(FAMILY, "split_k").norm < 1e-3


def test_split_k_gives_the_same_bits_again():
    case = checker(torch.float16, M=4, K=512, N=64)
    first, second = (VARIANTS["split_k"](**FAMILY.arguments("split_k", case.inputs)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.skipif(DEVICE == "cpu", reason="refused for the lack of a Hopper GPU")
@pytest.mark.parametrize(("M", "K"), [(9, 64), (8, 4104)])
def test_what_does_not_fit_the_registers_is_refused(M, K):
    with pytest.raises(NotImplementedError, match=f"direct is for up to 8 rows of up to 4096 elements, got .{M}, {K}"):
        checker(torch.float16, M=M, K=K, N=32).accuracy(FAMILY, "direct")


@pytest.mark.parametrize(("variant", "most"), [("gemv", 4), ("split_k", 256)])
def test_more_rows_than_a_variant_is_for_are_refused(variant, most):
    with pytest.raises(NotImplementedError, match=f"'{variant}': no tuned configuration for {most + 1} rows"):
        checker(torch.float16, M=most + 1, K=64, N=32).accuracy(FAMILY, variant)


def test_kernels_compile_for_hopper_without_spills():
    shapes = [
        ("split_k", 1),
        ("split_k", 64),
        ("split_k", 256),
        ("gemv", 1),
        ("gemv", 2),
        ("gemv", 4),
    ]
    kernels = compile_in_subprocess(
        "from kernels.linear import VARIANTS\n"
        f"for variant, M in {shapes}:\n"
        "    x = torch.empty(M, 4096, device='meta', dtype=torch.bfloat16)\n"
        "    VARIANTS[variant](x, x.new_empty(2048, 4096), x.new_empty(2048))"
    )
    assert len(kernels) == len(shapes)
    assert all(kernel.stack_bytes == 0 and kernel.shared_bytes <= 227 * 1024 for kernel in kernels), kernels


def test_stream_compiles_for_hopper():
    shapes = [(1, 4096, 2048), (16, 1536, 3072), (32, 7168, 576)]
    kernels = compile_in_subprocess(
        "from kernels.linear import VARIANTS\n"
        f"for M, K, N in {shapes}:\n"
        "    x = torch.empty(M, K, device='meta', dtype=torch.bfloat16)\n"
        "    VARIANTS['stream'](x, x.new_empty(N, K), x.new_empty(N))"
    )
    assert len(kernels) == len(shapes)
    assert all(kernel.stack_bytes == 0 for kernel in kernels), kernels
    # 228 KB a multiprocessor, of which each program costs one more: it holds two. At 16 rows, and where a ring can hold
    # all steps, one program was faster.
    assert [kernel.shared_bytes <= 113 * 1024 for kernel in kernels] == [False, False, True]


def test_share_compiles_for_hopper_as_tuned_and_as_offered():
    # Rings that hold all steps and rings that do not, K that ends within a step.
    kernels = compile_in_subprocess(
        "from kernels.linear import CANDIDATES, VARIANTS\n"
        "def run(M, K, N, config=None):\n"
        "    x = torch.empty(M, K, device='meta', dtype=torch.bfloat16)\n"
        "    VARIANTS['share'](x, x.new_empty(N, K), x.new_empty(N), config=config)\n"
        "run(32, 4096, 2048)\n"
        "for config in CANDIDATES['share'](32, 4072, 2040).configs: run(31, 4072, 2040, config)\n"
        "for config in CANDIDATES['share'](64, 4096, 2048).configs: run(64, 4096, 2048, config)"
    )
    assert [kernel.name for kernel in kernels] == ["_share_kernel"] * 15
    assert all(kernel.stack_bytes == 0 and kernel.shared_bytes <= 227 * 1024 for kernel in kernels), kernels
    # All steps of the tuned shape are in shared memory at once.
    assert kernels[0].shared_bytes > 192 * 1024


SHARES = """
from kernels.linear import CANDIDATES, VARIANTS, linear
from kernels.linear.share_kernel import Share
def refused(M, K, N, config=None, call=VARIANTS['share']):
    x = torch.empty(M, K, device='meta', dtype=torch.bfloat16)
    try:
        call(x, x.new_empty(N, K), config=config)
    except NotImplementedError as error:
        return str(error)
    raise AssertionError((M, K, N, config))
"""


def test_share_refuses_by_name_what_would_wait_for_ever_and_compiles_nothing():
    kernels = compile_in_subprocess(
        SHARES + "cut = Share(32, 64, 128, 4, 8, 8, 4)\n"
        "assert 'needs all its programs resident at once: 136 for N=2176' in refused(17, 4096, 2176, cut)\n"
        "assert 'has 132 multiprocessors' in refused(17, 4096, 2176, cut)\n"
        "assert 'K=4224, 33 steps of 128, into 4 parts' in refused(17, 4224, 2048, cut)\n"
        "assert 'up to 32 rows, got 33' in refused(33, 4096, 2048, cut)\n"
        "assert 'no tuned configuration for 32 rows at K=4096, N=2112' in refused(32, 4096, 2112)\n"
        "assert 'no tuned configuration for 33 rows' in refused(33, 4096, 2048)\n"
        "assert 'Hopper' in refused(32, 4095, 2048)\n"
        "assert refused(32, 4096, 2112, 'share', linear)"
    )
    assert kernels == []


#: Variants whose programs wait for each other, and numbers of rows that differ in their tiles.
WAITING = {"share": (1, 16, 17, 31, 32, 64), "spread": (1, 16, 17, 31, 32), "turns": (1, 8, 9, 16, 17, 31, 32)}


@pytest.mark.skipif(DEVICE == "cpu", reason="their programs wait for each other; an interpreter runs one at a time")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("N", "K"), [(64, 512), (200, 2040), (72, 1536), (2048, 4096)])
@pytest.mark.parametrize(("variant", "M"), [(variant, M) for variant, rows in WAITING.items() for M in rows])
def test_waiting_programs_match_the_reference(variant, M, N, K, bias):
    for config in CANDIDATES[variant](M, K, N).configs:
        for dtype in (torch.float16, torch.bfloat16):
            one = checker(dtype, M=M, K=K, N=N, bias=bias)
            family = Family({variant: partial(VARIANTS[variant], config=config)}, {})
            assert one.accuracy(family, variant).norm < 4e-3, config


@pytest.mark.skipif(DEVICE == "cpu", reason="their programs wait for each other; an interpreter runs one at a time")
@pytest.mark.parametrize("variant", ["share", "spread"])
def test_waiting_programs_give_the_same_bits_however_often_they_follow_themselves(variant):
    case = checker(torch.bfloat16, M=32, K=4096, N=2048)
    arguments = FAMILY.arguments(variant, case.inputs)
    first = VARIANTS[variant](**arguments)
    assert all(torch.equal(first, VARIANTS[variant](**arguments)) for _ in range(50))


def test_spread_compiles_for_hopper_as_tuned_and_as_offered():
    kernels = compile_in_subprocess(
        "from kernels.linear import CANDIDATES, VARIANTS\n"
        "def run(M, K, N, config=None):\n"
        "    x = torch.empty(M, K, device='meta', dtype=torch.bfloat16)\n"
        "    VARIANTS['spread'](x, x.new_empty(N, K), x.new_empty(N), config=config)\n"
        "for K, N in ((4096, 2048), (7168, 2112)):\n"
        "    for M in (8, 32): run(M, K, N)\n"
        "for config in CANDIDATES['spread'](32, 4080, 2040).configs: run(31, 4080, 2040, config)"
    )
    assert [kernel.name for kernel in kernels] == ["_spread_kernel"] * 12
    assert all(kernel.stack_bytes == 0 and kernel.shared_bytes <= 227 * 1024 for kernel in kernels), kernels


def test_spread_refuses_by_name_what_would_wait_for_ever_and_compiles_nothing():
    kernels = compile_in_subprocess(
        SHARES.replace("share", "spread").replace("Share", "Spread") + "cut = Spread(32, 64, 128, 4, 8, 5, 2)\n"
        "assert 'needs all its programs resident at once: 136 for N=2176' in refused(17, 4096, 2176, cut)\n"
        "assert 'K=4224, 33 steps of 128, into 4 parts' in refused(17, 4224, 2048, cut)\n"
        "assert 'up to 32 rows, got 33' in refused(33, 4096, 2048, cut)\n"
        "assert 'no tuned configuration for 32 rows at K=4096, N=2112' in refused(32, 4096, 2112)\n"
        "assert refused(32, 4096, 2112, 'spread', linear)"
    )
    assert kernels == []


def test_turns_compiles_for_hopper_as_tuned_and_as_offered():
    kernels = compile_in_subprocess(
        "from kernels.linear import CANDIDATES, VARIANTS\n"
        "def run(M, K, N, config=None):\n"
        "    x = torch.empty(M, K, device='meta', dtype=torch.bfloat16)\n"
        "    VARIANTS['turns'](x, x.new_empty(N, K), x.new_empty(N), config=config)\n"
        "for M in (8, 16, 32): run(M, 4096, 2048)\n"
        "for config in CANDIDATES['turns'](32, 4072, 2040).configs: run(31, 4072, 2040, config)"
    )
    assert [kernel.name for kernel in kernels] == ["_turns_kernel"] * 7
    assert all(kernel.stack_bytes == 0 and kernel.shared_bytes <= 227 * 1024 for kernel in kernels), kernels


def test_turns_refuses_by_name_what_would_wait_for_ever_and_compiles_nothing():
    kernels = compile_in_subprocess(
        SHARES.replace("share", "turns").replace("Share", "Turns") + "cut = Turns(32, 128, 4, 1)\n"
        "assert 'needs all its programs resident at once: 136 for N=2176' in refused(17, 4096, 2176, cut)\n"
        "assert 'K=4224, 33 steps of 128, into 4 parts' in refused(17, 4224, 2048, cut)\n"
        "assert 'cannot hold a part of K=8192' in refused(17, 8192, 2048, cut)\n"
        "assert 'up to 32 rows, got 33' in refused(33, 4096, 2048, cut)\n"
        "assert 'no tuned configuration for 32 rows at K=4096, N=2112' in refused(32, 4096, 2112)\n"
        "assert 'Hopper' in refused(32, 4095, 2048)\n"
        "assert refused(32, 4096, 2112, 'turns', linear)"
    )
    assert kernels == []


def test_direct_compiles_for_hopper_without_spills():
    shapes = [(1, 4096, 2048), (8, 1536, 3072), (8, 4096, 2048), (4, 1000, 72)]
    kernels = compile_in_subprocess(
        "from kernels.linear import VARIANTS\n"
        f"for M, K, N in {shapes}:\n"
        "    x = torch.empty(M, K, device='meta', dtype=torch.bfloat16)\n"
        "    VARIANTS['direct'](x, x.new_empty(N, K), x.new_empty(N))"
    )
    assert len(kernels) == len(shapes)
    assert all(kernel.stack_bytes == 0 for kernel in kernels), kernels


@pytest.mark.skipif(DEVICE == "cpu", reason="Gluon has no interpreter")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("N", "K"), [(64, 128), (200, 200), (72, 1536), (2048, 4096)])
@pytest.mark.parametrize("M", [1, 4, 7, 8])
def test_direct_matches_the_reference(M, N, K, bias):
    for dtype in (torch.float16, torch.bfloat16):
        assert checker(dtype, M=M, K=K, N=N, bias=bias).accuracy(FAMILY, "direct").norm < 4e-3


@pytest.mark.skipif(DEVICE == "cpu", reason="Gluon has no interpreter")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("N", "K"), [(64, 128), (200, 136), (72, 1536), (2048, 4096)])
@pytest.mark.parametrize("M", [1, 7, 16, 20, 32])
def test_stream_matches_the_reference(M, N, K, bias):
    for dtype in (torch.float16, torch.bfloat16):
        assert checker(dtype, M=M, K=K, N=N, bias=bias).accuracy(FAMILY, "stream").norm < 4e-3


def test_the_entry_point_picks_by_rows_and_weight():
    # None is cuBLAS, which compiles nothing.
    picks = [
        (4096, 2048, {2: "_gemv", 8: "_turns", 16: "_spread", 17: "_turns", 33: "_product", 65: None}),
        # One row of tiles more than can be resident, one weight narrower than was measured.
        (4096, 2112, {17: "_product"}),
        (4096, 1024, {32: "_product"}),
        (7168, 576, {2: "_gemv", 8: "_stream", 9: "_spread", 33: "_product"}),
        (7168, 2112, {2: "_gemv", 3: "_spread", 33: "_product"}),
        (1536, 3072, {1: "_gemv", 2: "_direct", 9: "_share", 32: "_share", 33: None}),
        (1536, 2048, {9: "_stream"}),
        # No 16-byte loads.
        (1535, 3072, {2: "_gemv", 16: "_product", 33: None}),
        (512, 256, {1: None, 32: None}),
    ]
    kernels = compile_in_subprocess(
        "from kernels.linear import linear\n"
        f"for M, K, N in {[(M, K, N) for K, N, by_rows in picks for M in by_rows]}:\n"
        "    x = torch.empty(M, K, device='meta', dtype=torch.bfloat16)\n"
        "    linear(x, x.new_empty(N, K))"
    )
    wanted = [f"{name}_kernel" for _, _, by_rows in picks for name in by_rows.values() if name]
    assert [kernel.name for kernel in kernels] == wanted
    # Registers without the limit that makes them spill, for what reads its weights into them.
    assert all(kernel.stack_bytes == 0 for kernel in kernels), kernels


def test_without_an_output_the_entry_point_allocates_one():
    x, weight = torch.ones(2, 8), torch.ones(3, 8)
    assert torch.equal(linear(x, weight), torch.full((2, 3), 8.0))
