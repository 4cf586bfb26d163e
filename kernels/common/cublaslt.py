"""Products by cuBLASLt with an algorithm of choice. ``torch.mm`` always takes the first that cuBLAS proposes.

The library is the one that torch has loaded: nothing is installed, and a call allocates nothing. An algorithm is the
text of cuBLASLt's own structure, which holds for one version of cuBLAS: "130100:…".
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from ctypes import c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import torch
from torch import Tensor
from triton.runtime import driver

from kernels.common.workspace import once_per_device

#: Number of algorithms to request from cuBLAS's heuristics; cuBLAS 13.1 proposes up to eight.
ALGORITHMS = 32

#: Bytes of the workspace for partial sums, as many as torch gives cuBLASLt on Hopper.
WORKSPACE_BYTES = 32 << 20

_DTYPES = {torch.float16: 2, torch.bfloat16: 14}
_FLOAT32, _COMPUTE_FLOAT32 = 0, 68
_TRANSPOSE_A = 3  # of the attributes of a product
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # of the attributes of a preference

#: Attributes of an algorithm that tell what it does: number and bytes.
_ATTRIBUTES = {
    "id": (0, 4),
    "tile": (1, 4),
    "stages": (6, 4),
    "splits": (2, 4),
    "reduction": (3, 4),
    "swizzle": (4, 4),
    "custom": (5, 4),
    "cluster": (8, 2),
}

_Algo = c_uint64 * 8


class _Proposal(ctypes.Structure):
    _fields_ = (("algo", _Algo), ("workspace", c_size_t), ("state", c_int), ("waves", c_float), ("rest", c_int * 4))


class _Problem:
    """The descriptors of a product in cuBLASLt's terms: ``outᵀ = bᵀ @ aᵀ``, column-major."""

    def __init__(self, device: int, M: int, N: int, K: int, dtype: torch.dtype, b_transposed: bool) -> None:
        kind = _DTYPES[dtype]
        self.handle = _handle(device)
        self.product, self.b, self.a, self.out = c_void_p(), c_void_p(), c_void_p(), c_void_p()
        _call("MatmulDescCreate", ctypes.byref(self.product), c_int(_COMPUTE_FLOAT32), c_int(_FLOAT32))
        if b_transposed:
            _set("MatmulDesc", self.product, _TRANSPOSE_A, c_int(1))
        rows, columns = (K, N) if b_transposed else (N, K)
        for layout, height, width in ((self.b, rows, columns), (self.a, K, M), (self.out, N, M)):
            sizes = c_uint64(height), c_uint64(width), c_int64(height)
            _call("MatrixLayoutCreate", ctypes.byref(layout), c_int(kind), *sizes)

    @functools.cached_property
    def proposals(self) -> list[str]:
        """Return the algorithms that cuBLAS's heuristics propose, the most promising first."""
        preference = c_void_p()
        _call("MatmulPreferenceCreate", ctypes.byref(preference))
        _set("MatmulPreference", preference, _WORKSPACE, c_size_t(WORKSPACE_BYTES))
        for alignment in _ALIGNMENTS:
            _set("MatmulPreference", preference, alignment, c_uint32(16))
        found, count = (_Proposal * ALGORITHMS)(), c_int()
        layouts = self.b, self.a, self.out, self.out
        _call(
            "MatmulAlgoGetHeuristic",
            *(self.handle, self.product, *layouts, preference, c_int(ALGORITHMS), found, ctypes.byref(count)),
        )
        _call("MatmulPreferenceDestroy", preference)
        return [_text(proposal.algo) for proposal in found[: count.value] if proposal.state == 0]


def refusal(device: torch.device, *tensors: Tensor) -> str:
    """Return why cuBLASLt cannot be called for these tensors; "" if it can."""
    if device.type != "cuda" or torch.version.cuda is None:
        return f"cuBLASLt needs a tensor on an NVIDIA GPU, got a {device.type} tensor"
    if any(tensor.data_ptr() % 16 or tensor.shape[-1] * tensor.element_size() % 16 for tensor in tensors):
        return "algorithms are searched for rows that begin at multiples of 16 bytes"
    return ""


def usable(algorithm: str | None) -> str | None:
    """Return the algorithm if it was written for the version of cuBLAS that torch has loaded; else None."""
    if not algorithm or torch.version.cuda is None:
        return None
    return algorithm if algorithm.startswith(f"{_version()}:") else None


def proposed(M: int, N: int, K: int, dtype: torch.dtype, b_transposed: bool) -> list[str]:
    """Return the algorithms that cuBLAS's heuristics propose on the current GPU; none without a GPU."""
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return []
    return _problem(torch.cuda.current_device(), M, N, K, dtype, b_transposed).proposals


