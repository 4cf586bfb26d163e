"""Capture variants in CUDA graphs: compare the work of base and head, or state the work of one version as a digest.

Both sides are captured on the same buffers, and once more on other values: a graph that depends on values says nothing
about other values. Only the work of the captured calls is compared, not what the host does to launch it.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from lockstep.same_work.library_code import memory_maps, only_torch_has
from lockstep.same_work.operations import Operations
from lockstep.same_work.read_graph import GraphError, TritonCode, contents, is_device_memory, read_graph
from lockstep.same_work.work import (
    Buffer,
    Captured,
    Observed,
    Unknown,
    Work,
    by_operations,
    compare,
    depends_on_values,
    digest,
    portable_digest,
    torchs_functions,
    without_host_addresses,
)
from lockstep.suite.inputs import tensors_of
from lockstep.suite.variants import Family
from lockstep.timing.arms.bound_arms import Arm
from lockstep.timing.arms.shared_buffers import ArmFailed, Buffers, Contender
from lockstep.timing.checks.check import brief
from lockstep.timing.device import Device, DeviceLost
from lockstep.timing.graph_capture import capture_graph
from lockstep.timing.rules.rule import Disqualified

T = TypeVar("T")

#: Calls in a graph. The second call finds what the first one stored.
_CALLS = 2

#: Addresses of the GPU's memory are higher than this; smaller numbers are not looked up.
_LEAST_ADDRESS = 1 << 32

#: Records nothing, any number of times.
_NOTHING = contextlib.nullcontext()


def observe(
    pair: Sequence[Contender], draws: Sequence[Buffers], device: Device, codes: TritonCode, begin: Callable[[str], None]
) -> Observed:
    """Compare the work of base and head of a variant. What cannot be captured or read is different, for that reason.

    ``DeviceLost`` names the side whose call broke the CUDA context.

    Args:
        draws: buffers with different values, of one argument set each.
        begin: called with "base" or "head" before that side's code runs.
    """
    return _attempted(device, lambda: _observed(pair, draws, device, codes, begin), Observed)


def work_of(
    contender: Contender, draws: Sequence[Buffers], device: Device, codes: TritonCode, begin: Callable[[str], None]
) -> str:
    """Return a digest of what a call gives the GPU to do, or of its refusal; "" if it is unknown or depends on values.

    Digests of two processes can be compared if GPU, toolchain and the seeds of the draws are the same, and if the name
    of a function that Triton did not load stands for its code (``lockstep.same_work.library_code``).

    Args, Raises: as ``observe``.
    """
    return _attempted(device, lambda: _work_of(contender, draws, device, codes, begin), lambda reason: "")


def _attempted(device: Device, look: Callable[[], T], unknown: Callable[[str], T]) -> T:
    """Return what ``look`` returns; if it cannot capture or read a graph, what ``unknown`` makes of the reason."""
    try:
        return look()
    except ArmFailed as failure:
        device.release()
        if not device.healthy():
            raise DeviceLost(failure.arm, str(failure)) from failure
        return unknown(f"{failure.arm} cannot be captured: {failure}")
    except torch.cuda.OutOfMemoryError:
        device.release()
        return unknown("the device has too little memory to capture it")
    except (GraphError, Disqualified) as error:
        return unknown(brief(error))


def _observed(
    pair: Sequence[Contender], draws: Sequence[Buffers], device: Device, codes: TritonCode, begin: Callable[[str], None]
) -> Observed:
    pool = device.new_pool()
    graphs: list[torch.cuda.CUDAGraph] = []  # a pool whose last graph is gone cannot be captured into again

    seen: list[Captured] = []

    def captured() -> Iterator[Captured]:
        for buffers in draws:
            arms, _ = buffers.arms(pair)
            refusals = [_call(arm, buffers, begin) for arm in arms]
            if any(refusals):
                raise _Refused(*refusals)
            device.synchronize()
            arms, shared = buffers.arms(pair)  # again: the first calls may have allocated buffers that outlive them
            if not shared:
                raise _Apart("base and head prepare different values, or different buffers that outlive a call")
            if not graphs:
                # Reserves the memory for outputs allocated within calls, so that both sides find it free.
                graphs.append(_capture(arms[0], pool))
            host = _HostMemory()
            base, head = (without_host_addresses(work, host) for work in _works(arms, pool, graphs, codes))
            seen.append(Captured(base, head, [*_buffers(arms, pair[0].family)], _OwnMemory, _is_memory))
            yield seen[-1]

    try:
        difference = compare(captured())
        return Observed(difference, work=digest(seen[0]) if difference and len(seen) == 1 else "")
    except _Apart as apart:
        return Observed(str(apart))
    except _Refused as refused:
        base, head = refused.args
        return Observed("", head) if base == head else Observed(f"base refuses: {base or 'nothing'}; head: {head}")


def _work_of(
    contender: Contender, draws: Sequence[Buffers], device: Device, codes: TritonCode, begin: Callable[[str], None]
) -> str:
    pool = device.new_pool()
    graphs: list[torch.cuda.CUDAGraph] = []
    seen: list[Captured] = []
    digest_ = ""
    for buffers in draws:
        [arm], _ = buffers.arms([contender])
        if refusal := _call(arm, buffers, begin):
            return refusal_digest(refusal)
        device.synchronize()
        [arm], _ = buffers.arms([contender])  # again: the first call may have allocated buffers that outlive it
        if not graphs:
            graphs.append(_capture(arm, pool))  # reserves the memory for outputs allocated within calls
        [work] = _works([arm], pool, graphs, codes)
        work = without_host_addresses(work, _HostMemory())
        shared = [*_buffers([arm], contender.family)]
        seen.append(Captured(work, work, shared, _OwnMemory, _is_memory))
        if len(seen) == 1:
            digest_ = portable_digest(work, shared, _Memory())
    return "" if depends_on_values(seen) else digest_


def refusal_digest(reason: str) -> str:
    """Return the digest of a call that is refused: it gives the GPU nothing to do."""
    return hashlib.sha256(f"refused: {reason}".encode()).hexdigest()[:16]


class _Apart(Exception):
    """Base and head cannot share their buffers."""


class _Refused(Exception):
    """One side refuses the case, or both do. The arguments are the refusals of base and head."""


def _call(arm: Arm, buffers: Buffers, begin: Callable[[str], None]) -> str:
    """Call a side once, outside a graph: it compiles, tunes and fills caches. Return its refusal of the case, or ""."""
    begin(arm.name)
    if buffers.restore is not None:
        buffers.restore()
    try:
        with arm.active():
            arm.calls[0]()
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        raise
    except NotImplementedError as refusal:
        return str(refusal) or "not supported"
    except Exception as error:
        raise ArmFailed(arm.name, brief(error)) from error
    return ""


def _capture(
    arm: Arm, pool: Any, operations: contextlib.AbstractContextManager[Any] = _NOTHING
) -> torch.cuda.CUDAGraph:
    def call() -> None:
        with operations:  # not around the capture, which stores the seed of torch's random numbers
            arm.calls[0]()

    try:
        with arm.active():
            return capture_graph([call] * _CALLS, pool, launch=False)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        raise ArmFailed(arm.name, brief(error)) from error


def _works(arms: Sequence[Arm], pool: Any, graphs: list[torch.cuda.CUDAGraph], codes: TritonCode) -> list[Work]:
    """Capture arms, and return what they give the GPU to do. The graphs are added to ``graphs``, which keeps them."""

    graphs.extend(_capture(arm, pool) for arm in arms)
    works = [read_graph(graph.raw_cuda_graph(), codes) for graph in graphs[-len(arms) :]]
    names = frozenset[str]().union(*map(torchs_functions, works))
    if not names or not only_torch_has(names):
        return works
    recorded: list[Operations] = []
    again: list[Work] = []
    for arm in arms:
        operations = Operations()
        graphs.append(_capture(arm, pool, operations))
        recorded.append(operations)
        again.append(read_graph(graphs[-1].raw_cuda_graph(), codes))
    return [
        by_operations(work, other, operations.nodes) if operations.known else work
        for work, other, operations in zip(works, again, recorded, strict=True)
    ]


def _buffers(arms: Sequence[Arm], base: Family) -> Iterator[Buffer]:
    """Yield the buffers that base and head share: arguments, outputs, prepared values, buffers that outlive a call."""
    arguments = {name: value for arm in arms for name, value in arm.calls[0].arguments.items()}
    for name, value in (*arguments.items(), *base.scratch.items()):
        for number, tensor in enumerate(tensors_of(value)):
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
            yield Buffer(f"{name} {number}", start, start + storage.nbytes(), tensor.data_ptr())


def _is_memory(address: int) -> bool:
    return address >= _LEAST_ADDRESS and is_device_memory(address)


class _HostMemory:
    """Knows whether a number is an address of this process's memory that is not the GPU's.

    A heap below 4 GiB holds numbers that are no addresses: 1.0 in single precision, the scale of cuBLAS's products, is
    3f800000 in hexadecimal.
    """

    @functools.cached_property
    def _spans(self) -> list[tuple[int, int]]:
        spans = (line.split(maxsplit=1)[0].split("-") for line in memory_maps())
        return sorted((int(start, 16), int(end, 16)) for start, end in spans)

    def __call__(self, address: int) -> bool:
        if address < _LEAST_ADDRESS:
            return False
        place = bisect.bisect_right(self._spans, (address, sys.maxsize)) - 1
        return place >= 0 and self._spans[place][0] <= address < self._spans[place][1] and not _is_memory(address)


class _Memory:
    """Names the memory of torch's allocator in a way that is the same in every process.

    A live block is named by size and contents, and a segment of which temporary memory is part by its size. What a
    library, other than torch, gets to work in or keeps for itself is named without contents.
    """

    def __init__(self) -> None:
        self._live = _OwnMemory()

    def __call__(self, address: int, library: bool) -> Buffer | None:
        if not _is_memory(address):
            return None
        if (block := self._live.block(address)) is not None:
            start, size = block
            named = None if library else self._live(address)
            if named is None and not library:
                raise Unknown
            return named or Buffer(f"{size} bytes", start, start + size, start)
        for start, size in self._live.segments:
            if start <= address < start + size:
                return Buffer(f"temporary, of {size} bytes", start, start + size, start)
        if library:
            return Buffer("its own", address, address + 1, address)
        raise Unknown  # memory that torch did not allocate


class _OwnMemory:
    """Finds the live blocks of torch's allocator, and names each by its size and contents."""

    def __init__(self) -> None:
        snapshot = torch.cuda.memory_snapshot()
        #: Address and size of each segment, of which blocks are parts.
        self.segments = [(segment["address"], segment["total_size"]) for segment in snapshot]
        self._blocks = [
            # A block is larger than what was asked for, and nobody wrote its rest.
            (block["address"], block.get("requested_size", block["size"]))
            for segment in snapshot
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        ]
        self._named: dict[int, Buffer | None] = {}

    def block(self, address: int) -> tuple[int, int] | None:
        """Return start and size of the live block that contains an address, or ``None``."""
        return next((block for block in self._blocks if block[0] <= address < sum(block)), None)

    def __call__(self, address: int) -> Buffer | None:
        if not _is_memory(address):
            return None
        if (block := self.block(address)) is None:
            return None
        start, size = block
        if start not in self._named:
            digest = contents(start, size)
            name = f"{size} bytes {digest}"
            self._named[start] = Buffer(name, start, start + size, start) if digest else None
        return self._named[start]
