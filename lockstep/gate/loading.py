"""Kernels that are the same machine code in both versions, loaded once.

Each version has kernel objects of its own, and Triton would load the file of each to a place of its own. Where code
lies shows in a time, the same in every epoch, so that no number of epochs averages it away. Loaded once, what did not
change runs from one place; a kernel that did change cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.machine_code.cubin import what_runs


def load_once() -> None:
    """From now on Triton loads each machine code once in this process. Needs a GPU.

    What is patched is Triton's own (3.6 and 3.7): ``load_binary`` of its driver, which ``CompiledKernel`` calls with
    name, file, shared memory and device, and whose answer (module, function, registers, spills, most threads) it keeps
    and never unloads.
    """
    import triton

    utils = triton.runtime.driver.active.utils
    utils.load_binary = once(utils.load_binary)


def once(load: Callable[..., Any]) -> Callable[..., Any]:
    """``load(name, file, *rest)`` that answers with what it loaded before for the same machine code and ``rest``.

    Lines, paths and comments make no other machine code.
    """
    loaded: dict[Any, Any] = {}

    def load_if_new(name: str, file: bytes, *rest: Any) -> Any:
        key = name, what_runs(file, name), rest
        if key not in loaded:
            loaded[key] = load(name, file, *rest)
        return loaded[key]

    return load_if_new
