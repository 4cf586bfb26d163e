"""Say what a difference of a kernel's figures usually means."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: What more and what less of a figure usually mean.
_MEANINGS: Mapping[str, tuple[str, str]] = {
    "registers": (
        "fewer warps may fit on a multiprocessor, so it hides less latency",
        "more warps may fit on a multiprocessor; a value may be computed again or spilled instead",
    ),
    "spills": (
        "registers no longer suffice: values go through local memory, which costs loads and stores",
        "fewer values go through local memory",
    ),
    "stages": (
        "loads run further ahead of the arithmetic, in more shared memory; fewer blocks may fit",
        "loads run less far ahead of the arithmetic",
    ),
    "warps": (
        "a block has more warps: less work and fewer registers for each",
        "a block has fewer warps: more work and more registers for each",
    ),
    "shared": (
        "a larger tile or one more pipeline stage; fewer blocks may fit on a multiprocessor",
        "a smaller tile or one pipeline stage less; loads overlap less with arithmetic",
    ),
    "instructions": (
        "longer code: more unrolling, another path, or more address arithmetic",
        "shorter code: less unrolling, or work that moved elsewhere",
    ),
}

#: What a class of instructions (``lockstep.machine_code.compiling.cubin.CLASSES``) does, and why its number changes.
_CLASSES: Mapping[str, str] = {
    "HGMMA": "matrix products of warp groups: another tile or unrolling",
    "HMMA": "matrix products: another tile or unrolling",
    "UTCMMA": "matrix products in tensor memory: another tile or unrolling",
    "TMA": "copies by the tensor memory accelerator: another tile or number of stages",
    "LDGSTS": "asynchronous copies to shared memory: another tile or number of stages",
    "LDL": "loads of spilled registers",
    "STL": "stores of spilled registers",
    "BAR": "barriers and waits: warps wait for each other at other places",
    "LDG": "loads from global memory: other widths of vectors, or other loads",
    "STG": "stores to global memory and atomics: other widths of vectors, or another split of the work",
    "LDS": "loads from shared memory: another layout or tile",
    "STS": "stores to shared memory: another layout or tile",
}


def meaning(figure: str, before: str, after: str) -> str:
    """Return what a difference usually means: "the same" if there is none, "" if the figure is not known.

    Args:
        figure: "registers", "spills", "stages", "warps", "shared", "instructions", or a class of instructions.
        before, after: numbers, perhaps with a unit.
    """
    if before == after:
        return "the same"
    numbers = [re.match(r"\d{1,12}\b", text) for text in (before, after)]
    if figure in _MEANINGS and all(numbers):
        old, new = (int(number[0]) for number in numbers if number)
        if figure == "instructions" and abs(new - old) < 0.01 * old:
            return "nearly as long: a few instructions differ"
        return _MEANINGS[figure][new < old]
    return _CLASSES.get(figure, "")
