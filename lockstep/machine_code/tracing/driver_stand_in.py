"""Replace Triton's driver, which needs a GPU, by an object that answers with a target's properties."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lockstep.machine_code.targets import REGISTERS, WARP, Target
from lockstep.machine_code.tracing.trace_listener import Listener

#: The first Triton whose launches can be traced: earlier ones compile within ``JITFunction.run``.
FIRST_TRITON = (3, 5)


def untraceable_triton() -> str:
    """Return why launches of the installed Triton cannot be traced, or ""; import nothing."""
    try:
        installed = version("triton")
    except PackageNotFoundError:
        return ""  # only kernels of torch can run
    if tuple(map(int, installed.split(".")[:2])) >= FIRST_TRITON:
        return ""
    return f"Triton {installed} cannot be traced: tracing needs Triton {'.'.join(map(str, FIRST_TRITON))} or later"


class StandIn:
    """Replaces Triton's CUDA driver, which needs a GPU, and answers with the properties of ``target``."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        """Return the target as Triton's class ``GPUTarget``."""
        return self.target.for_triton()

    def get_current_device(self) -> int:
        """Return the architecture's number, because Triton stores compiled kernels by device number."""
        return self.target.arch

    def get_current_stream(self, device: int) -> int:
        """Return 0, which stands for CUDA's default stream."""
        return device * 0

    def get_active_torch_device(self) -> Any:
        """Return the device on which Triton's own tensors would be."""
        # Imported here: torch is slow to import.
        import torch

        return torch.device("cuda", 0)

    @property
    def utils(self) -> StandIn:
        """Return this object: Triton's driver has ``get_device_properties`` under this name."""
        return self

    def get_device_properties(self, device: int) -> Mapping[str, int]:
        """Return the device properties that a kernel may read, by the names of Triton's driver."""
        return _Properties(
            {
                "multiprocessor_count": self.target.processors,
                "max_shared_mem": self.target.limits.shared_block,
                "max_num_regs": REGISTERS,
                "warpSize": WARP,
            }
        )

    def __getattr__(self, name: str) -> Any:
        # Distrust the trace as well: the caller may catch the error and treat it as an answer.
        Listener.distrust(f"asks Triton's driver for {name}, which its stand-in cannot answer")
        raise AttributeError(name)


class _Properties(dict[str, int]):
    """Device properties by the names of Triton's CUDA driver; reading an unknown property makes the trace untrusted."""

    def __missing__(self, name: str) -> int:
        Listener.distrust(f"asks Triton's driver for the device property {name}")
        raise KeyError(name)


def stand_in(target: Target) -> None:
    """Make Triton behave as if the GPU ``target`` were present, for the life of the process."""
    # Imported here: Triton is slow to import.
    import triton

    triton.runtime.driver.set_active(StandIn(target))
