"""What kernels are compiled for, and how many blocks of one fit on a multiprocessor there.

Sources. Blocks and shared memory a multiprocessor, allocation units: ``cuda_occupancy.h`` of the CUDA toolkit (13.5).
Threads a multiprocessor: the CUDA Programming Guide, "Compute Capabilities"; for 8.7 and 12.0 PyTorch's
``torch/headeronly/macros/Macros.h``, and 12.1 is taken as 12.0. Multiprocessors: NVIDIA's architecture whitepapers
(A100, H100, RTX Blackwell), the data sheets of B200, Jetson AGX Orin (2048 cores, 128 each) and GB10 (6144 cores).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

#: Registers of a multiprocessor, all architectures since 3.5; handed to a warp in units of ``REGISTER_UNIT``.
REGISTERS = 65536
REGISTER_UNIT = 256
#: Each quarter of a multiprocessor has its own registers: warps come in fours.
WARP_UNIT = 4
SHARED_UNIT = 128
#: Shared memory that the driver keeps of each block, since 8.0.
SHARED_RESERVED = 1024
#: Columns of tensor memory a multiprocessor has (PTX ISA, tcgen05); only 10.x has it.
TENSOR_COLUMNS = 512


@dataclass(frozen=True)
class Limits:
    """What a multiprocessor holds: warps, blocks, bytes of shared memory; and bytes that one block may have."""

    warps: int
    blocks: int
    shared: int
    shared_block: int


#: By compute capability. These are the architectures that ``Target.parse`` accepts. A GPU at hand may be newer: it
#: takes the limits of the nearest architecture below.
LIMITS = {
    80: Limits(64, 32, 164 << 10, 163 << 10),
    86: Limits(48, 16, 100 << 10, 99 << 10),
    87: Limits(48, 16, 164 << 10, 163 << 10),
    89: Limits(48, 24, 100 << 10, 99 << 10),
    90: Limits(64, 32, 228 << 10, 227 << 10),
    100: Limits(64, 32, 228 << 10, 227 << 10),
    103: Limits(64, 32, 228 << 10, 227 << 10),
    120: Limits(48, 24, 100 << 10, 99 << 10),
    121: Limits(48, 24, 100 << 10, 99 << 10),
}

#: Multiprocessors of one usual GPU for each architecture; ``NAMES`` has its name.
PROCESSORS = {80: 108, 86: 82, 87: 16, 89: 142, 90: 132, 100: 148, 103: 148, 120: 188, 121: 48}


class TargetError(ValueError):
    """Not a target that kernels can be compiled for; the message says what is."""


#: Names of these GPUs as their driver spells them.
NAMES = {
    80: "NVIDIA A100-SXM4-80GB",
    86: "NVIDIA GeForce RTX 3090",
    87: "Orin",
    89: "NVIDIA L40S",
    90: "NVIDIA H200",
    100: "NVIDIA B200",
    103: "NVIDIA B300",
    120: "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    121: "NVIDIA GB10",
}


@dataclass(frozen=True)
class Target:
    """A GPU to compile for, and what it answers.

    Attributes:
        arch: its architecture; 90 for sm_90.
        processors: its multiprocessors, which kernels shape grids by.
        gpu: its name; "" for the GPU one thinks of first.
        measured: name and value of further device properties that the GPU at hand answered, as torch spells them.
    """

    arch: int
    processors: int
    gpu: str = ""
    measured: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """ "sm_90"."""
        return f"sm_{self.arch}"

    def properties(self) -> dict[str, int | str]:
        """Device properties by torch's names; sizes in bytes.

        Sources: the tables of this module, and for ``shared_memory_per_block`` and the block limits the CUDA
        Programming Guide, "Compute Capabilities". What differs between GPUs of one architecture (memory, caches,
        clocks) is there only if the GPU at hand answered it.
        """
        limits = self.limits
        return {
            "name": self.gpu or NAMES[max(arch for arch in NAMES if arch <= self.arch)],
            "major": self.arch // 10,
            "minor": self.arch % 10,
            "multi_processor_count": self.processors,
            "warp_size": 32,
            "max_threads_per_multi_processor": limits.warps * 32,
            "regs_per_multiprocessor": REGISTERS,
            "shared_memory_per_block": 48 << 10,
            "shared_memory_per_block_optin": limits.shared_block,
            "shared_memory_per_multiprocessor": limits.shared,
            **dict(self.measured),
        }

    @property
    def limits(self) -> Limits:
        """What one of its multiprocessors holds."""
        return LIMITS[max(arch for arch in LIMITS if arch <= self.arch)]

    @classmethod
    def of_host(cls, facts: Mapping[str, str]) -> Target:
        """The GPU of ``lockstep.record.provenance.host_facts``."""
        arch, processors = int(facts["capability"].replace(".", "")), int(facts["sm_count"])
        l2 = (("L2_cache_size", int(facts["l2_bytes"])),) if facts.get("l2_bytes") else ()
        return cls(arch, processors, facts.get("gpu", ""), l2)

    @classmethod
    def spelled(cls, text: str) -> Target:
        """The target that ``spell`` made text of."""
        row = json.loads(text)
        return cls(row["arch"], row["processors"], row["gpu"], tuple((name, value) for name, value in row["measured"]))

    def spell(self) -> str:
        """Itself as text, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Target:
        """A target from "sm_90", or "sm_90:114" with its number of multiprocessors.

        Raises:
            TargetError: the text has another form, or ``LIMITS`` does not have the architecture.
        """
        match = re.fullmatch(r"sm_([1-9]\d+)(?::([1-9]\d*))?", text.strip())
        arch = int(match[1]) if match else 0
        if match is None or arch not in LIMITS:
            raise TargetError(
                f"{text!r} is not a target; there is {', '.join(f'sm_{known}' for known in LIMITS)}; "
                "with another number of multiprocessors, sm_90:114"
            )
        return cls(arch, int(match[2]) if match[2] else PROCESSORS[arch])


def occupancy(
    target: Target, num_warps: int, registers: int, shared_bytes: int, tensor_columns: int = 0
) -> tuple[int, str]:
    """How many blocks fit on a multiprocessor at once, and what keeps another from fitting.

    The rules are those of ``cudaOccMaxActiveBlocksPerMultiprocessor`` in ``cuda_occupancy.h``.

    Args:
        target: the GPU.
        num_warps: warps a block.
        registers: a thread.
        shared_bytes: shared memory a block.
        tensor_columns: tensor memory a block; 0 where there is none.
    """
    limits = target.limits
    by: dict[str, int] = {"blocks": limits.blocks, "warps": limits.warps // num_warps}
    if registers:
        a_warp = _up(registers * 32, REGISTER_UNIT)
        warps = REGISTERS // WARP_UNIT // a_warp * WARP_UNIT
        by["registers"] = warps // _up(num_warps, WARP_UNIT)
    a_block = _up(shared_bytes + SHARED_RESERVED, SHARED_UNIT)
    by["shared memory"] = limits.shared // a_block if shared_bytes <= limits.shared_block else 0
    if tensor_columns:
        by["tensor memory"] = TENSOR_COLUMNS // tensor_columns
    blocks = min(by.values())
    return blocks, " and ".join(name for name, most in by.items() if most == blocks)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
