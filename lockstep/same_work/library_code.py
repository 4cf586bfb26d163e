"""Know which code a function of a library, which Triton did not load, can have."""

from __future__ import annotations

import functools
import mmap
import os
import site
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

#: Compilers of GPU code besides Triton: two of their functions may share a name and differ.
_COMPILERS = (
    *("cupy", "cutlass", "deep_gemm", "numba.cuda", "pycuda", "tilelang", "tvm", "warp"),
    *("cuda.core", "cuda.bindings.nvrtc", "cuda.tile"),
)

#: The section of a shared library that holds GPU code.
_GPU_CODE = ".nv_fatbin"

#: Folders of the system's libraries, among them the driver's and CUDA's.
_SYSTEM = ("/usr", "/lib", "/lib64")

#: Variables with folders of installed libraries.
_FOLDERS = ("LD_LIBRARY_PATH", "CUDA_HOME", "CONDA_PREFIX")


def names_stand_for_code(checkout: Path) -> bool:
    """Return whether this process can run no GPU code besides Triton's and that of installed libraries.

    Installed libraries are the same as long as the toolchain is. Code that a compiler other than Triton made in this
    process may change from commit to commit, and so may shared libraries of the packages under test and libraries with
    GPU code that were built elsewhere, such as extensions in a cache.
    """
    if any(name in sys.modules for name in _COMPILERS):
        return False
    installed = _installed()
    return not any(
        path.is_relative_to(checkout) or (not any(map(path.is_relative_to, installed)) and _has_gpu_code(path))
        for path in _loaded()
    )


def only_torch_has(functions: frozenset[str]) -> bool:
    """Return whether no library but torch's and NVIDIA's has GPU functions of these mangled names.

    An extension that calls ``gpu_kernel`` of torch's headers may have a function with the name of one of torch's. A
    library lists the names of its GPU functions as text.
    """
    others = filter(_is_extension, _loaded())
    return not any(_has(path, name) for path in others for name in functions)


@functools.cache
def _is_extension(path: Path) -> bool:
    """Return whether a library other than torch's and NVIDIA's holds GPU code."""
    torchs = Path(torch.__file__).resolve().parent
    known = (torchs, torchs.with_name("nvidia"), *_SYSTEM)
    return not any(path.is_relative_to(folder) for folder in known) and _has_gpu_code(path)


def _loaded() -> list[Path]:
    """Return the shared libraries of this process.

    Processes that start together each build Triton's launcher, and the last one's file takes the place of the others'.
    A library whose file was replaced is judged by the file that is there now.
    """
    names = {line.split(maxsplit=5)[-1].strip() for line in memory_maps() if ".so" in line}
    return [Path(name.removesuffix(" (deleted)")) for name in names]


def _installed() -> list[Path]:
    """Return the folders of installed libraries."""
    folders = {*_SYSTEM, "/opt", sys.prefix, sys.base_prefix}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    if (torch := find_spec("torch")) and torch.origin:
        folders.add(str(Path(torch.origin).parents[1]))
    for name in _FOLDERS:
        folders |= {folder for folder in os.environ.get(name, "").split(os.pathsep) if folder}
    return [Path(folder).resolve() for folder in folders]


def _has_gpu_code(path: Path) -> bool:
    """Return whether a library holds GPU code, or cannot be read any more."""
    return _has(path, _GPU_CODE)


@functools.cache
def _has(path: Path, text: str) -> bool:
    """Return whether a library contains a text, or cannot be read any more."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as found:
            return found.find(text.encode()) >= 0
    except (OSError, ValueError):
        return True


def memory_maps() -> list[str]:
    """Return the lines of /proc/self/maps; nothing on systems without it."""
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
