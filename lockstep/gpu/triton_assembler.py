"""Pin Triton's assembler and cache folder, so that ``torch.compile`` cannot change them in the middle of a measurement.

The first compilation by ``torch.compile`` lets Inductor set environment variables of the whole process
(``torch/_inductor/runtime/compile_tasks.py`` and ``triton_heuristics.py``). The variables direct Triton to the
assembler in torch's own wheel and to Inductor's cache folder. Triton kernels that are compiled afterwards then have
different machine code from kernels that were compiled before. With torch 2.11 and Triton 3.6, CUDA 13.0's assembler
replaced 12.8's, and one kernel used 143 registers instead of 130. So a measurement depended on which variants had run
before it.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

#: Environment variable that selects Triton's assembler. Inductor does not change a variable that is set.
ASSEMBLER = "TRITON_PTXAS_PATH"


def keep_toolchain() -> None:
    """Pin Triton's current assembler and cache folder for this process and its child processes.

    ``torch.compile`` then uses the same ones. Environment variables that the user has set are not changed.
    """
    assembler = own_assembler()
    if assembler is None:
        return
    from triton import knobs

    os.environ.setdefault(ASSEMBLER, str(assembler))
    os.environ.setdefault("TRITON_CACHE_DIR", knobs.cache.dir)


def own_assembler() -> Path | None:
    """Return the ``ptxas`` in Triton's wheel; None without Triton, or if its wheel has no ``ptxas``."""
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "backends" / "nvidia" / "bin" / "ptxas"
    return path if path.is_file() else None


def assembler_version(arch: int) -> str:
    """Return the version of the assembler that Triton uses for ``sm_<arch>``, such as "12.8"; "" if unknown."""
    try:
        from triton import knobs
    except ImportError:
        return ""
    tool = knobs.nvidia.ptxas_blackwell if arch >= 100 else knobs.nvidia.ptxas
    return str(tool.version)
