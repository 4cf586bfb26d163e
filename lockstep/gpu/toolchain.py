"""Triton's assembler and cache, kept as they are whatever else runs in the process.

The first time that ``torch.compile`` compiles something, Inductor points Triton at the assembler in torch's own wheel
and at a cache of its own, by environment variables of the whole process (``torch/_inductor/runtime/compile_tasks.py``
and ``triton_heuristics.py``). Every Triton kernel compiled from then on is other machine code than before, and than
what was compiled ahead: with torch 2.11 and Triton 3.6 the work of CUDA 13.0's assembler in place of 12.8's, in one
kernel 143 registers for 130. So what was measured depended on which variants had run before.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

#: Names the assembler to Triton; Inductor leaves it alone where it is set.
ASSEMBLER = "TRITON_PTXAS_PATH"


def keep_toolchain() -> None:
    """From now on Triton's assembler and cache stay those of now, for this process and those that it starts.

    ``torch.compile`` then uses them as well. Variables that the user has set stay as they are.
    """
    own = own_assembler()
    if own is None:
        return
    # Start-up: Triton is slow to import.
    from triton import knobs

    os.environ.setdefault(ASSEMBLER, str(own))
    os.environ.setdefault("TRITON_CACHE_DIR", knobs.cache.dir)


def own_assembler() -> Path | None:
    """The ``ptxas`` in Triton's wheel; None without Triton, or in one that has none."""
    found = importlib.util.find_spec("triton")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / "backends" / "nvidia" / "bin" / "ptxas"
    return path if path.is_file() else None


def assembler_version(arch: int) -> str:
    """Version of the assembler that Triton uses for ``sm_<arch>``, "12.8"; "" if it cannot be told."""
    try:
        # Start-up: Triton is slow to import.
        from triton import knobs
    except ImportError:
        return ""
    tool = knobs.nvidia.ptxas_blackwell if arch >= 100 else knobs.nvidia.ptxas
    return str(tool.version)
