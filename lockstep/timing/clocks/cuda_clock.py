"""Read the clocks of a CUDA device: events, and stamps of the GPU's own counters between replays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch


class CudaClock:
    """References to torch's compiled functions for timing and waiting, saved before any variant is imported.

    A variant could replace the methods of the Python classes that wrap these functions (``torch.cuda.Event``), so the
    harness does not use those classes.
    """

    def __init__(self) -> None:
        native: Any = torch._C
        self.new_event: Callable[[], Any] = functools.partial(native._CudaEventBase, enable_timing=True)
        self.record: Callable[[Any, Any], None] = native._CudaEventBase.record
        self.elapsed_ms: Callable[[Any, Any], float] = native._CudaEventBase.elapsed_time
        self.synchronize: Callable[[], None] = native._cuda_synchronize
        self.wait_for: Callable[[Any], None] = native._CudaStreamBase.synchronize
        self.replay: Callable[[Any], None] = native._CUDAGraph.replay
        self.stream: Callable[[], Any] = torch.cuda.current_stream


@dataclass(frozen=True)
class Interval:
    """Seconds between two stamps of the GPU's counters, and the mean SM clock in MHz (NaN if on different SMs)."""

    seconds: float
    sm_mhz: float


class Stamps:
    """Record stamps between replays: a one-thread kernel writes the SM's cycle counter and the GPU's nanoseconds.

    Stamps lie outside the events that time a replay, so they add nothing to the measured time. Two stamps give the
    mean SM clock between them. Each SM has its own counter, so two stamps on different SMs give no clock.
    """

    def __init__(self, device: torch.device) -> None:
        # Imported here: torch is slow to import.
        from lockstep.timing.clocks.stamp_kernel import stamp

        self._kernel = stamp
        self._device = device
        self._buffer = torch.zeros(3, dtype=torch.int64, device=device)
        self._slot = 0

    def start(self, count: int) -> None:
        """Forget earlier stamps of the GPU's counters, and allocate space for ``count`` stamps."""
        if self._buffer.numel() < 3 * count:
            self._buffer = torch.zeros(3 * count, dtype=torch.int64, device=self._device)
        self._slot = 0

    def take(self) -> None:
        """Enqueue a stamp, a kernel that records the GPU's counters, on the current stream."""
        self._kernel[(1,)](self._buffer, self._slot, num_warps=1)
        self._slot += 1

    def read(self) -> list[Interval]:
        """Wait for the GPU, and return the interval between each two consecutive stamps since ``start``."""
        rows = self._buffer[: 3 * self._slot].view(-1, 3).tolist()
        return [
            Interval(
                (after[1] - before[1]) * 1e-9,
                (after[0] - before[0]) / (after[1] - before[1]) * 1e3
                if after[2] == before[2] and after[1] > before[1]
                else math.nan,
            )
            for before, after in pairwise(rows)
        ]
