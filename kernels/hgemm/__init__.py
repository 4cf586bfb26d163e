"""Half-precision GEMM in six steps from a naive tile to the speed of cuBLAS; each step adds one optimisation.

``out = alpha · A @ B + beta · C`` with float16 tensors, row-major, accumulated in float32. The steps follow minfer's
kernels (naive, vectorised and unrolled, pipelined, …), written for Hopper.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.call_plans import planned
from kernels.common import cublaslt as lt
from kernels.common.arguments import expect
from kernels.common.devices import capability, require_triton, require_wgmma
from kernels.common.tables import SearchSpace, first_that_can
from kernels.common.warp_specialized_product import TileConfig
from kernels.common.workspace import BUFFERS
from kernels.hgemm.gluon_kernel import run_gluon
from kernels.hgemm.tiles import TABLE, TRIED, Tile, tile_for
from kernels.hgemm.triton_kernels import run_pointers, run_tma
from kernels.hgemm.warp_specialized_kernel import TILE_CONFIG, run_specialized, tile_configs_at

FLOATS = (torch.float16, torch.bfloat16)

#: Variant that ``hgemm`` calls. In conditions, C is 1 if there is a C, and elements counts the output's elements.
BEST = TABLE.choice("best", str, "M N K C elements", derived="elements")

#: Algorithm of "cublaslt"; it holds for one version of cuBLAS.
ALGORITHM = TABLE.maybe("cublaslt", str, "M N K C")

#: Variants for the arguments that the best variant refuses. After them comes cuBLAS.
PLAINER = {"warp_specialized": ("tma",), "cublaslt": ("warp_specialized", "tma")}

#: Elements of the output, and K, from which the plainer variants are faster than the default cuBLAS.
LARGE, DEEP = 1 << 22, 1024


def torch_mm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0, out: Tensor | None = None
) -> Tensor:
    """Multiply with cuBLAS. With ``c``, torch copies ``c`` into ``out`` (a separate launch), then accumulates there."""
    if c is None and alpha == 1:
        return torch.mm(a, b, out=out)
    addend = a.new_empty(()) if c is None else c
    return torch.addmm(addend, a, b, alpha=alpha, beta=0 if c is None else beta, out=out)


@planned
def cublaslt(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: str | None = None,
) -> Tensor:
    """Multiply with the best of cuBLASLt's algorithms; torch takes the first. The kernel adds C, without a copy.

    The algorithm is ``config``, else the entry of the GPU's table, else the first. ``lockstep tune`` writes the entry.

    Raises:
        NotImplementedError: the tensors are not on an NVIDIA GPU, or rows are not multiples of 16 bytes.
    """
    out = _checked(a, b, c, beta, out)
    if reason := lt.refusal(a.device, a, b, out):
        raise NotImplementedError(reason)
    algorithm = config or _tuned_algorithm(a, b, c) or lt.first(a, b)
    lt.multiply(algorithm, a, b, out, c, alpha, beta)
    return out


def _tuned_algorithm(a: Tensor, b: Tensor, c: Tensor | None) -> str | None:
    return lt.usable(ALGORITHM(a.device, a.shape[0], b.shape[1], a.shape[1], c is not None))


@planned
def naive(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0, out: Tensor | None = None
) -> Tensor:
    """Step 1: use a small tile, and compute tiles in row order. The product waits for each load."""
    return _by_pointers("naive", Tile(64, 64, 32, 1, 4, 1), a, b, c, alpha, beta, out)


@planned
def vectorized(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0, out: Tensor | None = None
) -> Tensor:
    """Step 2: use a tile with four times the reuse, 16-byte loads without masks, and two steps of K per iteration."""
    return _by_pointers("vectorized", Tile(128, 128, 64, 1, 8, 1), a, b, c, alpha, beta, out, unroll=2)


@planned
def pipelined(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: Tile | None = None,
) -> Tensor:
    """Step 3: load several steps ahead of the products, and order tiles to reuse L2; the size decides the tile.

    From Hopper on, programmatic dependent launch is used: programs start while the preceding kernel drains.
    """
    pdl = a.device.type != "cpu" and capability(a.device) >= (9, 0)
    return _by_pointers("pipelined", config or tile_for(a, b), a, b, c, alpha, beta, out, unroll=1, pdl=pdl)


@planned
def tma(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: Tile | None = None,
) -> Tensor:
    """Step 4: load whole tiles with the tensor memory accelerator, in persistent programs.

    Programmatic dependent launch is used as in ``pipelined``.

    Raises:
        NotImplementedError: a GPU before Hopper, or rows that are not a multiple of 16 bytes.
    """
    require_triton(a, "tma")
    out = _checked(a, b, c, beta, out)
    K, N = b.shape
    if a.device.type != "cpu" and capability(a.device) < (9, 0):
        raise NotImplementedError("tma needs a Hopper GPU or newer (compute capability 9.0)")
    if not _in_vectors(a, b):
        raise NotImplementedError(f"tma needs rows of a multiple of 16 bytes: K and N multiples of 8, got K={K}, N={N}")
    run_tma(config or tile_for(a, b), a, b, c, alpha, beta, out)
    return out


@planned
def gluon_wgmma(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: Tile | None = None,
) -> Tensor:
    """Step 5: let one warp only load tiles into a ring, and two warp groups only multiply (Gluon, sm_90).

    Raises:
        NotImplementedError: a GPU that is not a Hopper (only Hopper has ``wgmma``, and Gluon has no interpreter), rows
            that are not a multiple of 16 bytes, or a ``c``.
    """
    out = _checked(a, b, c, beta, out)
    K, N = b.shape
    if c is not None:
        raise NotImplementedError("gluon cannot add c: call another variant, or call it without c")
    require_wgmma(a, "gluon")
    if not _in_vectors(a, b):
        raise NotImplementedError(f"gluon needs rows of 16-byte multiples: K and N multiples of 8, got K={K}, N={N}")
    run_gluon(config or tile_for(a, b), a, b, alpha, out)
    return out


@planned
def warp_specialized(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: TileConfig | None = None,
) -> Tensor:
    """Step 6: let the warp groups share no barrier, so that one stores while the other multiplies (Gluon, sm_90).

    Programmatic dependent launch is used as in ``pipelined``.

    Raises:
        NotImplementedError: a GPU that is not a Hopper, a ``c``, an ``alpha`` other than 1, or widths that are not
            multiples of the tile's.
    """
    out = _checked(a, b, c, beta, out)
    if c is not None or alpha != 1:
        raise NotImplementedError("warp_specialized can neither scale nor add c: call another variant")
    require_wgmma(a, "warp_specialized")
    run_specialized(config or TILE_CONFIG(a.device, a.shape[0], b.shape[1], a.shape[1]), a, b, out)
    return out


@planned
def hgemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: str | None = None,
) -> Tensor:
    """Compute ``alpha · a @ b + beta · c`` with the variant that is fastest at this shape.

    Args:
        a: ``[M, K]``, contiguous; float16 (or bfloat16).
        b: ``[K, N]``, contiguous, dtype and device of ``a``.
        c: ``[M, N]`` if ``beta`` is not 0, else None.
        alpha: scale of the product.
        beta: scale of ``c``.
        out: ``[M, N]`` to write into; allocated when None. It must not be ``c``.
        config: name of the variant; by default the entry of the GPU's table for the shape.

    Returns:
        ``[M, N]`` in the dtype of ``a``, accumulated and scaled in float32.

    Raises:
        ValueError: an argument has a wrong shape, dtype, device or layout; the message names it.
    """
    out = _checked(a, b, c, beta, out)
    if a.device.type == "cpu":
        return _cublas(a, b, c, alpha, beta, out)
    (M, K), N = a.shape, b.shape[1]

    def run(name: str) -> Tensor:
        if name == "torch":
            return _cublas(a, b, c, alpha, beta, out)
        if name == "cublaslt" and (a.device.type != "cuda" or not _tuned_algorithm(a, b, c)):
            raise NotImplementedError("the table has no algorithm for this version of cuBLAS")
        return VARIANTS[name](a, b, c, alpha=alpha, beta=beta, out=out)

    if config:
        return run(config)
    best = BEST(a.device, M, N, K, c is not None, M * N)
    plainer = PLAINER.get(best, ()) if M * N >= LARGE and K >= DEEP else ()
    return first_that_can((best, *plainer, "torch"), run)


def _cublas(a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, out: Tensor) -> Tensor:
    """Compute ``torch_mm``; a plain product as one call of ``torch.mm``."""
    if c is None and alpha == 1:
        return torch.mm(a, b, out=out)
    return torch_mm(a, b, c, alpha=alpha, beta=beta, out=out)


def _checked(a: Tensor, b: Tensor, c: Tensor | None, beta: float, out: Tensor | None) -> Tensor:
    """Check every argument, and return ``out`` or a new output."""
    expect(a, "a", shape=(None, None), dtype=FLOATS, contiguous=True)
    expect(b, "b", shape=(a.shape[1], None), dtype=a.dtype, device=a.device, contiguous=True)
    shape = (a.shape[0], b.shape[1])
    if (c is None) != (beta == 0):
        raise ValueError(f"c must be given if, and only if, beta is not 0; beta is {beta:g}")
    if c is not None:
        expect(c, "c", shape=shape, dtype=a.dtype, device=a.device, contiguous=True)
    if out is None:
        return a.new_empty(shape)
    expect(out, "out", shape=shape, dtype=a.dtype, device=a.device, contiguous=True)
    return out


def _in_vectors(a: Tensor, b: Tensor) -> bool:
    """Return whether every row begins at a multiple of 16 bytes, which the tensor memory accelerator needs."""
    return a.shape[1] % 8 == 0 and b.shape[1] % 8 == 0


def _by_pointers(
    name: str,
    tile: Tile,
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    alpha: float,
    beta: float,
    out: Tensor | None,
    unroll: int = 0,
    pdl: bool = False,
) -> Tensor:
    require_triton(a, name)
    out = _checked(a, b, c, beta, out)
    run_pointers(tile, a, b, c, alpha, beta, out, unroll, pdl)
    return out


VARIANTS = {
    "torch": torch_mm,
    "cublaslt": cublaslt,
    "naive": naive,
    "vectorized": vectorized,
    "pipelined": pipelined,
    "tma": tma,
    "gluon": gluon_wgmma,
    "warp_specialized": warp_specialized,
    "best": hgemm,
}

SCRATCH = BUFFERS


def _tiles_at(M: int, N: int, K: int) -> SearchSpace:
    return SearchSpace("tile", {"M": M, "N": N, "K": K}, TRIED)


def _algorithms_at(M: int, N: int, K: int, beta: float = 0.0) -> SearchSpace:
    algorithms = lt.proposed(M, N, K, torch.float16, False)
    return SearchSpace("cublaslt", {"M": M, "N": N, "K": K, "C": beta != 0}, algorithms)


BACKENDS = ("torch", "cublaslt", "pipelined", "tma", "gluon", "warp_specialized")


def _variants_at(M: int, N: int, K: int, beta: float = 0.0) -> SearchSpace:
    return SearchSpace("best", {"M": M, "N": N, "K": K, "C": beta != 0, "elements": M * N}, BACKENDS)


#: Search spaces of ``lockstep tune``: variant → function of a case.
CANDIDATES = {"cublaslt": _algorithms_at, "tma": _tiles_at, "warp_specialized": tile_configs_at, "best": _variants_at}