def first(a: Tensor, b: Tensor) -> str:
    """Return the first algorithm that cuBLAS's heuristics propose for ``a @ b``."""
    proposals = _problem(*_facts(a, b)).proposals
    if not proposals:
        raise NotImplementedError(f"cuBLASLt proposes no algorithm for {list(a.shape)} @ {list(b.shape)}")
    return proposals[0]


def described(algorithm: str) -> dict[str, int]:
    """Return what an algorithm does, as cuBLASLt numbers it: tile, stages, splits of K, cluster and so on."""
    algo, facts = _algo(algorithm), {}
    for name, (number, size) in _ATTRIBUTES.items():
        value = c_uint64(0)
        _call("MatmulAlgoConfigGetAttribute", algo, c_int(number), ctypes.byref(value), c_size_t(size), None)
        facts[name] = value.value
    return facts


def multiply(
    algorithm: str, a: Tensor, b: Tensor, out: Tensor, c: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
) -> None:
    """Write ``out = alpha · a @ b + beta · c`` with one algorithm.

    Args:
        a: ``[M, K]``, contiguous; float16 or bfloat16.
        b: ``[K, N]``, contiguous or the transpose of a contiguous tensor.
        out: ``[M, N]``, contiguous; so is ``c``.

    Raises:
        NotImplementedError: cuBLASLt does not support the product with this algorithm.
    """
    call = _prepared(algorithm, float(alpha), float(beta), *_facts(a, b))
    RUN(call, (b, a, out if c is None else c, out, workspace_of(a.device)))


def run_directly(call: Callable[..., None], tensors: Sequence[Tensor]) -> None:
    """Call a function with the addresses of tensors and the current stream, unseen by a recorder of calls."""
    call(*[tensor.data_ptr() for tensor in tensors], driver.active.get_current_stream(tensors[0].device.index))


#: The function that multiplies. A recorder of calls replaces it.
RUN: Callable[[Callable[..., None], Sequence[Tensor]], None] = run_directly


def _facts(a: Tensor, b: Tensor) -> tuple[Any, ...]:
    return a.device.index, a.shape[0], b.shape[1], a.shape[1], a.dtype, not b.is_contiguous()


@functools.lru_cache(maxsize=1024)
def _prepared(algorithm: str, alpha: float, beta: float, *facts: Any) -> Callable[..., None]:
    """Return a function of the addresses of b, a, c, out and the workspace, and of a stream, that multiplies."""
    problem, algo = _problem(*facts), _algo(algorithm)
    handle, kind, of_b, of_a, of_out = problem.handle, problem.product, problem.b, problem.a, problem.out
    by, plus = ctypes.byref(c_float(alpha)), ctypes.byref(c_float(beta))
    product = _library().cublasLtMatmul
    product.argtypes = [c_void_p] * 14 + [c_size_t, c_void_p]

    def call(b: int, a: int, c: int, out: int, workspace: int, stream: int) -> None:
        status = product(
            handle, kind, by, b, of_b, a, of_a, plus, c, of_out, out, of_out, algo, workspace, WORKSPACE_BYTES, stream
        )
        if status:
            raise NotImplementedError(f"cuBLASLt does not support the product: cublasLtMatmul returned {status}")

    return call


@once_per_device
def workspace_of(device: torch.device) -> Tensor:
    """Return the workspace, uint8 [WORKSPACE_BYTES]. It is zeroed: base and head share buffers with equal contents."""
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


@functools.lru_cache(maxsize=1024)
def _problem(*facts: Any) -> _Problem:
    return _Problem(*facts)


@functools.lru_cache(maxsize=1024)
def _algo(algorithm: str) -> Any:
    digits = algorithm.partition(":")[2].ljust(128, "0")
    return _Algo.from_buffer_copy(bytes.fromhex(digits))


def _text(algo: Any) -> str:
    return f"{_version()}:{bytes(algo).hex().rstrip('0')}"


@functools.cache
def _version() -> int:
    return int(_library().cublasLtGetVersion())


@functools.cache
def _handle(device: int) -> c_void_p:
    handle = c_void_p()
    with torch.cuda.device(device):
        _call("Create", ctypes.byref(handle))
    return handle


@functools.cache
def _library() -> ctypes.CDLL:
    name = f"libcublasLt.so.{str(torch.version.cuda).partition('.')[0]}"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise NotImplementedError(f"{name} cannot be loaded: {error}") from error
    library.cublasLtGetVersion.restype = c_size_t
    return library


def _set(kind: str, descriptor: c_void_p, attribute: int, value: Any) -> None:
    size = c_size_t(ctypes.sizeof(value))
    _call(f"{kind}SetAttribute", descriptor, c_int(attribute), ctypes.byref(value), size)


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), f"cublasLt{name}")(*arguments)
    if status:
        raise NotImplementedError(f"cuBLASLt does not support the product: cublasLt{name} returned status {status}")
