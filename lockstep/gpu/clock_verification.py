"""Verify the clock state of a GPU by sampling its clock while the GPU works.

NVML answers success when it takes a lock, not when the clock obeys: power, heat and the driver's own arbitration may
still lower the clock (NVIDIA/open-gpu-kernel-modules issue 1314). An idle GPU reads a low clock even when it is locked.
So a lock counts only after sampled clocks have confirmed it under load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lockstep.gpu.nvml import THROTTLING, ClockSample, Gpu, Target

#: Function that keeps the GPU busy for at least some milliseconds and returns when the GPU is done. A second thread
#: calls it repeatedly while the clock is sampled.
Load = Callable[[], None]

#: NVIDIA's SM clocks come in steps of 15 MHz; a lock may settle one step from the requested clock.
TOLERANCE_MHZ = 15

#: Seconds of load before sampling, and seconds of sampling. Clocks drop only after some milliseconds of load.
SETTLE_S = 0.5
HOLD_S = 1.0

_MIN_SAMPLES = 3


@dataclass(frozen=True)
class ClockState:
    """The clocks that a GPU is locked to. Results with different ``slug`` are never compared.

    Attributes:
        target: MHz of the SM clock, "base", or ``None`` if the clocks are not locked.
        reason: why a requested lock is not in effect, or "".
        detail: the evidence, or what to do.
    """

    target: Target | None = None
    reason: str = ""
    detail: str = field(default="", compare=False)

    @property
    def locked(self) -> bool:
        """Return whether the clocks are locked."""
        return self.target is not None

    @property
    def label(self) -> str:
        """Return the clock state for people: ``locked@1500``, ``base`` or ``unlocked(no permission)``."""
        if self.target is None:
            return f"unlocked({self.reason})" if self.reason else "unlocked"
        return "base" if self.target == "base" else f"locked@{self.target}"

    @property
    def slug(self) -> str:
        """Return the clock state for names of machines and files: ``locked-1500``, ``base``, ``unlocked``."""
        return "unlocked" if self.target is None else self.label.replace("@", "-")


def torch_load(gpu: Gpu) -> Load | None:
    """Return a function that keeps the GPU busy with matrix products (bf16 4096³, random data).

    ``None`` if torch is not installed or its CUDA does not see this GPU.
    """
    try:
        import torch
    except ImportError:
        return None
    for index in range(torch.cuda.device_count()):
        if str(torch.cuda.get_device_properties(index).uuid) == gpu.uuid.removeprefix("GPU-"):
            break
    else:
        return None
    device = torch.device("cuda", index)
    left, right = torch.randn(2, 4096, 4096, device=device).to(torch.bfloat16)
    out = torch.empty_like(left)

    def load() -> None:
        for _ in range(100):
            torch.mm(left, right, out=out)
        torch.cuda.synchronize(device)

    return load


def verify(gpu: Gpu, requested: ClockState, load: Load | None) -> ClockState:
    """Return ``requested`` if the measured clock agrees with it under load, else an unlocked state with the reason."""
    if load is None:
        return ClockState(reason="not verified", detail=f"no load to verify {requested.label}")
    samples = _sample_under(gpu, load)
    busy = [s for s in samples if s.sm_mhz is not None and "idle" not in (s.reasons or ())]
    if len(busy) < _MIN_SAMPLES:
        detail = f"{len(busy)} of {len(samples)} samples show a readable clock of a busy GPU {gpu.uuid}: wrong GPU?"
        return ClockState(reason="not verified", detail=detail)
    clocks = [s.sm_mhz for s in busy if s.sm_mhz is not None]
    throttling = sorted({reason for s in busy for reason in s.reasons or () if reason in THROTTLING})
    if requested.target == "base":
        # NVML does not report the MHz of the base clock, so check that it is steady and not throttled.
        holds = max(clocks) - min(clocks) <= TOLERANCE_MHZ and not throttling
    else:
        holds = all(abs(mhz - (requested.target or 0)) <= TOLERANCE_MHZ for mhz in clocks)
    span = str(min(clocks)) if min(clocks) == max(clocks) else f"{min(clocks)} to {max(clocks)}"
    measured = f"{span} MHz in {len(busy)} samples under load" + (f" ({', '.join(throttling)})" if throttling else "")
    if holds:
        return replace(requested, detail=measured)
    return ClockState(
        reason="does not hold", detail=f"requested {requested.label}, measured {measured}; request a lower clock"
    )


def _sample_under(gpu: Gpu, load: Load) -> list[ClockSample]:
    """Sample the GPU's clocks every 20 ms for ``HOLD_S`` seconds while ``load`` runs in a second thread."""
    # Call it once before sampling: compilation and allocation would look like an idle GPU. Errors are raised here.
    load()
    done = threading.Event()
    failed: list[Exception] = []

    def work() -> None:
        try:
            while not done.is_set():
                load()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="clock-load", daemon=True)
    thread.start()
    samples: list[ClockSample] = []
    try:
        time.sleep(SETTLE_S)
        end = time.monotonic() + HOLD_S
        while (time.monotonic() < end or len(samples) < _MIN_SAMPLES) and not failed:
            samples.append(gpu.sample())
            time.sleep(0.02)
    finally:
        done.set()
        thread.join()
    if failed:
        raise failed[0]
    return samples
