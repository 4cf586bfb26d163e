"""Every variant against the suite's reference; Triton kernels through the interpreter."""

import os

import pytest
import torch
from compiling import compile_in_subprocess, disassemble
from wgmma_operands import overwritten

from benchmarks.w4a16 import W4A16
from kernels import w4a16 as module
from kernels.w4a16.planes_kernel import Tile, multiply_planes
from kernels.w4a16.ring_warp_specialized_kernel import Ring
from kernels.w4a16.stream_tiles import Stream
from lockstep.suite.case import Case
from lockstep.suite.inputs import Draw
from lockstep.suite.variants import Family, load_family
from lockstep.timing.checks.check import Checker, WrongResult

SUITE = W4A16()
FAMILY = load_family(SUITE)
DEVICE = torch.device("cuda", 0) if os.environ.get("LOCKSTEP_TEST_GPU") else torch.device("cpu")

#: Gluon has no interpreter.
GLUON = ("stream", "ring")
#: Variants of packages that compile for a GPU.
INSTALLED = ("humming", "gemlite")
RUNNABLE = [name for name in FAMILY.variants if name not in (*GLUON, *INSTALLED) or DEVICE.type == "cuda"]
on_a_gpu = pytest.mark.skipif(DEVICE.type == "cpu", reason="Gluon has no interpreter")

#: fp16 rounding of weights and output comes to 3e-4; PyTorch's int4 product computes in bfloat16.
TOLERANCE = {"int4pack": 4e-3}

CASES = [
    Case(M=1, K=256, N=64, group=128),
    Case(M=19, K=384, N=208, group=128),
    Case(M=70, K=512, N=160, group="channel"),
]
RAGGED = Case(M=3, K=200, N=75, group="channel")


def arguments(variant, M=2, K=256, N=64, group=128):
    return FAMILY.arguments(variant, SUITE.draw(Draw(DEVICE, 0), M, K, N, group))


def checker(case, seed=1, device=DEVICE):
    return Checker.draw(SUITE, case, device, seed)


