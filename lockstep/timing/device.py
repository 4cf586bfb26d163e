"""Run and time arms on a device: a CUDA GPU (graphs, events, clock stamps) or a CPU (loops, wall clock).

Both kinds of device offer the same operations, so most callers need not distinguish them.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from lockstep.gpu.nvml import find_gpu
from lockstep.gpu.triton_assembler import keep_toolchain
from lockstep.gpu.triton_cache_keys import settle_cache_keys
from lockstep.record.model import Clocks
from lockstep.timing.clocks.clock_agreement import disagreement, host_disagreement, late_work
from lockstep.timing.clocks.cuda_clock import CudaClock, Stamps
from lockstep.timing.graph_capture import capture_graph
from lockstep.timing.rules.rule import Disqualified, Rule

Call = Callable[[], Any]

#: A fixed sequence of calls that can be run again.
Replay = Callable[[], None]

#: The host's clock must contradict this many runs in a row, because the host may have been paused during one of them.
_HOST_TRIES = 3


class DeviceLost(RuntimeError):
    """This process cannot measure any more: the CUDA context is broken, for example by an illegal access.

    The error is also raised if a function that timing relies on was replaced while several variants were timed. In that
    case ``rule`` names the broken rule, and ``variant`` is "" because nobody knows which variant replaced it.
    """

    def __init__(self, variant: str, reason: str, rule: str = "") -> None:
        super().__init__(f"{variant}: {reason}")
        self.variant = variant
        self.reason = reason
        self.rule = rule


class Mistimed(Disqualified):
    """CUDA's events and the GPU's timer disagree on the time of ``replay``, but agree on all replays timed with it."""

    def __init__(self, replay: Replay, evidence: str) -> None:
        super().__init__(Rule.CHANGED_CLOCK, evidence)
        self.replay = replay


@dataclass(frozen=True)
class Timing:
    """The time of one whole replay in seconds, and the mean SM clock during the replay in MHz (NaN if unknown)."""

    seconds: float
    sm_mhz: float = math.nan


def open_device() -> Device:
    """Return the current CUDA device, or the CPU if there is none."""
    if not torch.cuda.is_available():
        return CpuDevice()
    keep_toolchain()
    settle_cache_keys()
    return CudaDevice()


class CpuDevice:
    """A CPU, timed by wall clock, with one thread or ``OMP_NUM_THREADS`` threads.

    More threads wait for each other on a busy machine: 0.4 ms became 19 ms.

    Attributes:
        cache_bytes: size of the last level of cache.
        memory_bytes: how many bytes of memory the argument sets of one epoch may take.
    """

    kind = "cpu"

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        if not os.environ.get("OMP_NUM_THREADS"):
            torch.set_num_threads(1)
        self.cache_bytes = _last_level_cache()
        self.memory_bytes = 2 << 30

    def new_pool(self) -> Any:
        """Return ``None``: CPU replays allocate as they run."""
        return None

    def capture(self, calls: Sequence[Call], pool: Any) -> Replay:
        """Return a function that makes the calls one after another."""
        sequence = tuple(calls)

        def replay() -> None:
            for call in sequence:
                call()

        return replay

    def time(self, replays: Sequence[Replay]) -> list[Timing]:
        """Return the wall-clock time of each replay."""
        timings = []
        for replay in replays:
            start = perf_counter()
            replay()
            timings.append(Timing(perf_counter() - start))
        return timings

    def synchronize(self) -> None:
        """Do nothing: a CPU replay is synchronous."""

    def release(self) -> None:
        """Do nothing: torch caches no CPU memory."""

    def healthy(self) -> bool:
        """Return True: no fault leaves a CPU unusable while the process lives."""
        return True

    def sample_clocks(self) -> Clocks:
        """Return ``Clocks`` with every field unknown, because a CPU's clocks are not read."""
        return Clocks()


