"""What is known of the code that a case runs: its kernels' machine code and what its host side does.

Everything here is frozen and plain, so that it travels between processes and into files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class CaseKey(NamedTuple):
    """One variant at one shape: ``suite`` is "family" or "family.op", ``case`` a case's label."""

    suite: str
    variant: str
    case: str


@dataclass(frozen=True)
class MachineCode:
    """A kernel as the assembler made it.

    Attributes:
        fingerprint: of instructions, constants and launch attributes; the same for two folders, and with or
            without comments.
        registers: a thread.
        spill_bytes: local memory a thread, which is where registers are spilled to (the driver's n_spills × 4).
        shared_bytes: shared memory a block.
        mix: instruction class ("HGMMA", "TMA", "STL", …, "all") to how often it stands in the code; no zeros.
        blocks: blocks that fit on a multiprocessor at once; 0: one does not fit.
        limit: what keeps more from fitting: "registers", "shared memory", "warps", "blocks", "tensor memory", or
            several of them, as in "registers and shared memory".
        loaded: fingerprint of the file that Triton loads. From ``sm_100`` on it may be another one each time that the
            same kernel is assembled (``lockstep.machine_code.reproducible_assembly``), so it compares with nothing.
    """

    fingerprint: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    mix: Mapping[str, int] = field(default_factory=dict, hash=False)
    blocks: int = 0
    limit: str = ""
    loaded: str = field(default="", compare=False)


@dataclass(frozen=True)
class KernelCode:
    """One kernel, specialised and compiled for one target.

    Attributes:
        name: of the function.
        identity: of everything that the compiler is given (its intermediate code without lines and paths, options,
            target, versions). The same identity is the same machine code; another one need not be another.
        source: file and line of the function, "kernels/linear/__init__.py:370"; relative to the tree.
        options: "num_warps", "num_stages" and what else was chosen for it.
        machine: None until it is compiled.
        failure: why it does not compile, else "".
    """

    name: str
    identity: str
    source: str
    options: Mapping[str, int] = field(default_factory=dict, hash=False)
    machine: MachineCode | None = None
    failure: str = ""

    def same_as(self, other: KernelCode) -> bool:
        """Whether both are provably the same machine code."""
        if self.identity == other.identity:
            return True
        return self.machine is not None and other.machine is not None and self.fingerprint == other.fingerprint

    @property
    def fingerprint(self) -> str:
        """Of its machine code; "" if there is none (yet)."""
        return self.machine.fingerprint if self.machine else ""


class Memory(NamedTuple):
    """Device memory of a call: the number of allocations, and bytes held at once and after it.

    torch's allocator rounds up, and operators may take workspaces of their own; neither is counted.
    """

    allocations: int
    peak: int
    kept: int


@dataclass(frozen=True)
class CaseCode:
    """What a variant runs at a shape, traced without a GPU.

    Attributes:
        kernels: the Triton and Gluon kernels, one entry a launch, in order.
        host: what the host side does, a line a step: launches with grid and arguments (scalars, and tensors as
            ``t0 bf16[8,4096]``, numbered by storage), calls of torch; preparation offline comes first.
            A launch is spelled without its kernel's name, which is in ``kernels``.
        unknown: why the trace cannot be trusted; "" if it can. An untrusted trace is never the same as another.
        absent: the tree lacks what the variant imports; ``unknown`` names it.
        environment: variables that the code under test read while it was imported and traced, and what they
            answered; ``None`` where one was not set. With other answers the trace says nothing.
        memory: device memory of the call; ``None`` where the trace ended before, or may lack steps.
    """

    kernels: tuple[KernelCode, ...] = ()
    host: tuple[str, ...] = ()
    unknown: str = ""
    environment: tuple[tuple[str, str | None], ...] = ()
    absent: bool = False
    memory: Memory | None = None

    @property
    def host_fingerprint(self) -> str:
        """Of ``host``; "" where the trace cannot be trusted."""
        return "" if self.unknown else _digest("\n".join(self.host))

    @property
    def fingerprint(self) -> str:
        """Of kernels and host together; "" where anything is unknown or not compiled."""
        if self.unknown or not all(kernel.fingerprint for kernel in self.kernels):
            return ""
        return _digest("\n".join([*(kernel.fingerprint for kernel in self.kernels), *self.host]))

    def same_as(self, other: CaseCode) -> bool:
        """Whether both provably do the same: every kernel and every step of the host."""
        return (
            not self.unknown
            and not other.unknown
            and self.host == other.host
            and self._agrees_with(other)
            and len(self.kernels) == len(other.kernels)
            and all(mine.same_as(its) for mine, its in zip(self.kernels, other.kernels, strict=True))
        )

    def _agrees_with(self, other: CaseCode) -> bool:
        """Whether no environment variable answered the two differently."""
        mine, its = dict(self.environment), dict(other.environment)
        return all(mine[name] == its[name] for name in mine.keys() & its.keys())


def case_code_from(row: Mapping[str, Any]) -> CaseCode:
    """A case's code from what ``dataclasses.asdict`` made of it."""
    kernels = tuple(kernel_code_from(kernel) for kernel in row["kernels"])
    environment, memory = environment_from(row["environment"]), memory_from(row["memory"])
    return CaseCode(kernels, tuple(row["host"]), row["unknown"], environment, row["absent"], memory)


def memory_from(row: Sequence[int] | None) -> Memory | None:
    """Device memory of a call, from a list as JSON has it."""
    return Memory(*row) if row is not None else None


def environment_from(rows: Iterable[Sequence[Any]]) -> tuple[tuple[str, str | None], ...]:
    """Environment variables and their answers, from pairs as JSON has them."""
    return tuple((name, value) for name, value in rows)


def kernel_code_from(row: Mapping[str, Any]) -> KernelCode:
    """A kernel's code from what ``dataclasses.asdict`` made of it."""
    machine = row["machine"]
    return KernelCode(**{**row, "machine": MachineCode(**machine) if machine else None})


def _digest(text: str) -> str:
    # 64 bits tell versions of one kernel apart, and every stored record carries some.
    return hashlib.sha256(text.encode()).hexdigest()[:16]