def compiled(*calls, before="", after=""):
    """Kernels that calls compile for sm_90, each a variant's name and its axes M, K, N, group."""
    return compile_in_subprocess(
        f"{before}\n"
        "from benchmarks.w4a16 import W4A16\n"
        "from lockstep.suite.variants import load_family\n"
        "from lockstep.suite.inputs import Draw\n"
        "family = load_family(W4A16())\n"
        f"for variant, *axes in {calls}:\n"
        "    inputs = W4A16().draw(Draw('meta', 0), *axes)\n"
        "    family.variants[variant](**family.arguments(variant, inputs))\n"
        f"{after}"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("variant", RUNNABLE)
def test_variant_matches_the_reference(variant, case):
    if variant == "stream" and case["M"] > 32:
        pytest.skip("more tokens than stream holds")
    assert checker(case).accuracy(FAMILY, variant).norm < TOLERANCE.get(variant, 5e-4)


@pytest.mark.parametrize("variant", [name for name in RUNNABLE if name not in ("int4pack", "ring")])
def test_sizes_that_no_tile_divides(variant):
    assert checker(RAGGED).accuracy(FAMILY, variant).norm < 5e-4


@pytest.mark.parametrize("variant", ["fp16", "dequant", "best"])
def test_quick_cases_run_on_a_cpu_without_the_interpreter(variant, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    for case in SUITE.quick:
        assert checker(case, device=torch.device("cpu")).accuracy(FAMILY, variant).norm < 5e-4


@pytest.mark.parametrize("variant", [name for name in RUNNABLE if name != "int4pack"])
def test_variant_writes_into_the_buffer_it_is_given(variant):
    given = arguments(variant)
    out = torch.empty(2, 64, dtype=torch.float16, device=DEVICE)
    assert FAMILY.variants[variant](**given, out=out) is out
    assert torch.equal(FAMILY.variants[variant](**given), out)


def test_an_output_that_nobody_writes_is_found():
    planted = Family({"lazy": lambda x, *, out=None: out}, {})
    with pytest.raises(WrongResult, match="lazy output 0"):
        checker(CASES[0]).accuracy(planted, "lazy")


def test_a_zero_point_off_by_one_is_found():
    def off_by_one(x, codes, scales):
        return FAMILY.variants["fp16"](x, (codes.half() - 7) * scales.repeat_interleave(128, 0))

    with pytest.raises(WrongResult):
        checker(CASES[0]).accuracy(Family({"planted": off_by_one}, {}), "planted")


@pytest.mark.parametrize(
    ("variant", "name", "change"),
    [
        ("fp16", "x", torch.Tensor.float),
        ("fp16", "weight", lambda weight: weight[:-1]),
        ("dequant", "words", lambda words: words[:-1]),
        ("dequant", "scales32", torch.Tensor.half),
        ("int4pack", "x_bf16", torch.Tensor.half),
        ("int4pack", "scales_and_zeros", lambda scales: scales[..., 0]),
        ("planes", "x", torch.Tensor.float),
        ("planes", "x", lambda x: x.t().contiguous().t()),
        ("planes", "words", lambda words: words[:, :1]),
        ("planes", "scales32", torch.Tensor.half),
        ("planes", "scales32", lambda scales: scales[:0]),
        ("planes", "out", lambda _: torch.empty(2, 63, dtype=torch.float16, device=DEVICE)),
        ("stream", "words", lambda words: words[1:]),
        ("ring", "x", torch.Tensor.float),
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


@pytest.mark.parametrize("variant", ["dequant", "planes", "best"])
def test_planes_hold_groups_of_whole_tiles(variant):
    with pytest.raises(NotImplementedError, match="groups of a multiple of 128"):
        FAMILY.variants[variant](**arguments(variant, group=64))


@pytest.mark.parametrize("N", [64, 4096, 14336])
def test_best_takes_the_fastest_way_that_can_run(N, monkeypatch):
    """The largest product on Hopper; what it falls back to elsewhere, and where rows are ragged."""
    taken = []
    for way in ("multiply_stream", "multiply_ring", "multiply_planes", "dequant"):
        monkeypatch.setattr(module, way, lambda *_, way=way, **__: taken.append(way))

    def way_for(M, K=4096, N=N, hopper=True):
        monkeypatch.setattr(module, "has_hopper_ptx", lambda device: hopper)
        monkeypatch.setattr(module, "has_wgmma", lambda device: hopper)
        module.w4a16(**FAMILY.arguments("best", SUITE.draw(Draw("meta", 0), M, K, N, "channel" if K % 8 else 128)))
        return taken.pop()

    assert way_for(1) == "multiply_stream"
    assert way_for(32) == "multiply_planes"
    assert way_for(512) == way_for(1 << 20) == "multiply_ring"
    assert way_for(1, hopper=False) == way_for(512, K=1028, hopper=True) == "multiply_planes"
    assert way_for(2049, hopper=False) == "dequant"


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

    assert check.accuracy(Family({"planes": tiled}, FAMILY.prepare), "planes").norm < 5e-4


def test_planes_sums_a_split_k_to_the_same_bits_each_time():
    given = arguments("planes", M=3, K=1024, N=192)
    first = FAMILY.variants["planes"](**given)
    assert all(torch.equal(FAMILY.variants["planes"](**given), first) for _ in range(3))


CREWS = [Stream(8, 64, 1, 4, 1, 4, 64, True), Stream(16, 128, 1, 3, 2, 2, 128), Stream(8, 64, 2, 2, 2, 4, 64, True)]
SPLIT_RINGS = [Ring(32, 4, 2, 2), Ring(64, 3, 3, 2), Ring(16, 4, 9, 3), Ring(128, 4, 4)]


@on_a_gpu
@pytest.mark.parametrize("group", [128, 256, "channel"])
@pytest.mark.parametrize(
    "stream",
    [Stream(8, 64, 2, 3, 1), Stream(8, 128, 1, 5, 2), Stream(16, 64, 1, 3, 2), Stream(32, 128, 2, 2, 4), *CREWS],
    ids=str,
)
def test_stream_is_right_with_every_tile(stream, group, monkeypatch):
    monkeypatch.setattr(module, "STREAM", lambda *_: stream)
    for M, K, N in ((1, 512, 200), (stream.tokens, 2304, 4100), (stream.tokens - 3, 8192, 1024)):
        assert checker(Case(M=M, K=K, N=N, group=group)).accuracy(FAMILY, "stream").norm < 5e-4


@on_a_gpu
@pytest.mark.parametrize("group", [128, "channel"])
@pytest.mark.parametrize("ring", [Ring(16, 8), Ring(64, 8), Ring(128, 4), Ring(256, 2), *SPLIT_RINGS], ids=str)
def test_ring_is_right_with_every_tile(ring, group, monkeypatch):
    monkeypatch.setattr(module, "RING", lambda *_: ring)
    for M, N in ((5, 72), (300, 200), (2100, 4096)):
        assert checker(Case(M=M, K=1152, N=N, group=group)).accuracy(FAMILY, "ring").norm < 5e-4


@pytest.mark.parametrize("variant", GLUON)
def test_what_needs_hopper_says_so(variant):
    inputs = SUITE.draw(Draw(torch.device("cpu"), 0), 2, 256, 64, 128)
    with pytest.raises(NotImplementedError, match="Hopper"):
        FAMILY.variants[variant](**FAMILY.arguments(variant, inputs))


@pytest.mark.parametrize(
    ("variant", "M", "K", "N", "group", "reason"),
    [
        ("stream", 33, 256, 64, 128, "stream has no tile for 33 tokens"),
        ("stream", 1, 204, 64, "channel", "rows of x of a multiple of 16 bytes"),
        ("stream", 1, 256, 66, 128, "rows of scales32"),
        ("ring", 1, 256, 68, 128, "rows of out"),
    ],
)
def test_what_the_memory_accelerator_cannot_load_is_refused(variant, M, K, N, group, reason, monkeypatch):
    monkeypatch.setattr(module, "has_hopper_ptx", lambda device: True)
    monkeypatch.setattr(module, "has_wgmma", lambda device: True)
    with pytest.raises(NotImplementedError, match=reason):
        FAMILY.variants[variant](**arguments(variant, M, K, N, group))


def test_no_tokens_no_launch():
    assert FAMILY.variants["planes"](**arguments("planes", M=0)).shape == (0, 64)


@pytest.fixture(scope="module")
def for_hopper(tmp_path_factory):
    """Kernels compiled for sm_90, and the machine code of each: compiling is most of what this file costs."""
    folder = tmp_path_factory.mktemp("machine code")
    write = (
        "from pathlib import Path\n"
        "for number, kernel in enumerate(kernels):\n"
        f"    Path({str(folder)!r}, str(number)).write_bytes(kernel.asm['cubin'])"
    )
    tiles = [("planes", M, 8192, 8192, 128) for M in (1, 16, 32, 128)] + [("planes", 256, 8192, 8192, "channel")]
    streams = [("stream", 16, 8192, 8192, 128), ("stream", 3, 200, 75, "channel")]
    rings = [("ring", 64, 8192, 8192, 128), ("ring", 1024, 8192, 8192, "channel")]
    kernels = compiled(*tiles, ("dequant", 4096, 8192, 8192, 128), *streams, *rings, after=write)
    return kernels, [disassemble(path.read_bytes()) for path in sorted(folder.iterdir())]


def test_compiles_for_hopper_without_spills(for_hopper):
    kernels, _ = for_hopper
    assert len(kernels) == 10
    for kernel in kernels:
        assert kernel.stack_bytes == 0, kernel
        assert kernel.shared_bytes <= 227 * 1024, kernel


def test_no_product_in_flight_loses_its_operands(for_hopper):
    _, listings = for_hopper
    asynchronous = [listing for listing in listings if "HGMMA" in listing]
    assert len(asynchronous) == 6
    assert [overwritten(listing) for listing in asynchronous] == [[]] * 6


def test_an_operand_overwritten_in_flight_is_found():
    turn = [".L_x_0:", "LDS R8, [R0]", "WARPGROUP.ARRIVE", "HGMMA.64x8x16.F32 R4, R8, gdesc[UR4], R4, gsb0"]
    turn += ["WARPGROUP.DEPBAR.LE gsb0, 0x1", "@P0 BRA `(.L_x_0)"]
    listing = "\n".join(line if line[0] == "." else f"        /*0000*/                   {line} ;" for line in turn)
    assert overwritten(listing) == ["0000 LDS R8, [R0]"]
    assert overwritten(listing.replace("gsb0, 0x1", "gsb0, 0x0")) == []


def test_planes_compiles_without_inline_ptx():
    without = (
        "from kernels.w4a16 import planes_kernel as planes\nplanes.has_hopper_ptx = planes.has_wgmma = lambda _: False"
    )
    [plain] = compiled(("planes", 16, 8192, 8192, 128), before=without)
    assert plain.stack_bytes == 0


@pytest.mark.parametrize("variant", INSTALLED)
def test_a_variant_of_another_package_says_what_it_needs(variant):
    if DEVICE.type == "cuda":
        pytest.skip("the package may be installed")
    with pytest.raises(NotImplementedError, match="needs a CUDA tensor, got a cpu tensor"):
        arguments(variant)