class CudaDevice:
    """One NVIDIA GPU: CUDA graphs timed by events, with clock stamps. ``cache_bytes`` is the size of the L2."""

    kind = "cuda"

    def __init__(self) -> None:
        self._clock = CudaClock()
        index = torch.cuda.current_device()
        self.torch_device = torch.device("cuda", index)
        properties = torch.cuda.get_device_properties(index)
        self.cache_bytes = int(properties.L2_cache_size)
        # A quarter of the memory: the sets of two epochs may be alive at once, and the variants need memory too.
        self.memory_bytes = int(properties.total_memory) // 4
        self._gpu = find_gpu(str(properties.uuid))
        self._events: list[Any] = []
        self._stamps: Stamps | None = None

    def new_pool(self) -> Any:
        """Return a pool for the memory that calls allocate; all replays of one epoch are captured with one pool.

        Arms that share a pool overwrite each other's outputs, as intended.
        """
        return torch.cuda.graph_pool_handle()

    def capture(self, calls: Sequence[Call], pool: Any) -> Replay:
        """Capture the calls in one CUDA graph. Raises the same errors as ``capture_graph``."""
        self._clock.synchronize()
        graph = capture_graph(calls, pool)
        return _Graph(functools.partial(self._clock.replay, graph), tuple(calls))

    def time(self, replays: Sequence[Replay]) -> list[Timing]:
        """Run the replays one after another and time each with events. The host enqueues all before it waits.

        Raise ``Mistimed`` if CUDA's events and the GPU's timer disagree about one of the replays, in every attempt.
        Raise ``Disqualified`` if the host's clock contradicts the total time of the replays, or the device is still
        working after the last replay.
        """
        if self._stamps is None:
            self._stamps = Stamps(self.torch_device)
        count = len(replays)
        clock, events = self._clock, self._events
        while len(events) < 2 * count:
            events.append(clock.new_event())
        stream = clock.stream()
        for _ in range(_HOST_TRIES):
            self._stamps.start(count + 1)
            started = perf_counter()
            self._stamps.take()
            for index, replay in enumerate(replays):
                clock.record(events[2 * index], stream)
                replay()
                clock.record(events[2 * index + 1], stream)
                self._stamps.take()
            clock.wait_for(stream)
            waited = perf_counter()
            clock.synchronize()
            ended = perf_counter()
            intervals = self._stamps.read()
            if evidence := host_disagreement(sum(interval.seconds for interval in intervals), ended - started):
                error = Disqualified(Rule.CHANGED_CLOCK, evidence)
            elif evidence := late_work(ended - waited):
                error = Disqualified(Rule.UNJOINED_WORK, evidence)
            else:
                break
        else:
            raise error
        seconds = [clock.elapsed_ms(events[2 * i], events[2 * i + 1]) * 1e-3 for i in range(count)]
        _require_agreement(replays, seconds, [interval.seconds for interval in intervals])
        return [Timing(elapsed_s, interval.sm_mhz) for elapsed_s, interval in zip(seconds, intervals, strict=True)]

    def synchronize(self) -> None:
        """Wait for the GPU."""
        self._clock.synchronize()

    def release(self) -> None:
        """Give the memory in torch's cache back to the driver."""
        torch.cuda.empty_cache()

    def healthy(self) -> bool:
        """Return whether this process can still capture and run a graph.

        The capture also resets torch's random generator: a failed capture leaves the generator in its capturing state,
        and a capture that ends without error resets it (torch 2.11, ``CUDAGeneratorState::capture_prologue``).
        """
        try:
            self._clock.synchronize()
            number = torch.zeros(1, device=self.torch_device)
            self.capture([lambda: number.fill_(1.0)], self.new_pool())()
            return bool(number.item() == 1.0)
        except (RuntimeError, Disqualified):
            return False

    def sample_clocks(self) -> Clocks:
        """Return the clocks, temperature and power that NVML reports now; all unknown if NVML does not answer."""
        if self._gpu is None:
            return Clocks()
        now = self._gpu.sample()
        reasons = tuple(reason for reason in now.reasons or () if reason != "idle")
        return Clocks(temperature_c=now.temperature_c, power_w=now.power_w, reasons=reasons)


#: A device that measures.
Device = CpuDevice | CudaDevice


@dataclass(frozen=True)
class _Graph:
    """A replay: a captured CUDA graph. ``calls`` are held because they keep the graph's tensors in memory."""

    launch: Callable[[], None]
    calls: tuple[Call, ...]

    def __call__(self) -> None:
        self.launch()


def _require_agreement(replays: Sequence[Replay], events_s: Sequence[float], stamps_s: Sequence[float]) -> None:
    """Raise ``Mistimed`` if the events of a replay disagree with the stamps around it."""
    for replay in {id(replay): replay for replay in replays}.values():
        positions = [index for index, other in enumerate(replays) if other is replay]
        if evidence := disagreement([events_s[i] for i in positions], [stamps_s[i] for i in positions]):
            raise Mistimed(replay, evidence)


def _last_level_cache() -> int:
    """Return the size in bytes of the CPU's last cache level; 32 MiB if sysfs does not report it."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG")) * factor)
    return max(sizes, default=32 << 20)
