"""State the work of a case's variants in one version of the code, as digests that a later process can compare."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lockstep.same_work.library_code import names_stand_for_code
from lockstep.same_work.observe import refusal_digest, work_of
from lockstep.same_work.read_graph import TritonCode
from lockstep.same_work.values import values_digest
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import skip_reason
from lockstep.suite.variants import Family
from lockstep.timing.arms.argument_rotation import draw_sets
from lockstep.timing.arms.shared_buffers import Buffers, Contender
from lockstep.timing.device import Device
from lockstep.timing.rules.changed_shared_code import Trusted
from lockstep.timing.rules.rule import Disqualified

#: Draws of the inputs on which each variant is captured.
_DRAWS = 2


def works(
    suite: Suite,
    case: Case,
    variants: Sequence[str],
    family: Family,
    device: Device,
    trusted: Trusted,
    checkout: Path,
    begin: Callable[[str], None],
) -> Mapping[str, str]:
    """Return the digest of each variant's work; "" where it is unknown, to time it. May raise ``DeviceLost``."""
    found = {name: _absence(suite, case, name, family) for name in variants}
    found = {name: refusal_digest(reason) if reason else "" for name, reason in found.items()}
    rest = [name for name in variants if not found[name]]
    if not rest or device.kind != "cuda":
        return found
    codes = TritonCode.listening()
    # The same values in every process: contents of buffers count.
    seeds = [zlib.crc32(f"{suite.name} {case.label} {number}".encode()) for number in range(_DRAWS)]
    try:
        draws = [Buffers(draw_sets(suite, case, device, 1, seed), seed, suite.inout) for seed in seeds]
    except torch.cuda.OutOfMemoryError:
        device.release()
        return found

    prepared: dict[Any, str] = {}  # by the function that prepares, which variants may share

    def one(name: str) -> str:
        contender = Contender(name, name, family)
        if not (work := work_of(contender, draws, device, codes, begin)):
            return ""
        # The graph has only addresses of what was prepared: other contents may be other work, or wrong.
        if contender.prepare not in prepared:
            try:
                prepared[contender.prepare] = values_digest(draws[0].prepared(contender))
            except torch.cuda.OutOfMemoryError:
                device.release()
                return ""
        values = prepared[contender.prepare]
        return hashlib.sha256(f"{work} {values}".encode()).hexdigest()[:16] if values else ""

    try:
        digests = trusted.guarded(lambda: {name: one(name) for name in rest})
    except Disqualified:
        return found
    # Asked last: a call may load what makes names ambiguous.
    return found | (digests if names_stand_for_code(checkout) else {})


def _absence(suite: Suite, case: Case, name: str, family: Family) -> str:
    """Return why a variant is not measured at a case; "" if it is."""
    if name not in family.variants:
        return "the variant is not in this commit"
    return skip_reason(suite, name, case)
