"""Every rung of ``hgemm`` against the suite's own reference, on a CPU and through Triton's interpreter.

With LOCKSTEP_TEST_GPU set the same tests run on a GPU, and with them those of the Gluon rung.
"""

import os
from functools import partial

import pytest
import torch
from compiling import compile_in_subprocess

from benchmarks.hgemm import Hgemm
from kernels.hgemm import CANDIDATES, VARIANTS, hgemm
from kernels.hgemm.tiles import TILES, TRIED
from lockstep.suite.case import Case
from lockstep.suite.inputs import map_tensors
from lockstep.suite.variants import Family, load_family
from lockstep.timing.checks.check import Checker, WrongResult

SUITE = Hgemm()
FAMILY = load_family(SUITE)
DEVICE = "cuda" if os.environ.get("LOCKSTEP_TEST_GPU") else "cpu"
RUNGS = ["naive", "vectorized", "pipelined", "tma", *(["cublaslt"] if DEVICE == "cuda" else [])]


@pytest.mark.parametrize("case", SUITE.quick, ids=lambda case: case.label)
@pytest.mark.parametrize("variant", ["torch", "best"])
def test_quick_cases_are_right(variant, case):
    assert Checker.draw(SUITE, case, DEVICE, seed=1).accuracy(FAMILY, variant).norm < 1e-3


@pytest.mark.parametrize(
    "case",
    [
        Case(M=128, N=256, K=128),
        Case(M=136, N=72, K=200),
        Case(M=40, N=264, K=64, alpha=2, beta=3),
        Case(M=300, N=320, K=96, alpha=0.5, beta=2),
    ],
    ids=lambda case: case.label,
)
@pytest.mark.parametrize("variant", ["torch", *RUNGS, "best"])
def test_variants_match_the_reference(variant, case):
    assert Checker.draw(SUITE, case, DEVICE, seed=2).accuracy(FAMILY, variant).norm < 1e-3


@pytest.mark.parametrize("variant", ["torch", *RUNGS, "best"])
def test_alpha_without_c_and_an_allocated_output(variant):
    a = torch.ones(16, 32, dtype=torch.float16, device=DEVICE)
    result = VARIANTS[variant](a, a.new_ones(32, 24), alpha=0.25)
    assert torch.equal(result, a.new_full((16, 24), 8.0))


@pytest.mark.parametrize("variant", ["naive", "vectorized", "pipelined"])
def test_sizes_that_no_vector_load_divides(variant):
    assert Checker.draw(SUITE, Case(M=33, N=7, K=13), DEVICE, seed=3).accuracy(FAMILY, variant).norm < 1e-3


def test_cublaslt_says_what_it_needs():
    a = torch.zeros(16, 16, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match="needs a tensor on an NVIDIA GPU, got a cpu tensor"):
        VARIANTS["cublaslt"](a, a)


def test_tma_refuses_rows_that_it_cannot_address():
    a = torch.zeros(16, 20, dtype=torch.float16, device=DEVICE)
    with pytest.raises(NotImplementedError, match="K=20, N=16"):
        VARIANTS["tma"](a, a.new_zeros(20, 16))


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("variant", ["pipelined", "tma"])
def test_every_tile_of_the_table_is_right(variant, tile, monkeypatch):
    monkeypatch.setattr("kernels.hgemm.tiles.TILES", (tile,))
    ragged = Case(M=tile.m + 8, N=tile.n + 8, K=tile.k + 8, alpha=1, beta=1)
    assert Checker.draw(SUITE, ragged, DEVICE, seed=4).accuracy(FAMILY, variant).norm < 1e-3


def test_ignoring_beta_fails_the_check():
    def ignores_beta(a, b, c=None, *, alpha=1.0, beta=0.0, out=None):
        return VARIANTS["torch"](a, b, alpha=alpha, out=out)

    case = Checker.draw(SUITE, Case(M=32, N=32, K=32, alpha=1, beta=1), DEVICE, seed=0)
    with pytest.raises(WrongResult, match="ignorant"):
        case.accuracy(Family({"ignorant": ignores_beta}, {}), "ignorant")


@pytest.mark.parametrize("variant", [*RUNGS, "gluon", "warp_specialized", "best"])
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("a", torch.zeros(16, 32)),
        ("a", torch.zeros(32, 16, dtype=torch.float16).t()),
        ("b", torch.zeros(31, 24, dtype=torch.float16)),
        ("c", torch.zeros(16, 25, dtype=torch.float16)),
        ("c", None),
        ("out", torch.zeros(16, 24)),
    ],
    ids=["a dtype", "a layout", "b shape", "c shape", "c missing", "out dtype"],
)
def test_a_wrong_argument_is_named(variant, name, wrong):
    half = {"dtype": torch.float16}
    arguments = {"a": torch.zeros(16, 32, **half), "b": torch.zeros(32, 24, **half), "c": torch.zeros(16, 24, **half)}
    moved = map_tensors(arguments | {name: wrong}, lambda tensor: tensor.to(DEVICE))
    with pytest.raises(ValueError, match=rf"^{name} must"):
        VARIANTS[variant](**moved, beta=1.0)


def test_c_without_beta_is_refused():
    a = torch.zeros(16, 16, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"^c must be given if, and only if, beta is not 0"):
        hgemm(a, a, a)


