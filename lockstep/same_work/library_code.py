"""Know whether the name of a function that Triton did not load stands for its code."""

from __future__ import annotations

import os
import site
import sys
from importlib.util import find_spec
from pathlib import Path

#: Compilers of GPU code besides Triton: two of their functions may share a name and differ.
_COMPILERS = (
    *("cupy", "cutlass", "deep_gemm", "numba.cuda", "pycuda", "tilelang", "tvm", "warp"),
    *("cuda.core", "cuda.bindings.nvrtc", "cuda.tile"),
)

#: The section of a shared library that holds GPU code.
_GPU_CODE = b".nv_fatbin"

#: Variables with folders of installed libraries.
_FOLDERS = ("LD_LIBRARY_PATH", "CUDA_HOME", "CONDA_PREFIX")


def names_stand_for_code(checkout: Path) -> bool:
    """Return whether this process can run no GPU code besides Triton's and that of installed libraries.

    Installed libraries are the same as long as the toolchain is. Code that a compiler other than Triton made in this
    process may change from commit to commit, and so may shared libraries of the packages under test and libraries with
    GPU code that were built elsewhere, such as extensions in a cache.

    Args:
        checkout: folder of the packages under test.
    """
    if any(name in sys.modules for name in _COMPILERS):
        return False
    loaded = {Path(line.split(maxsplit=5)[-1].strip()) for line in memory_maps() if ".so" in line}
    installed = _installed()
    return not any(
        path.is_relative_to(checkout) or (not any(map(path.is_relative_to, installed)) and _has_gpu_code(path))
        for path in loaded
    )


def _installed() -> list[Path]:
    """Return the folders of installed libraries."""
    folders = {"/usr", "/lib", "/lib64", "/opt", sys.prefix, sys.base_prefix}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    if (torch := find_spec("torch")) and torch.origin:
        folders.add(str(Path(torch.origin).parents[1]))
    for name in _FOLDERS:
        folders |= {folder for folder in os.environ.get(name, "").split(os.pathsep) if folder}
    return [Path(folder).resolve() for folder in folders]


def _has_gpu_code(path: Path) -> bool:
    """Return whether a library holds GPU code, or cannot be read any more."""
    try:
        return _GPU_CODE in path.read_bytes()
    except OSError:
        return True


def memory_maps() -> list[str]:
    """Return the lines of /proc/self/maps; nothing on systems without it."""
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
