"""Every variant against the suite's reference; Triton kernels through the interpreter."""

import pytest
import torch

from benchmarks.w4a16 import SUITE
from lockstep.check import Checker, WrongResult
from lockstep.compiling import compile_in_subprocess
from lockstep.family import Family, load_family
from lockstep.inputs import Draw
from lockstep.suite import Case

FAMILY = load_family(SUITE)

#: fp16 rounding of weights and output comes to 3e-4; PyTorch's int4 product computes in bfloat16.
TOLERANCE = {"int4pack": 4e-3}

CASES = [
    Case(M=1, K=256, N=64, group=128),
    Case(M=19, K=384, N=208, group=128),
    Case(M=70, K=512, N=160, group="channel"),
]
RAGGED = Case(M=3, K=200, N=75, group="channel")


def arguments(variant, M=2, K=256, N=64, group=128):
    return FAMILY.arguments(variant, SUITE.inputs(Draw("cpu", 0), M, K, N, group))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("variant", FAMILY.variants)
def test_variant_matches_the_reference(variant, case):
    assert Checker.draw(SUITE, case, "cpu", seed=1).error(FAMILY, variant) < TOLERANCE.get(variant, 5e-4)


@pytest.mark.parametrize("variant", [name for name in FAMILY.variants if name != "int4pack"])
def test_sizes_that_no_tile_divides(variant):
    assert Checker.draw(SUITE, RAGGED, "cpu", seed=2).error(FAMILY, variant) < 5e-4


@pytest.mark.parametrize("variant", ["fp16", "dequant"])
def test_quick_cases_run_on_a_cpu_without_the_interpreter(variant, monkeypatch):
    monkeypatch.setattr("triton.knobs.runtime.interpret", False)
    for case in SUITE.quick:
        assert Checker.draw(SUITE, case, "cpu", seed=3).error(FAMILY, variant) < 5e-4


@pytest.mark.parametrize("variant", [name for name in FAMILY.variants if name != "int4pack"])
def test_variant_writes_into_the_buffer_it_is_given(variant):
    given = arguments(variant)
    out = torch.empty(2, 64, dtype=torch.float16)
    assert FAMILY.variants[variant](**given, out=out) is out
    assert torch.equal(FAMILY.variants[variant](**given), out)


def test_an_output_that_nobody_writes_is_found():
    planted = Family({"lazy": lambda x, *, out=None: out}, {})
    with pytest.raises(WrongResult, match="lazy output 0"):
        Checker.draw(SUITE, CASES[0], "cpu", seed=3).error(planted, "lazy")


def test_a_zero_point_off_by_one_is_found():
    def off_by_one(x, codes, scales):
        return FAMILY.variants["fp16"](x, (codes.half() - 7) * scales.repeat_interleave(128, 0))

    with pytest.raises(WrongResult):
        Checker.draw(SUITE, CASES[0], "cpu", seed=3).error(Family({"planted": off_by_one}, {}), "planted")


@pytest.mark.parametrize(
    ("variant", "name", "change"),
    [
        ("fp16", "x", torch.Tensor.float),
        ("fp16", "weight", lambda weight: weight[:-1]),
        ("dequant", "words", lambda words: words[:-1]),
        ("dequant", "scales", torch.Tensor.float),
        ("int4pack", "x_bf16", torch.Tensor.half),
        ("int4pack", "scales_and_zeros", lambda scales: scales[..., 0]),
        ("triton", "x", lambda x: x.t().contiguous().t()),
        ("triton", "words", lambda words: words[:, ::2]),
        ("triton", "scales", lambda scales: scales[:0]),
        ("triton", "out", lambda _: torch.empty(2, 63, dtype=torch.float16)),
    ],
)
def test_a_wrong_argument_is_named(variant, name, change):
    given = arguments(variant)
    given[name] = change(given.get(name))
    with pytest.raises(ValueError, match=f"^{name} must"):
        FAMILY.variants[variant](**given)


def test_what_int4pack_cannot_do_is_said():
    with pytest.raises(NotImplementedError, match="K in multiples of 128"):
        arguments("int4pack", K=192, group="channel")
    with pytest.raises(NotImplementedError, match="groups of"):
        FAMILY.variants["int4pack"](**arguments("int4pack", K=256, group=16))


def test_a_group_that_no_tile_fits_is_refused():
    with pytest.raises(NotImplementedError, match="groups of a multiple of 64"):
        FAMILY.variants["triton"](**arguments("triton", group=32))


@pytest.mark.parametrize("variant", ["dequant", "triton"])
def test_compiles_for_hopper_without_spills(variant):
    kernels = compile_in_subprocess(
        "from benchmarks.w4a16 import SUITE\n"
        "from lockstep.family import load_family\n"
        "from lockstep.inputs import Draw\n"
        "family = load_family(SUITE)\n"
        "for M in (1, 256):\n"
        "    inputs = SUITE.inputs(Draw('meta', 0), M, 8192, 8192, 128)\n"
        f"    family.variants[{variant!r}](**family.arguments({variant!r}, inputs))"
    )
    assert kernels
    for kernel in kernels:
        assert kernel.stack_bytes == 0, kernel
        assert kernel.shared_bytes <= 227 * 1024, kernel
