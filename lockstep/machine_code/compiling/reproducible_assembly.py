"""Assemble a kernel reproducibly: equal kernels give equal machine code, whatever their source lines and folder.

CUDA 13's assembler, which Triton uses for ``sm_100`` and newer, assigns some registers depending on addresses in its
own memory: 20 runs on the same PTX gave two register assignments, 13 times one and 7 times the other. With address
randomisation off, all 20 runs agree. The length of the source path still moves allocations, so line information and
paths are left out as well.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

#: First architecture for which the assembler's output varies. Of 60 kernels for sm_90, each assembled five times, none
#: did.
VARIES_FROM = 100

#: Flag of ``personality(2)``: programs that this process starts later get no randomised addresses.
ADDR_NO_RANDOMIZE = 0x0040000

_LINES = re.compile(
    r"^\s*(?:\.loc|\.file)\b.*\n"
    r"|^\$L__(?:tmp|func_begin|func_end|pc)\d*:\s*\n"
    r"|[ \t]*//.*$",
    re.MULTILINE,
)


def fix_addresses() -> None:
    """Turn off address randomisation for the programs that this process starts, where the system allows that."""
    personality = getattr(ctypes.CDLL(None, use_errno=True), "personality", None)
    if personality is not None:
        now = personality(0xFFFFFFFF)
        if now >= 0:
            personality(now | ADDR_NO_RANDOMIZE)


def assemble(ptx: str, backend: Any, options: Any, arch: int) -> bytes:
    """Return the cubin of a kernel's PTX, assembled without line information and paths.

    Args:
        arch: the architecture; 100 for sm_100.
    """
    cubin: bytes = backend.make_cubin(without_lines(ptx), {}, options, arch)
    return cubin


def without_lines(ptx: str) -> str:
    """Return PTX without line numbers, comments and debug information; it does not depend on the source's folder."""
    code, _, _ = ptx.partition("\t.section\t.debug_")
    return _LINES.sub("", code)
