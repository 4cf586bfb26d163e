"""The code that a case runs: machine code of its kernels, and the steps of its host side.

All classes are frozen and hold plain values, so that they can be sent between processes and written to files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class CaseKey(NamedTuple):
    """One variant at one shape: ``suite`` is "family" or "family.op", ``case`` is the label of a case."""

    suite: str
    variant: str
    case: str


@dataclass(frozen=True)
class MachineCode:
    """Machine code of a kernel, produced by the assembler.

    Attributes:
        fingerprint: digest of instructions, constants and launch attributes
            (``lockstep.machine_code.compiling.cubin.fingerprint``); it does not depend on folder or comments.
        spill_bytes: bytes of local memory per thread, which holds spilled registers (the driver's n_spills × 4).
        shared_bytes: bytes of shared memory per block.
        mix: number of instructions in the code, by class ("HGMMA", "TMA", "STL", …, "all"); no zeros.
        blocks: blocks that fit on a multiprocessor at once; 0 if not even one fits.
        limit: the resource that limits ``blocks``: "registers", "shared memory", "warps", "blocks", "tensor memory", or
            several of them, as in "registers and shared memory".
    """

    fingerprint: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    mix: Mapping[str, int] = field(default_factory=dict, hash=False)
    blocks: int = 0
    limit: str = ""

    @property
    def figures(self) -> Mapping[str, int]:
        """Return the figures that should be small, by name."""
        named = {"registers": self.registers, "spills": self.spill_bytes, "shared": self.shared_bytes}
        return named | {"instructions": self.mix.get("all", 0)}


class Obstacle(NamedTuple):
    """Why a case cannot be traced: the question that has no answer without a GPU, and the file and line that ask it."""

    question: str
    line: str


@dataclass(frozen=True)
class KernelCode:
    """One kernel, specialised and compiled for one target.

    Attributes:
        identity: digest of the compiler's input (intermediate code without lines and paths, options, target, versions).
            Equal identities mean equal machine code; different identities may have equal code as well.
        source: file and line of the function, "kernels/linear/__init__.py:370"; relative to the tree.
        options: compile options: "num_warps", "num_stages" and others.
        machine: machine code of the kernel; None until it is compiled.
        failure: why the kernel does not compile, or "".
        uninterpreted: why Triton's interpreter, and so a machine without a GPU, cannot run the kernel; "" if it can.
        configuration: what the configuration of a tuned kernel sets, "BLOCK 64, num_warps 8"; "" for other kernels.
    """

    name: str
    identity: str
    source: str
    options: Mapping[str, int] = field(default_factory=dict, hash=False)
    machine: MachineCode | None = None
    failure: str = ""
    uninterpreted: str = ""
    configuration: str = ""

    def same_as(self, other: KernelCode) -> bool:
        """Return whether both kernels have the same machine code."""
        return self.identity == other.identity or "" != self.fingerprint == other.fingerprint

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the machine code; "" if the kernel is not compiled."""
        return self.machine.fingerprint if self.machine else ""


class Call(NamedTuple):
    """What one call of a variant does, without preparation and without what only the first call does.

    torch's allocator rounds up, and operators may allocate workspaces of their own; neither is counted. The call
    launches the kernels ``CaseCode.kernels[first:last]``, and calls ``operators`` of torch.

    Attributes:
        allocations: number of allocations on the device.
        peak: maximum bytes of these allocations at once.
        kept: bytes on the device that the call uses without being given them, and that remain after it.
    """

    first: int
    last: int
    operators: int
    allocations: int
    peak: int
    kept: int


@dataclass(frozen=True)
class CaseCode:
    """The code that a variant runs at a shape, traced without a GPU.

    Attributes:
        kernels: the Triton and Gluon kernels, one entry for each launch, in order; of a tuned kernel one entry for each
            configuration, because only a GPU shows which of them is fastest.
        host: steps of the host side, one line each: launches with grid and arguments (scalars, and tensors as
            ``t0 bf16[8,4096]``, numbered by storage), and calls of torch. Offline preparation comes first. A launch is
            written without its kernel's name, which is in ``kernels``.
        unknown: the question because of which the case is not traced; "" if it is. Such a case equals no other.
        refusal: the words with which the variant refuses the case; other words are no difference.
        obstacles: all questions because of which the case is not traced; ``unknown`` is the first of them.
        absent: whether the tree lacks a name that the variant imports; ``unknown`` gives the name.
        call: what a call does; ``None`` if the trace ended before the call did, or may lack steps.
    """

    kernels: tuple[KernelCode, ...] = ()
    host: tuple[str, ...] = ()
    unknown: str = ""
    absent: bool = False
    call: Call | None = None
    obstacles: tuple[Obstacle, ...] = ()
    refusal: str = ""

    @property
    def host_fingerprint(self) -> str:
        """Return a digest of the steps in ``host``; "" if the case is not traced."""
        return "" if self.unknown else _digest("\n".join(self.host))

    @property
    def fingerprint(self) -> str:
        """Return a digest of the case's kernels and host side; "" if any part is unknown or not compiled."""
        if self.unknown or not all(kernel.fingerprint for kernel in self.kernels):
            return ""
        return _digest("\n".join([*(kernel.fingerprint for kernel in self.kernels), *self.host]))

    def same_as(self, other: CaseCode) -> bool:
        """Return whether no difference was found in what was traced: same kernels and same steps of the host side."""
        return (
            not self.unknown
            and not other.unknown
            and self.host == other.host
            and len(self.kernels) == len(other.kernels)
            and all(one.same_as(its) for one, its in zip(self.kernels, other.kernels, strict=True))
        )


def _digest(text: str) -> str:
    # 64 bits distinguish the versions of one kernel, and every stored record carries several fingerprints.
    return hashlib.sha256(text.encode()).hexdigest()[:16]
