"""Every variant against the suite's reference; Triton kernels through the interpreter."""

import os

import pytest
import torch
from wgmma_operands import overwritten

from benchmarks.w4a16 import SUITE
from kernels import w4a16 as module
from kernels.w4a16_planes import Tile, multiply_planes
from lockstep.check import Checker, WrongResult
from lockstep.compiling import compile_in_subprocess
from lockstep.family import Family, load_family
from lockstep.inputs import Draw
from lockstep.machine_code.cubin import disassemble
from lockstep.suite import Case

FAMILY = load_family(SUITE)
DEVICE = torch.device("cuda", 0) if os.environ.get("LOCKSTEP_TEST_GPU") else torch.device("cpu")

#: fp16 rounding of weights and output comes to 3e-4; PyTorch's int4 product computes in bfloat16.
TOLERANCE = {"int4pack": 4e-3}

CASES = [
    Case(M=1, K=256, N=64, group=128),
    Case(M=19, K=384, N=208, group=128),
    Case(M=70, K=512, N=160, group="channel"),
]
RAGGED = Case(M=3, K=200, N=75, group="channel")


def arguments(variant, M=2, K=256, N=64, group=128):
    return FAMILY.arguments(variant, SUITE.inputs(Draw(DEVICE, 0), M, K, N, group))


def checker(case, seed=1, device=DEVICE):
    return Checker.draw(SUITE, case, device, seed)


