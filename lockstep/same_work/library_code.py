"""Know whether the name of a function that Triton did not load stands for its code."""

from __future__ import annotations

import sys
from pathlib import Path

#: Compilers of GPU code besides Triton: two of their functions may share a name and differ.
_COMPILERS = (
    *("cupy", "cutlass", "numba.cuda", "pycuda", "tilelang", "tvm", "warp"),
    *("cuda.core", "cuda.bindings.nvrtc", "cuda.tile"),
)


def names_stand_for_code(checkout: Path) -> bool:
    """Return whether this process can run no GPU code besides Triton's and that of installed libraries.

    Installed libraries are the same as long as the toolchain is. Code that a compiler other than Triton made in this
    process, and shared libraries of the packages under test, may change from commit to commit.

    Args:
        checkout: folder of the packages under test.
    """
    if any(name in sys.modules for name in _COMPILERS):
        return False
    loaded = {line.split(maxsplit=5)[-1].strip() for line in _maps() if ".so" in line}
    return not any(Path(path).is_relative_to(checkout) or "torch_extensions" in path for path in loaded)


def _maps() -> list[str]:
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
