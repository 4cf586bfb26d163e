"""A one-thread kernel that records SM cycles, nanoseconds and the number of the SM on which it ran.

``%clock64`` counts one SM's cycles and ``%globaltimer`` the GPU's nanoseconds (PTX ISA, special registers). Two stamps
on one SM give the mean clock of the SM between them.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["slot"])
def stamp(buffer, slot):  # type: ignore[no-untyped-def]
    """Write SM cycles, GPU nanoseconds and the SM's number to ``buffer[3 * slot : 3 * slot + 3]``, int64."""
    at = buffer + slot * 3
    zero = tl.program_id(0)
    cycles = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l,r", [zero], dtype=tl.int64, is_pure=False, pack=1)
    nanoseconds = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,r", [zero], dtype=tl.int64, is_pure=False, pack=1
    )
    sm = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r,r", [zero], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(at, cycles)
    tl.store(at + 1, nanoseconds)
    tl.store(at + 2, sm.to(tl.int64))
