"""Read and reset the part of the L2 that a process sets aside for persisting accesses.

Other data cannot evict what lies in that part, so the inputs of a "cold" call could stay in the cache. Source: CUDA C++
Programming Guide, "L2 Cache Set-Aside for Persisting Accesses".
"""

from __future__ import annotations

import ctypes

import torch

#: ``CU_LIMIT_PERSISTING_L2_CACHE_SIZE`` of cuda.h.
_LIMIT = 6


def persisting_bytes() -> int:
    """Return how many bytes of the L2 this process sets aside for persisting accesses; 0 before CUDA is initialised."""
    if not torch.cuda.is_initialized():
        return 0
    size = ctypes.c_size_t()
    status = ctypes.CDLL("libcuda.so.1").cuCtxGetLimit(ctypes.byref(size), _LIMIT)
    return 0 if status else size.value  # a GPU without such a part refuses the query


def reset_persisting(size: int) -> None:
    """Set aside ``size`` bytes of the L2 for persisting accesses, and let other data evict what was there."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuCtxSetLimit(_LIMIT, ctypes.c_size_t(size))
    driver.cuCtxResetPersistingL2Cache()
