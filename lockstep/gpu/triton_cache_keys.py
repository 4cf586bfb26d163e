"""Give each kernel one key in Triton's cache, whichever kernels a process called before."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def settle_cache_keys() -> None:
    """Let each kernel's cache key count the globals of all functions that it calls, from now on in this process.

    Triton 3.6 and 3.7 merge the globals of a called function before they compute that function's key, which finds them.
    So a kernel has one key if another kernel with the same callee was called before, and another key otherwise, and
    processes that call kernels in different orders compile them twice (``DependenciesFinder._update_hash``).
    """
    from triton.runtime.jit import DependenciesFinder

    merge = DependenciesFinder._update_hash

    def merge_after_key(finder: Any, function: Any) -> None:
        _ = function.cache_key  # finds the globals that the function uses
        merge(finder, function)

    DependenciesFinder._update_hash = merge_after_key