def compiled(*calls, before="", after=""):
    """Kernels that calls compile for sm_90, each a variant's name and its axes M, K, N, group."""
    return compile_in_subprocess(
        f"{before}\n"
        "from benchmarks.w4a16 import SUITE\n"
        "from lockstep.family import load_family\n"
        "from lockstep.inputs import Draw\n"
        "family = load_family(SUITE)\n"
        f"for variant, *axes in {calls}:\n"
        "    inputs = SUITE.inputs(Draw('meta', 0), *axes)\n"
        "    family.variants[variant](**family.arguments(variant, inputs))\n"
        f"{after}"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("variant", FAMILY.variants)
def test_variant_matches_the_reference(variant, case):
    assert checker(case).error(FAMILY, variant) < TOLERANCE.get(variant, 5e-4)


@pytest.mark.parametrize("variant", [name for name in FAMILY.variants if name != "int4pack"])
def test_sizes_that_no_tile_divides(variant):
    assert checker(RAGGED).error(FAMILY, variant) < 5e-4


@pytest.mark.parametrize("variant", ["fp16", "dequant", "best"])
def test_quick_cases_run_on_a_cpu_without_the_interpreter(variant, monkeypatch):
    monkeypatch.setattr("triton.knobs.runtime.interpret", False)
    for case in SUITE.quick:
        assert checker(case, device=torch.device("cpu")).error(FAMILY, variant) < 5e-4


@pytest.mark.parametrize("variant", [name for name in FAMILY.variants if name != "int4pack"])
def test_variant_writes_into_the_buffer_it_is_given(variant):
    given = arguments(variant)
    out = torch.empty(2, 64, dtype=torch.float16, device=DEVICE)
    assert FAMILY.variants[variant](**given, out=out) is out
    assert torch.equal(FAMILY.variants[variant](**given), out)


def test_an_output_that_nobody_writes_is_found():
    planted = Family({"lazy": lambda x, *, out=None: out}, {})
    with pytest.raises(WrongResult, match="lazy output 0"):
        checker(CASES[0]).error(planted, "lazy")


def test_a_zero_point_off_by_one_is_found():
    def off_by_one(x, codes, scales):
        return FAMILY.variants["fp16"](x, (codes.half() - 7) * scales.repeat_interleave(128, 0))

    with pytest.raises(WrongResult):
        checker(CASES[0]).error(Family({"planted": off_by_one}, {}), "planted")


@pytest.mark.parametrize(
    ("variant", "name", "change"),
    [
        ("fp16", "x", torch.Tensor.float),
        ("fp16", "weight", lambda weight: weight[:-1]),
        ("dequant", "words", lambda words: words[:-1]),
        ("dequant", "scales32", torch.Tensor.half),
        ("int4pack", "x_bf16", torch.Tensor.half),
        ("int4pack", "scales_and_zeros", lambda scales: scales[..., 0]),
        ("triton", "x", lambda x: x.t().contiguous().t()),
        ("triton", "words", lambda words: words[:, ::2]),
        ("triton", "scales", lambda scales: scales[:0]),
        ("planes", "x", torch.Tensor.float),
        ("planes", "words", lambda words: words[:, :1]),
        ("planes", "scales32", torch.Tensor.half),
        ("triton", "out", lambda _: torch.empty(2, 63, dtype=torch.float16, device=DEVICE)),
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


@pytest.mark.parametrize("variant", ["dequant", "planes", "best"])
def test_planes_hold_groups_of_whole_tiles(variant):
    with pytest.raises(NotImplementedError, match="groups of a multiple of 128"):
        FAMILY.variants[variant](**arguments(variant, group=64))


def test_best_dequantises_once_for_many_tokens(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_FUSED_M", 16)
    ways = []
    for way in ("planes", "dequant"):
        monkeypatch.setattr(module, way, lambda *_, way=way, out: ways.append(way))
    for M in (16, 17):
        module.w4a16(**arguments("best", M=M))
    assert ways == ["planes", "dequant"]


@pytest.mark.parametrize(("group", "scale_weights"), [(256, True), (256, False), ("channel", False)])
@pytest.mark.parametrize(
    ("M", "BM", "BN", "fill", "depth"),
    [(70, 8, 64, 0, 1), (33, 16, 128, 0, 2), (5, 64, 128, 16, 2), (70, 64, 256, 0, 1)],
    ids=["two bands of tokens", "a ragged last tile", "split K", "wide"],
)
def test_planes_is_right_in_every_tile(M, BM, BN, fill, depth, group, scale_weights):
    """``fill`` 0 keeps K whole."""
    check = checker(Case(M=M, K=512, N=300, group=group))
    tile = Tile(BM, BN, 4, 2, fill, scale_weights, depth)

    def tiled(x, words, scales32, *, out):
        multiply_planes(x, words, scales32, out, tile)
        return out

    assert check.error(Family({"planes": tiled}, FAMILY.prepare), "planes") < 5e-4


def test_planes_sums_a_split_k_to_the_same_bits_each_time():
    given = arguments("planes", M=3, K=1024, N=192)
    first = FAMILY.variants["planes"](**given)
    assert all(torch.equal(FAMILY.variants["planes"](**given), first) for _ in range(3))


def test_no_tokens_no_launch():
    assert FAMILY.variants["planes"](**arguments("planes", M=0)).shape == (0, 64)


def test_compiles_for_hopper_without_spills():
    groups = [("planes", M, 8192, 8192, 128) for M in (1, 16, 64, 256)]
    channel = [("planes", 256, 8192, 8192, "channel"), ("planes", 3, 200, 75, "channel")]
    others = [("triton", 1, 8192, 8192, 128), ("triton", 256, 8192, 8192, 128), ("dequant", 4096, 8192, 8192, 128)]
    kernels = compiled(*groups, *channel, *others)
    assert len(kernels) == 9
    for kernel in kernels:
        assert kernel.stack_bytes == 0, kernel
        assert kernel.shared_bytes <= 227 * 1024, kernel


@pytest.mark.parametrize("group", [128, "channel"])
def test_no_product_in_flight_loses_its_operands(group, tmp_path):
    write = (
        "from pathlib import Path\n"
        "for number, kernel in enumerate(kernels):\n"
        f"    Path({str(tmp_path)!r}, str(number)).write_bytes(kernel.asm['cubin'])"
    )
    compiled(*[("planes", M, 8192, 8192, group) for M in (16, 32, 64, 128, 256)], after=write)
    listings = [disassemble(path.read_bytes()) for path in tmp_path.iterdir()]
    assert sum("HGMMA" in listing for listing in listings) == 5
    assert [overwritten(listing) for listing in listings] == [[]] * 5


def test_an_operand_overwritten_in_flight_is_found():
    turn = [".L_x_0:", "LDS R8, [R0]", "WARPGROUP.ARRIVE", "HGMMA.64x8x16.F32 R4, R8, gdesc[UR4], R4, gsb0"]
    turn += ["WARPGROUP.DEPBAR.LE gsb0, 0x1", "@P0 BRA `(.L_x_0)"]
    listing = "\n".join(line if line[0] == "." else f"        /*0000*/                   {line} ;" for line in turn)
    assert overwritten(listing) == ["0000 LDS R8, [R0]"]
    assert overwritten(listing.replace("gsb0, 0x1", "gsb0, 0x0")) == []


def test_planes_compiles_without_inline_ptx():
    without = "from kernels import w4a16_planes as planes\nplanes.has_hopper_ptx = planes.has_wgmma = lambda _: False"
    [plain] = compiled(("planes", 16, 8192, 8192, 128), before=without)
    assert plain.stack_bytes == 0
