"""Assembling a kernel so that the same kernel gives the same machine code, whatever its lines and its folder.

The assembler of CUDA 13, which Triton takes from ``sm_100`` on, orders some registers by where things lie in its
memory: of 20 runs on one PTX text 13 gave one naming and 7 another. With addresses that are not randomised all 20
agree; a path of another length still moves things, so lines and paths are left out as well.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

#: From here on the assembler's output varies. Of 60 kernels for sm_90, each assembled five times, none did.
VARIES_FROM = 100

#: ``personality(2)``: no randomised addresses in the programs that are started from here on.
ADDR_NO_RANDOMIZE = 0x0040000

_LINES = re.compile(
    r"^\s*(?:\.loc|\.file)\b.*\n"
    r"|^\$L__(?:tmp|func_begin|func_end|pc)\d*:\s*\n"
    r"|[ \t]*//.*$",
    re.MULTILINE,
)


def fix_addresses() -> None:
    """Programs started by this process lie at the same addresses every time, where the system allows to ask for it."""
    personality = getattr(ctypes.CDLL(None, use_errno=True), "personality", None)
    if personality is not None:
        now = personality(0xFFFFFFFF)
        if now >= 0:
            personality(now | ADDR_NO_RANDOMIZE)


def assemble(ptx: str, backend: Any, options: Any, arch: int) -> bytes:
    """The cubin of a kernel's PTX, lines and paths left out.

    Args:
        ptx: from Triton.
        backend: Triton's for the target.
        options: the kernel's.
        arch: 100 for sm_100.
    """
    cubin: bytes = backend.make_cubin(without_lines(ptx), {}, options, arch)
    return cubin


def without_lines(ptx: str) -> str:
    """PTX without line numbers, comments and what a debugger wants; the same for two folders."""
    code, _, _ = ptx.partition("\t.section\t.debug_")
    return _LINES.sub("", code)
