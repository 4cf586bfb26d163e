"""Draw the argument sets that a case rotates through, each tensor at a random position.

A cold series rotates through enough sets that no call finds its data in the L2. A warm series repeats one set.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import buffers_of, inputs_of
from lockstep.suite.inputs import Draw, map_tensors
from lockstep.timing.checks.output_memory import copy_of, span
from lockstep.timing.checks.refill_arguments import write
from lockstep.timing.device import Device

#: The argument sets of a cold series have this many times the bytes of the cache, because a cache need not replace the
#: data that were used least recently.
CACHE_FACTOR = 2

#: Maximum number of sets. A case that would need more for a cold series is so small that it has only a warm series.
MOST_SETS = 1024

#: A tensor starts at a random multiple of ``ALIGNMENT`` (as torch aligns) within ``SLACK`` bytes of its buffer.
ALIGNMENT = 512
SLACK = 2 << 20


@dataclass(frozen=True)
class ArgumentSet:
    """The arguments of one call: the suite's inputs and output buffers, each tensor at a random address."""

    inputs: dict[str, Any]
    out: Any


def size_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return the total bytes of the tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


#: Number of sets that a cold series uses even if the cache requires fewer, so that a replay averages over more
#: placements; fewer if they exceed these bytes or a rotation these seconds. With 8 sets the ratio of two linears moved
#: by 0.4 % between epochs. For w4a16's 8192² ratios moved between processes by 0.29 % with 12 sets, by 0.15 % with 48.
PLACEMENTS = 48
PLACEMENT_BYTES = 8 << 30
ROTATION_S = 2e-3


def set_count(
    smallest: int, set_bytes: int, floor_s: float, device: Device, l2: str, most_bytes: int = PLACEMENT_BYTES
) -> int:
    """Return the number of argument sets that a case rotates through.

    A warm series has one set. A cold series has at least two, and enough to fill the cache ``CACHE_FACTOR`` times; a
    case so small that even ``MOST_SETS`` would stay in the cache raises ``NotImplementedError``.

    Args:
        smallest: bytes that one call of the arm with the least data touches.
        set_bytes: bytes of one set with the arguments of all arms.
        floor_s: lower bound of the seconds per call; 0 if unknown. If it is known, sets are added up to ``PLACEMENTS``,
            while a rotation through all sets takes at most ``ROTATION_S`` seconds.
        most_bytes: bytes up to which sets are added for the sake of placements.
    """
    if l2 == "warm":
        return 1
    count = max(2, math.ceil(CACHE_FACTOR * device.cache_bytes / max(smallest, 1)))
    if count > MOST_SETS:
        raise NotImplementedError(
            f"the case is too small for a cold series: with {smallest} bytes a call, {count} argument sets would be "
            f"needed to exceed a cache of {device.cache_bytes / 1e6:.0f} MB"
        )
    placement_bytes = min(most_bytes, device.memory_bytes)
    placements = min(PLACEMENTS, placement_bytes // max(set_bytes, 1), int(ROTATION_S / floor_s)) if floor_s else 0
    return max(count, placements)


def draw_sets(
    suite: Suite, case: Case, device: Device, count: int, seed: int, used: Container[str] | None = None
) -> list[ArgumentSet]:
    """Draw one set of values, and copy it ``count`` times, each tensor to a random address: placement biases times.

    ``used`` names the inputs to copy, by default all: the sets share the others, from which variants prepare offline.

    All sets hold the same values: different addresses are enough for each call to find the cache cold, and drawing and
    packing separate values for each set took as long as the timing itself (w4a16).
    """
    new = Draw(device.torch_device, seed)
    chance = random.Random(seed)
    inputs, out = inputs_of(suite, case, new), buffers_of(suite, case, new)
    shared = {name: value for name, value in inputs.items() if used is not None and name not in used}
    copied = {name: value for name, value in inputs.items() if name not in shared}
    return [ArgumentSet({**shared, **place(copied, chance)}, place(out, chance)) for _ in range(count)]


def place(value: Any, chance: random.Random) -> Any:
    """Copy each tensor to a random offset in a buffer of its own, and return the copies in the same structure."""

    def elsewhere(tensor: torch.Tensor) -> torch.Tensor:
        flat = span(tensor)  # includes gaps and overlaps of the tensor's strides
        size = tensor.element_size()
        slack = min(SLACK, max(ALIGNMENT, flat.numel() * size))
        offset = chance.randrange(slack // ALIGNMENT + 1) * ALIGNMENT // size
        buffer = torch.empty(flat.numel() + slack // size + 1, dtype=tensor.dtype, device=tensor.device)
        buffer[offset : offset + flat.numel()].copy_(flat)
        return buffer.as_strided(tensor.shape, tensor.stride(), offset)

    return map_tensors(value, elsewhere)


def restorer(sets: Sequence[ArgumentSet], inout: Sequence[str]) -> Callable[[], None] | None:
    """Return a function that undoes what later calls write into the inputs ``inout``; ``None`` if there are none."""
    if not inout:
        return None
    changing = [{name: argument_set.inputs[name] for name in inout} for argument_set in sets]
    saved = map_tensors(changing[0], copy_of)

    def restore() -> None:
        for values in changing:
            write(values, saved, set())

    return restore
