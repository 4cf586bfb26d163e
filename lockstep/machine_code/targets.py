"""Describe the GPUs that kernels are compiled for, and compute how many blocks fit on a multiprocessor.

Sources. Blocks and shared memory of a multiprocessor, allocation units: ``cuda_occupancy.h`` of the CUDA toolkit
(13.5). Threads of a multiprocessor: the CUDA Programming Guide, "Compute Capabilities"; for 8.7 and 12.0 PyTorch's
``torch/headeronly/macros/Macros.h``; 12.1 is assumed to equal 12.0. Number of multiprocessors: NVIDIA's architecture
whitepapers (A100, H100, RTX Blackwell), the data sheets of B200, Jetson AGX Orin (2048 cores, 128 each) and GB10
(6144).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.processes.exit_status import UsageError

#: Threads of a warp.
WARP = 32
#: Registers of a multiprocessor, for all architectures since 3.5; allocated to warps in units of ``REGISTER_UNIT``.
REGISTERS = 65536
REGISTER_UNIT = 256
#: Each quarter of a multiprocessor has its own registers, so warps are allocated in groups of four.
WARP_UNIT = 4
SHARED_UNIT = 128
#: Bytes of shared memory that the driver reserves for each block, since 8.0.
SHARED_RESERVED = 1024
#: Columns of tensor memory of a multiprocessor (PTX ISA, tcgen05); only 10.x has tensor memory.
TENSOR_COLUMNS = 512


@dataclass(frozen=True)
class Architecture:
    """A common GPU of an architecture, as drivers name it, and what fits on a multiprocessor; ``shared`` in bytes."""

    name: str
    processors: int
    warps: int
    blocks: int
    shared: int

    @property
    def shared_block(self) -> int:
        """Return the maximum bytes of shared memory of one block."""
        return self.shared - SHARED_RESERVED


#: Architectures that ``Target.parse`` accepts, by compute capability. A machine's GPU may be newer: the values of the
#: nearest older architecture are then used.
ARCHITECTURES = {
    80: Architecture("NVIDIA A100-SXM4-80GB", 108, 64, 32, 164 << 10),
    86: Architecture("NVIDIA GeForce RTX 3090", 82, 48, 16, 100 << 10),
    87: Architecture("Orin", 16, 48, 16, 164 << 10),
    89: Architecture("NVIDIA L40S", 142, 48, 24, 100 << 10),
    90: Architecture("NVIDIA H200", 132, 64, 32, 228 << 10),
    100: Architecture("NVIDIA B200", 148, 64, 32, 228 << 10),
    103: Architecture("NVIDIA B300", 148, 64, 32, 228 << 10),
    120: Architecture("NVIDIA RTX PRO 6000 Blackwell Server Edition", 188, 48, 24, 100 << 10),
    121: Architecture("NVIDIA GB10", 48, 48, 24, 100 << 10),
}


class TargetError(UsageError):
    """The text is not a target that kernels can be compiled for; the message lists the targets."""


@dataclass(frozen=True)
class Target:
    """A GPU to compile for, and its properties.

    Attributes:
        arch: architecture; 90 for sm_90.
        processors: number of multiprocessors, which kernels use to choose grids.
        gpu: name of the GPU; "" for the common GPU of the architecture.
        l2_bytes: size of the L2 cache that this machine's GPU reported; 0 if unknown.
    """

    arch: int
    processors: int
    gpu: str = ""
    l2_bytes: int = 0

    @property
    def name(self) -> str:
        """Return the name of the architecture, such as "sm_90"."""
        return f"sm_{self.arch}"

    @property
    def capability(self) -> tuple[int, int]:
        """Return the compute capability, as ``torch.cuda.get_device_capability`` does; (9, 0) for sm_90."""
        return self.arch // 10, self.arch % 10

    def for_triton(self) -> Any:
        """Return the target as Triton's class ``GPUTarget``."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.arch, WARP)

    def properties(self) -> dict[str, int | str]:
        """Return device properties by torch's names; sizes in bytes.

        ``shared_memory_per_block`` is from the CUDA Programming Guide, "Compute Capabilities". Properties that differ
        between GPUs of one architecture (memory, caches, clocks) are included only if this machine's GPU reported them.
        """
        limits = self.limits
        return {
            "name": self.gpu or limits.name,
            "major": self.capability[0],
            "minor": self.capability[1],
            "multi_processor_count": self.processors,
            "warp_size": WARP,
            "max_threads_per_multi_processor": limits.warps * WARP,
            "regs_per_multiprocessor": REGISTERS,
            "shared_memory_per_block": 48 << 10,
            "shared_memory_per_block_optin": limits.shared_block,
            "shared_memory_per_multiprocessor": limits.shared,
            **({"L2_cache_size": self.l2_bytes} if self.l2_bytes else {}),
        }

    @property
    def limits(self) -> Architecture:
        """Return what fits on one multiprocessor of this GPU: warps, blocks and bytes of shared memory."""
        return ARCHITECTURES[max(arch for arch in ARCHITECTURES if arch <= self.arch)]

    @classmethod
    def of_host(cls, facts: Mapping[str, str]) -> Target:
        """Return the GPU that the facts of ``lockstep.record.provenance.host_facts`` describe."""
        arch, processors = int(facts["capability"].replace(".", "")), int(facts["sm_count"])
        return cls(arch, processors, facts.get("gpu", ""), int(facts.get("l2_bytes") or 0))

    @classmethod
    def parse(cls, text: str) -> Target:
        """Return a target from "sm_90" or "sm_90:114" (114 multiprocessors); ``TargetError`` for other texts."""
        match = re.fullmatch(r"sm_([1-9]\d+)(?::([1-9]\d*))?", text.strip())
        arch = int(match[1]) if match else 0
        if match is None or arch not in ARCHITECTURES:
            raise TargetError(
                f"{text!r} is not a target; give one of {', '.join(f'sm_{known}' for known in ARCHITECTURES)}; "
                "for another number of multiprocessors, append it: sm_90:114"
            )
        return cls(arch, int(match[2]) if match[2] else ARCHITECTURES[arch].processors)


def occupancy(
    target: Target, num_warps: int, registers: int, shared_bytes: int, tensor_columns: int = 0
) -> tuple[int, str]:
    """Return how many blocks fit on a multiprocessor at once, and the resources that limit that number.

    The rules are those of ``cudaOccMaxActiveBlocksPerMultiprocessor`` in ``cuda_occupancy.h``. ``shared_bytes`` and
    ``tensor_columns`` (of tensor memory) are those of a block.
    """
    limits = target.limits
    by: dict[str, int] = {"blocks": limits.blocks, "warps": limits.warps // num_warps}
    if registers:
        a_warp = _up(registers * WARP, REGISTER_UNIT)
        warps = REGISTERS // WARP_UNIT // a_warp * WARP_UNIT
        # A launch is refused as if its warps filled groups of four; blocks that fit may share such a group.
        by["registers"] = warps // num_warps if a_warp * _up(num_warps, WARP_UNIT) <= REGISTERS else 0
    a_block = _up(shared_bytes + SHARED_RESERVED, SHARED_UNIT)
    by["shared memory"] = limits.shared // a_block if shared_bytes <= limits.shared_block else 0
    if tensor_columns:
        by["tensor memory"] = TENSOR_COLUMNS // tensor_columns
    blocks = min(by.values())
    return blocks, " and ".join(name for name, most in by.items() if most == blocks)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
