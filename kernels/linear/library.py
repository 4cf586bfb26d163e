"""Library variants of ``linear``: cuBLAS, the best of cuBLASLt's algorithms, torch.compile and FlashInfer."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.common import cublaslt as lt
from kernels.common.devices import capability
from kernels.common.tables import SearchSpace
from kernels.linear.arguments import checked
from kernels.linear.table import TABLE, search_space

#: Algorithm of "cublaslt"; it holds for one version of cuBLAS.
ALGORITHM = TABLE.maybe("cublaslt", str, "M K N")


def torch_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Call ``F.linear``, or the cuBLAS function behind it if there is a buffer to write into."""
    if out is None:
        return torch.nn.functional.linear(x, weight, bias)
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)


def cublaslt(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: str | None = None
) -> Tensor:
    """Multiply with the best of cuBLASLt's algorithms; torch takes the first.

    The algorithm is ``config``, else the entry of the GPU's table, else the first. ``lockstep tune`` writes the entry.

    Raises:
        NotImplementedError: a bias, tensors that are not on an NVIDIA GPU, or rows that are not multiples of 16 bytes.
    """
    out = checked(x, weight, bias, out)
    if bias is not None or x.dtype == torch.float32:
        raise NotImplementedError("cublaslt is called for 16-bit elements and without a bias")
    if reason := lt.refusal(x.device, x, weight, out):
        raise NotImplementedError(reason)
    algorithm = config or tuned_algorithm(x, weight) or lt.first(x, weight.t())
    lt.multiply(algorithm, x, weight.t(), out)
    return out


def tuned_algorithm(x: Tensor, weight: Tensor) -> str | None:
    """Return the algorithm of the GPU's table for this shape and this version of cuBLAS; None if there is none."""
    return lt.usable(ALGORITHM(x.device, *x.shape, len(weight))) if x.device.type == "cuda" else None


def algorithms_at(M: int, K: int, N: int) -> SearchSpace:
    """Return the algorithms that ``lockstep tune`` tries for one shape."""
    return search_space("cublaslt", lt.proposed(M, N, K, torch.bfloat16, True), M, K, N)


def compiled(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Call ``torch.compile(F.linear)``, which compiles at the first call with a shape (seconds)."""
    return _compiled(x, "default")(x, weight, bias)


def max_autotuned(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Call ``torch.compile(mode="max-autotune-no-cudagraphs")``: Inductor times its own kernels against cuBLAS.

    Inductor tunes in every process, so its choice and its speed may differ from run to run.
    """
    return _compiled(x, "max-autotune-no-cudagraphs")(x, weight, bias)


def tgv(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Call FlashInfer's TGV GEMM for small batches on Blackwell (``flashinfer.gemm.tgv_gemm_sm100``)."""
    return _tgv(x, weight, bias, out, pdl=False)


def tgv_pdl(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Call ``tgv`` with programmatic dependent launch: the prologue of ``tgv`` overlaps the preceding kernel."""
    return _tgv(x, weight, bias, out, pdl=True)


def _compiled(x: Tensor, mode: str) -> Callable[..., Tensor]:
    if x.device.type != "cuda":
        raise NotImplementedError(f"torch.compile is measured on CUDA tensors only, got a {x.device.type} tensor")
    return _compile(mode)


@functools.cache
def _compile(mode: str) -> Callable[..., Tensor]:
    # One kernel for each shape, as the source of the workload measured it. Dynamo keeps eight shapes by default.
    compiled_linear: Callable[..., Tensor] = torch.compile(torch.nn.functional.linear, mode=mode, dynamic=False)
    return compiled_linear


def _tgv(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None, *, pdl: bool) -> Tensor:
    if capability(x.device)[0] != 10:
        raise NotImplementedError("FlashInfer's TGV GEMM needs a Blackwell GPU (compute capability 10.x)")
    if bias is None:
        raise NotImplementedError("FlashInfer's TGV GEMM always adds a bias: pass one, such as the zeros of PREPARE")
    try:
        flashinfer = importlib.import_module("flashinfer.gemm")
    except ImportError as error:
        raise NotImplementedError(f"FlashInfer is not installed ({error}); pip install flashinfer-python") from error
    product: Tensor = flashinfer.tgv_gemm_sm100(x, weight.t(), bias, pdl=pdl, out=checked(x, weight, bias, out))
    return product


def zero_bias(weight: Tensor, bias: Tensor | None = None) -> dict[str, Any]:
    """Return the bias that TGV requires: ``bias`` itself, or zeros ``[N]``."""
    return {"bias": weight.new_zeros(weight.shape[0]) if bias is None else bias}
