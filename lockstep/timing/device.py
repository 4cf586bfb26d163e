"""The device that runs arms: CUDA (graphs, events, clock stamps) or a CPU (loops, wall clock).

Both offer the same few operations, so that most code above this module need not know which one it uses.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import torch

from lockstep.gpu.nvml import find_gpu
from lockstep.gpu.toolchain import keep_toolchain
from lockstep.record.model import Clocks

Call = Callable[[], Any]


class CaptureError(RuntimeError):
    """A variant cannot be captured in a CUDA graph. It is not timed another way, which would show 6–7× its time."""


@dataclass(frozen=True)
class Timing:
    """The time of one whole replay in seconds, and its SM clock in MHz (NaN if unknown)."""

    seconds: float
    sm_mhz: float = math.nan


class Replay(Protocol):
    """A fixed sequence of calls that can be run again."""

    def __call__(self) -> None:
        """Run the sequence once."""


class Device(Protocol):
    """The operations that measuring needs from a device."""

    @property
    def kind(self) -> str:
        """ "cuda" or "cpu"."""

    @property
    def torch_device(self) -> torch.device:
        """Return the torch device for tensors."""

    @property
    def cache_bytes(self) -> int:
        """Return the size of the last cache before memory: L2 of a GPU, the last level of a CPU."""

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of memory that argument sets may take."""

    def capture(self, calls: Sequence[Call], pool: Any) -> Replay:
        """Return a replay of ``calls``; ``pool`` (from ``new_pool``) owns what they allocate."""

    def new_pool(self) -> Any:
        """Return a memory pool that the replays of one epoch share."""

    def time(self, replays: Sequence[Replay]) -> list[Timing]:
        """Run the replays one after another and time each."""

    def synchronize(self) -> None:
        """Wait until everything has run."""

    def release(self) -> None:
        """Return cached memory to the driver."""

    def healthy(self) -> bool:
        """Return whether the device still works; a CUDA fault breaks the whole process."""

    def sample_clocks(self) -> Clocks:
        """Return temperature, power and clock-event reasons now."""


def open_device() -> Device:
    """Return the current CUDA device, or the CPU if there is none."""
    if not torch.cuda.is_available():
        return CpuDevice()
    keep_toolchain()
    return CudaDevice()


class CpuDevice:
    """A CPU behind the same interface: wall clock, one thread for each processor, or ``OMP_NUM_THREADS`` threads."""

    kind = "cpu"

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        torch.set_num_threads(min(torch.get_num_threads(), len(os.sched_getaffinity(0))))
        self.cache_bytes = _last_level_cache()
        self.memory_bytes = 2 << 30

    def new_pool(self) -> Any:
        """Return ``None``: CPU replays allocate as they run."""
        return None

    def capture(self, calls: Sequence[Call], pool: Any) -> Replay:
        """Return a loop over the calls."""
        sequence = tuple(calls)

        def replay() -> None:
            for call in sequence:
                call()

        return replay

    def time(self, replays: Sequence[Replay]) -> list[Timing]:
        """Return the wall-clock time of each replay."""
        timings = []
        for replay in replays:
            start = time.perf_counter()
            replay()
            timings.append(Timing(time.perf_counter() - start))
        return timings

    def synchronize(self) -> None:
        """Do nothing: a CPU replay is synchronous."""

    def release(self) -> None:
        """Do nothing: torch caches no CPU memory."""

    def healthy(self) -> bool:
        """Return True."""
        return True

    def sample_clocks(self) -> Clocks:
        """Return unknown clocks."""
        return Clocks()