def test_costs_count_c_only_where_beta_reads_it():
    assert SUITE.cost(M=8, N=4, K=2).bytes == 2 * (16 + 8 + 32)
    assert SUITE.cost(M=8, N=4, K=2, beta=1).bytes == 2 * (16 + 8 + 32 + 32)


def test_kernels_compile_for_hopper_without_spills():
    kernels = compile_in_subprocess(
        "from kernels.hgemm import VARIANTS\n"
        f"for variant in {RUNGS}:\n"
        "    for size in (512, 4096):\n"
        "        a = torch.empty(size, size, device='meta', dtype=torch.float16)\n"
        "        VARIANTS[variant](a, a, a, alpha=2, beta=3)"
    )
    # One tile for all sizes on the first two rungs.
    assert len(kernels) == 2 * len(RUNGS) - 2
    assert all(kernel.stack_bytes == 0 and kernel.shared_bytes <= 227 * 1024 for kernel in kernels), kernels


def test_gluon_compiles_for_hopper_and_leaves_room_for_the_registers():
    kernels = compile_in_subprocess(
        "from kernels.hgemm import VARIANTS\n"
        "for size in (512, 4096):\n"
        "    a = torch.empty(size, size, device='meta', dtype=torch.float16)\n"
        "    VARIANTS['gluon'](a, a)"
    )
    # Four or eight warps multiply; the warp that loads makes it a whole warp group more.
    assert [kernel.num_warps for kernel in kernels] == [8, 12]
    assert all(kernel.stack_bytes == 0 and kernel.shared_bytes <= 227 * 1024 for kernel in kernels), kernels


@pytest.mark.skipif(DEVICE == "cpu", reason="Gluon has no interpreter")
@pytest.mark.parametrize("tile", TRIED, ids=str)
def test_gluon_matches_the_reference(tile, monkeypatch):
    monkeypatch.setattr("kernels.hgemm.tiles.TILES", (tile,))
    for case in (Case(M=tile.m + 8, N=tile.n + 8, K=tile.k + 8), Case(M=2048, N=4096, K=512)):
        assert Checker.draw(SUITE, case, DEVICE, seed=5).accuracy(FAMILY, "gluon").norm < 1e-3


@pytest.mark.parametrize(("c", "reason"), [(None, "only Hopper"), (torch.zeros(16, 16).half(), "cannot add c")])
def test_gluon_says_why_it_cannot(c, reason):
    a = torch.zeros(16, 16, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match=reason):
        VARIANTS["gluon"](a, a, c, beta=0 if c is None else 1)


@pytest.mark.skipif(DEVICE == "cpu", reason="Gluon has no interpreter")
@pytest.mark.parametrize("cut", CANDIDATES["warp_specialized"](2048, 2048, 2048).configs, ids=str)
@pytest.mark.parametrize(
    "case",
    [Case(M=2048, N=4096, K=512), Case(M=72, N=256, K=128), Case(M=4104, N=512, K=64)],
    ids=lambda case: case.label,
)
def test_warp_specialized_matches_the_reference(cut, case):
    rival = Family({"asked": partial(VARIANTS["warp_specialized"], config=cut)}, {})
    assert Checker.draw(SUITE, case, DEVICE, seed=5).accuracy(rival, "asked").norm < 1e-3


@pytest.mark.parametrize(("scale", "reason"), [(1.0, "only Hopper"), (0.5, "can neither scale nor add c")])
def test_warp_specialized_says_why_it_cannot(scale, reason):
    a = torch.zeros(256, 256, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match=reason):
        VARIANTS["warp_specialized"](a, a, alpha=scale)


def test_warp_specialized_compiles_for_hopper_and_leaves_odd_widths_to_tma():
    kernels = compile_in_subprocess(
        "from kernels.hgemm import VARIANTS, hgemm\n"
        "def operands(M, N, K):\n"
        "    a = torch.empty(M, K, device='meta', dtype=torch.float16)\n"
        "    return a, a.new_empty(K, N)\n"
        "VARIANTS['warp_specialized'](*operands(2048, 2048, 2048))\n"
        "try: VARIANTS['warp_specialized'](*operands(2048, 2056, 2048))\n"
        "except NotImplementedError as error: assert 'N to be a multiple of 256 and K a multiple of 32' in str(error)\n"
        "hgemm(*operands(2048, 2056, 2048))\n"
        "hgemm(*operands(4096, 4096, 4096), alpha=2.0)"
    )
    assert [kernel.name for kernel in kernels] == ["_specialized", "_tma_kernel", "_tma_kernel"]
    assert all(kernel.stack_bytes == 0 and kernel.shared_bytes <= 227 * 1024 for kernel in kernels), kernels


def test_the_entry_point_picks_by_size_and_fuses_c():
    kernels = compile_in_subprocess(
        "from kernels.hgemm import hgemm\n"
        "def run(size, depth, **scales):\n"
        "    a = torch.empty(size, depth, device='meta', dtype=torch.float16)\n"
        "    hgemm(a, a.new_empty(depth, size), a.new_empty(size, size) if scales else None, **scales)\n"
        "run(64, 64)\n"
        "run(1024, 1024)\n"
        "run(1024, 1024, beta=2)\n"
        "run(4096, 512)\n"
        "run(4096, 1024)"
    )
    assert [kernel.name for kernel in kernels] == ["_tma_kernel", "_specialized"]
