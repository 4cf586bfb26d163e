"""RMSNorm and the linear layer that reads its output: ``y = (x / rms(x) · gain) @ weight.T``.

In a chain of linear layers, programmatic dependent launch overlaps each layer with the next. In a model another kernel
comes before the layer. Here the norm lets its dependents start at once. So the linear layer loads its weights, which no
kernel writes, while the norm runs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels import linear
from kernels.call_plans import planned
from kernels.common.arguments import expect
from kernels.common.devices import capability, require_triton
from kernels.common.pdl import launch_options
from kernels.common.tables import SearchSpace, Table
from kernels.common.workspace import BUFFERS
from kernels.linear.arguments import FLOATS
from kernels.linear.library import torch_linear

#: Epsilon of DeepSeek-V3's and Qwen3's configurations.
EPSILON = 1e-6

TABLE = Table("norm_linear")

#: Linear variant of ``apart``, "gemv" or "split_k"; None if there are too many rows for either.
APART = TABLE.maybe("apart", str, "M K N", upto="M")
#: Variant that ``norm_linear`` calls.
BEST = TABLE.choice("best", str, "M K N", upto="M")


def torch_both(x: Tensor, gain: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Compute ``F.rms_norm``, then a product with cuBLAS."""
    out = _checked(x, gain, weight, out)
    return torch_linear(torch.nn.functional.rms_norm(x, (x.shape[1],), gain, EPSILON), weight, out=out)


@planned
def apart(x: Tensor, gain: Tensor, weight: Tensor, *, out: Tensor | None = None, config: str | None = None) -> Tensor:
    """Compute the norm by a Triton kernel, then a variant of ``kernels.linear``, which begins after the norm has ended.

    Raises:
        NotImplementedError: the table has no linear variant for so many rows, or ``x`` is not on a GPU.
    """
    out = _checked(x, gain, weight, out)
    name = config or APART(x.device, *x.shape, len(weight))
    if name is None:
        raise NotImplementedError(
            f'variant "apart": its table names no variant of kernels.linear for {len(x)} rows, only for fewer; '
            "call norm_linear"
        )
    return _behind_norm("apart", getattr(linear, name), x, gain, weight, out, pdl=False)


@planned
def overlapped(x: Tensor, gain: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Compute ``apart`` with programmatic dependent launch: the linear layer begins while the norm runs.

    ``kernels.linear.gemv_pdl`` states which kernels may write the weight.

    Raises:
        NotImplementedError: the GPU is older than Hopper.
    """
    if x.device.type != "cpu" and capability(x.device) < (9, 0):
        raise NotImplementedError("programmatic dependent launch needs a Hopper GPU or newer (compute capability 9.0)")
    return _behind_norm("overlapped", linear.linear, x, gain, weight, out, pdl=x.device.type != "cpu")


@planned
def norm_linear(
    x: Tensor, gain: Tensor, weight: Tensor, *, out: Tensor | None = None, config: str | None = None
) -> Tensor:
    """Compute RMSNorm and linear with the variant that is fastest at this shape; with torch if the GPU cannot run it.

    Args:
        x: ``[M, K]``, contiguous; bfloat16, float16 or float32.
        gain: ``[K]``, dtype and device of ``x``.
        weight: ``[N, K]``, contiguous, dtype and device of ``x``.
        out: ``[M, N]`` to write into; allocated when None.
        config: "overlapped", "apart" or "torch"; by default the entry of the GPU's table for the shape.

    Returns:
        ``[M, N]`` in the dtype of ``x``. The norm is computed in float32 and rounded before the product.

    Raises:
        ValueError: an argument has a wrong shape, dtype, device or layout; the message names it.
    """
    out = _checked(x, gain, weight, out)
    if not len(x) or (config is None and capability(x.device) < (9, 0)):
        return torch_both(x, gain, weight, out=out)
    name = config or BEST(x.device, *x.shape, len(weight))
    return {"overlapped": overlapped, "apart": apart, "torch": torch_both}[name](x, gain, weight, out=out)


def _checked(x: Tensor, gain: Tensor, weight: Tensor, out: Tensor | None) -> Tensor:
    """Check every argument before the norm is launched, and return ``out`` or a new output."""
    expect(x, "x", shape=(None, None), dtype=FLOATS, contiguous=True)
    expect(gain, "gain", shape=(x.shape[1],), dtype=x.dtype, device=x.device, contiguous=True)
    expect(weight, "weight", shape=(None, x.shape[1]), dtype=x.dtype, device=x.device, contiguous=True)
    if out is None:
        return x.new_empty(x.shape[0], weight.shape[0])
    expect(out, "out", shape=(x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device, contiguous=True)
    return out


def _behind_norm(
    name: str, product: Callable[..., Tensor], x: Tensor, gain: Tensor, weight: Tensor, out: Tensor | None, pdl: bool
) -> Tensor:
    require_triton(x, name)
    out = _checked(x, gain, weight, out)
    normed = torch.empty_like(x)
    M, K = x.shape
    block = triton.next_power_of_2(K)
    _norm[(M,)](x, gain, normed, K, EPSILON, PDL=pdl, BLOCK_K=block, num_warps=8, **launch_options(pdl))
    return product(normed, weight, out=out)


@triton.jit
def _norm(x, gain, out, K, epsilon, PDL: tl.constexpr, BLOCK_K: tl.constexpr):
    if PDL:
        gdc_launch_dependents()
    at = tl.arange(0, BLOCK_K)
    inside = at < K
    row = tl.program_id(0).to(tl.int64) * K
    scale = tl.load(gain + at, inside, 0.0).to(tl.float32)
    if PDL:
        # The preceding kernel may still write x, or read the memory that is written here.
        gdc_wait()
    values = tl.load(x + row + at, inside, 0.0).to(tl.float32)
    scale *= tl.rsqrt(tl.sum(values * values, 0) / K + epsilon)
    tl.store(out + row + at, (values * scale).to(out.dtype.element_ty), inside)


VARIANTS = {"torch": torch_both, "apart": apart, "overlapped": overlapped, "best": norm_linear}

SCRATCH = BUFFERS


def _linears_at(M: int, K: int, N: int) -> SearchSpace:
    return SearchSpace("apart", {"M": M, "K": K, "N": N}, ["gemv", "split_k"] if M <= 4 else ["split_k"])


def _variants_at(M: int, K: int, N: int) -> SearchSpace:
    return SearchSpace("best", {"M": M, "K": K, "N": N}, ["overlapped", "apart", "torch"])


#: Search spaces of ``lockstep tune``: variant → function of a case.
CANDIDATES = {"apart": _linears_at, "best": _variants_at}