class CudaDevice:
    """One NVIDIA GPU: CUDA graphs timed by events, with a clock stamp on either side of each replay."""

    kind = "cuda"

    def __init__(self) -> None:
        index = torch.cuda.current_device()
        self.torch_device = torch.device("cuda", index)
        properties = torch.cuda.get_device_properties(index)
        self.cache_bytes = int(properties.L2_cache_size)
        # A quarter: two epochs of sets may be alive at once, and the variants need memory too.
        self.memory_bytes = int(properties.total_memory) // 4
        self._gpu = find_gpu(str(properties.uuid))
        self._events: list[torch.cuda.Event] = []
        self._stamps: _Stamps | None = None

    def new_pool(self) -> Any:
        """Return a graph memory pool. Arms that share it overwrite the same outputs, as intended."""
        return torch.cuda.graph_pool_handle()

    def capture(self, calls: Sequence[Call], pool: Any) -> Replay:
        """Capture the calls in one CUDA graph.

        Raises:
            CaptureError: a call synchronises, allocates outside torch or is otherwise unfit.
            NotImplementedError: from the variant itself.
            torch.cuda.OutOfMemoryError: no room.
        """
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, pool=pool):
                for call in calls:
                    call()
        except (NotImplementedError, torch.cuda.OutOfMemoryError):
            raise
        except RuntimeError as error:
            # Ending the broken capture raises as well; the first error, that of the call, is the reason.
            first = error.__context__ or error
            raise CaptureError(f"cannot be captured in a CUDA graph: {_first_line(first)}") from error
        return _Graph(graph, tuple(calls))

    def time(self, replays: Sequence[Replay]) -> list[Timing]:
        """Enqueue all replays, then read the events: the CPU never waits in between."""
        if self._stamps is None:
            self._stamps = _Stamps(self.torch_device)
        count = len(replays)
        while len(self._events) < 2 * count:
            self._events.append(torch.cuda.Event(enable_timing=True))
        self._stamps.start(count + 1)
        self._stamps.take()
        for index, replay in enumerate(replays):
            self._events[2 * index].record()
            replay()
            self._events[2 * index + 1].record()
            self._stamps.take()
        torch.cuda.synchronize()
        clocks = self._stamps.read()
        return [
            Timing(self._events[2 * i].elapsed_time(self._events[2 * i + 1]) * 1e-3, clocks[i]) for i in range(count)
        ]

    def synchronize(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize()

    def release(self) -> None:
        """Return cached blocks to the driver."""
        torch.cuda.empty_cache()

    def healthy(self) -> bool:
        """Return whether a trivial operation still works."""
        try:
            torch.cuda.synchronize()
            return bool(torch.ones(1, device=self.torch_device).item() == 1.0)
        except RuntimeError:
            return False

    def sample_clocks(self) -> Clocks:
        """Return what NVML reports now; unknown clocks if it does not answer."""
        if self._gpu is None:
            return Clocks()
        now = self._gpu.sample()
        reasons = tuple(reason for reason in now.reasons or () if reason != "idle")
        return Clocks(temperature_c=now.temperature_c, power_w=now.power_w, reasons=reasons)


@dataclass(frozen=True)
class _Graph:
    """A captured graph with its calls: a graph holds addresses and does not keep tensors alive."""

    graph: torch.cuda.CUDAGraph
    calls: tuple[Call, ...]

    def __call__(self) -> None:
        self.graph.replay()


class _Stamps:
    """SM cycles and nanoseconds, written by a one-thread kernel between replays.

    Stamps lie outside the events, so they add nothing to the measured time. Two of them give the mean SM clock in
    between. A stamp that ran on another SM, which has another counter, is not used.
    """

    def __init__(self, device: torch.device) -> None:
        # Start-up: torch is slow to import.
        from lockstep.timing.clock_stamp import stamp

        self._kernel = stamp
        self._device = device
        self._buffer = torch.zeros(3, dtype=torch.int64, device=device)
        self._slot = 0

    def start(self, count: int) -> None:
        """Make room for ``count`` stamps."""
        if self._buffer.numel() < 3 * count:
            self._buffer = torch.zeros(3 * count, dtype=torch.int64, device=self._device)
        self._slot = 0

    def take(self) -> None:
        """Enqueue a stamp."""
        self._kernel[(1,)](self._buffer, self._slot, num_warps=1)
        self._slot += 1

    def read(self) -> list[float]:
        """Return MHz between successive stamps; NaN where they came from different SMs."""
        rows = self._buffer[: 3 * self._slot].view(-1, 3).tolist()
        return [
            (after[0] - before[0]) / (after[1] - before[1]) * 1e3
            if after[2] == before[2] and after[1] > before[1]
            else math.nan
            for before, after in pairwise(rows)
        ]


def _last_level_cache() -> int:
    """Return the bytes of the last cache level, from sysfs; 32 MiB if sysfs does not have it."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG")) * factor)
    return max(sizes, default=32 << 20)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
