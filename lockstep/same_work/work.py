"""State what a captured graph gives the GPU to do, as a value. Two graphs are the same work if their values are equal.

The value has every node in order: its kind, the machine code of its kernel, how it is launched, each byte of its
parameters, and the nodes that it waits for. A pointer becomes a buffer and an offset, also within a TMA descriptor.
Torch's operations follow the nodes, in place of the parameters of torch's own functions.
Whatever cannot be known makes a graph unequal to every other one, itself included. This module knows no GPU:
``read_graph`` reads the nodes.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from lockstep.record.counted import counted

#: Facts that say most about a kernel: they are told in this order, before all others.
_TELLING = ("grid", "block", "registers", "local memory", "shared memory")

#: Part of the fact "machine code" of a function that is known by its handle only, which holds in one process.
UNKNOWN_CODE = "whose code is not known"

#: The part of such a function's fact that differs from process to process.
_HANDLE = re.compile(r"0x[0-9a-f]+ ")

#: Names that torch.compile gives its own Triton kernels, which Triton does not load: "triton_poi_fused_mul_0" is
#: another kernel if only a constant differs.
_GENERATED = re.compile(r" triton_\w*, ")

#: Names of torch's own functions.
_TORCHS = re.compile(r" _ZN2at")

#: Bytes of an address. Addresses lie at multiples of this number in a parameter, and first in a TMA descriptor.
_ADDRESS = 8


@dataclass(frozen=True)
class Place:
    """An address, as the distance in bytes from the start of a buffer."""

    buffer: str
    offset: int

    def __str__(self) -> str:
        return f"{self.buffer}{self.offset:+d}" if self.offset else self.buffer


#: A fact of a node: a number, a text, some numbers, raw bytes, or bytes with their addresses replaced.
Fact = int | str | bytes | tuple[int, ...] | tuple[bytes | Place, ...]


@dataclass(frozen=True)
class Edge:
    """A node for which another node waits.

    Attributes:
        node: position of the node in the graph.
        data: type and ports of the edge; a launch that may start before the other kernel ends has an edge of its own
            type (programmatic dependent launch).
    """

    node: int
    data: bytes = bytes(8)


@dataclass(frozen=True)
class Node:
    """One node of a graph.

    Attributes:
        kind: "kernel", "copy", "set", "empty", or "operation" (see ``lockstep.same_work.operations``).
        facts: everything that decides what the node does, by name: machine code, grid, parameters.
        after: the nodes for which this node waits.
        unknown: why it cannot be known what the node does, or "".
        name: name of the kernel, for messages. Kernels of other names with equal machine code are the same work.
    """

    kind: str
    facts: tuple[tuple[str, Fact], ...] = ()
    after: tuple[Edge, ...] = ()
    unknown: str = ""
    name: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """Return the kernel's name, or the node's kind."""
        return self.name or self.kind


@dataclass(frozen=True)
class Observed:
    """What the captured graphs of base and head say of a variant at a case.

    Attributes:
        difference: the first difference, or why it is unknown whether they differ; "" for the same work.
        refusal: the message with which both sides refuse the case; "" if one of them accepts it.
        work: a digest of both sides' work where it differs. Variants with equal digests at a case are the same
            comparison. "" if it is not known, or depends on values.
    """

    difference: str = ""
    refusal: str = ""
    work: str = ""


#: All nodes of a graph, in the graph's order.
Work = tuple[Node, ...]


@dataclass(frozen=True)
class Buffer:
    """A range of addresses that belong together.

    Attributes:
        name: what the memory is, for example "input x"; buffers of equal names have equal roles on both sides.
        start, end: address of the first byte, and of the byte after the last.
        origin: the address from which offsets count.
    """

    name: str
    start: int
    end: int
    origin: int


class Memory:
    """Replaces addresses in one graph by buffers and offsets.

    Args:
        buffers: buffers that base and head have in common.
        own: returns the live buffer of one side that contains an address, named by its size and contents; ``None`` for
            other addresses.
    """

    def __init__(self, buffers: Sequence[Buffer], own: Callable[[int], Buffer | None] = lambda _: None) -> None:
        self._buffers = buffers
        self._own = own
        self._numbers: dict[int, int] = {}

    def seen_by(self, own: Callable[[int], Buffer | None]) -> Memory:
        """Return the same memory with another ``own``; both give a buffer the same number."""
        memory = Memory(self._buffers, own)
        memory._numbers = self._numbers
        return memory

    def place(self, address: int) -> Place | None:
        """Return the buffer and offset of an address, or ``None`` if no buffer contains it."""
        for buffer in self._buffers:
            if buffer.start <= address < buffer.end:
                return Place(buffer.name, address - buffer.origin)
        if (own := self._own(address)) is None:
            return None
        # The number keeps two buffers with equal contents apart, also if a kernel gets the same one twice.
        number = self._numbers.setdefault(own.start, len(self._numbers))
        return Place(f"own buffer {number} ({own.name})", address - own.origin)


def placed(work: Work, memory: Memory) -> Work:
    """Return the graph with each address that lies in a known buffer replaced by the buffer and an offset."""
    return tuple(replace(node, facts=tuple((name, _words(fact, memory)) for name, fact in node.facts)) for node in work)


def _words(fact: Fact, memory: Memory) -> Fact:
    if not isinstance(fact, bytes):
        return fact
    words: list[bytes | Place] = []
    for start in range(0, len(fact), _ADDRESS):
        word = fact[start : start + _ADDRESS]
        place = memory.place(struct.unpack("<Q", word)[0]) if len(word) == _ADDRESS else None
        words.append(place or word)
    return tuple(words)


@dataclass(frozen=True)
class Captured:
    """Graphs of base and head, captured on the same buffers.

    Attributes:
        base, head: the graphs, with raw addresses.
        own: returns a function that finds the other live buffers; see ``Memory``.
        is_memory: returns whether a number is an address of the GPU's memory.
    """

    base: Work
    head: Work
    buffers: Sequence[Buffer]
    own: Callable[[], Callable[[int], Buffer | None]]
    is_memory: Callable[[int], bool]


def compare(draws: Iterable[Captured]) -> str:
    """Return the first difference between base and head, or why it is unknown whether they differ; "" for equal work.

    ``draws``: the graphs on one draw of the inputs after another. A graph that depends on values counts as different,
    because it says nothing about other values.
    """
    first: Captured | None = None
    for draw in draws:
        base, head = (placed(side, Memory(draw.buffers)) for side in (draw.base, draw.head))
        if difference(base, head):
            # Base and head may each have a buffer of their own with equal contents, such as a table.
            own = draw.own()
            if found := difference(*(placed(side, Memory(draw.buffers, own)) for side in (draw.base, draw.head))):
                return found
        if first is not None and difference(_anonymous(first), _anonymous(draw)):
            return "the graph depends on the values of the inputs"
        first = first or draw
    return "" if first is not None else "nothing was captured"


def digest(draw: Captured) -> str:
    """Return a digest of what base and head give the GPU to do; "" if some of it is not known."""
    nodes = (*draw.base, *draw.head)
    if any(node.unknown or _of_library(node) for node in nodes):
        return ""
    both = [placed(side, Memory(draw.buffers)) for side in (draw.base, draw.head)]
    return hashlib.sha256(repr(both).encode()).hexdigest()[:16]


def without_host_addresses(work: Work, is_host: Callable[[int], bool]) -> Work:
    """Return the graph with each address of the host's memory that a library's function gets replaced by zeros.

    cuBLAS passes structures in which the host keeps addresses of its own. They differ from process to process, and no
    kernel reads ordinary memory of the host.
    """

    def cleared(fact: Fact) -> Fact:
        if not isinstance(fact, bytes):
            return fact
        words = [fact[start : start + _ADDRESS] for start in range(0, len(fact), _ADDRESS)]
        return b"".join(
            bytes(_ADDRESS) if len(word) == _ADDRESS and is_host(struct.unpack("<Q", word)[0]) else word
            for word in words
        )

    return tuple(
        replace(node, facts=tuple((name, cleared(fact)) for name, fact in node.facts)) if _of_library(node) else node
        for node in work
    )


def _of_library(node: Node) -> bool:
    return UNKNOWN_CODE in str(dict(node.facts).get("machine code", ""))


def torchs_functions(work: Work) -> frozenset[str]:
    """Return the mangled names of torch's own functions in a graph."""
    return frozenset(code.split()[2].rstrip(",") for node in work if (code := _torchs_code(node)))


def by_operations(work: Work, again: Work, operations: Sequence[Node]) -> Work:
    """Return the graph with operations in place of the parameters of torch's own functions.

    ``again``: another capture of the same calls, with the operations that ran meanwhile. If it launches something else,
    the operations do not describe ``work``, which is returned as it is.
    """
    if [_launch(node) for node in work] != [_launch(node) for node in again]:
        return work
    return (*(_launch(node) if _torchs_code(node) else node for node in work), *operations)


def _launch(node: Node) -> Node:
    """Return a node without what is passed to it."""
    return replace(node, facts=tuple(fact for fact in node.facts if not fact[0].startswith("parameter ")))


def _torchs_code(node: Node) -> str:
    """Return what identifies the code of a function of torch's own; "" for other nodes."""
    code = str(dict(node.facts).get("machine code", ""))
    return code if UNKNOWN_CODE in code and _TORCHS.search(code) else ""


class Unknown(Exception):
    """It cannot be known what a node does."""


def portable_digest(work: Work, buffers: Sequence[Buffer], own: Callable[..., Buffer | None]) -> str:
    """Return a digest of a graph that is equal in every process with the same toolchain; "" if a node is unknown.

    ``own``: returns the buffer that contains another address; its argument ``library`` is whether a function of a
    library gets the address, which may work in memory of its own. It raises ``Unknown`` for memory whose role and
    contents cannot be known.
    """
    memory = Memory(buffers)
    parts = []
    for node in work:
        code, library = str(dict(node.facts).get("machine code", "")), _of_library(node)
        if node.unknown or (library and _GENERATED.search(code)):
            return ""
        try:
            # Torch's own functions get what the variant gives them, perhaps a table whose contents decide the work.
            # What memory held before it is set decides nothing.
            keeps = (library and not _torchs_code(node)) or node.kind == "set"
            [there] = placed((node,), memory.seen_by(functools.partial(own, library=keeps)))
        except Unknown:
            return ""
        facts = dict(there.facts) | ({"machine code": _HANDLE.sub("", code)} if library else {})
        parts.append((node.kind, facts, node.after))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def depends_on_values(draws: Sequence[Captured]) -> bool:
    """Return whether the graphs on several draws of the inputs differ by more than addresses of temporary memory."""
    first, *others = (_anonymous(draw) for draw in draws)
    return any(difference(first, other) for other in others)


def _anonymous(draw: Captured) -> Work:
    """Return base's graph with each address outside the shared buffers replaced by a number, in order of appearance.

    Between two draws the allocator may place the memory that calls allocate elsewhere.
    """

    def own(address: int) -> Buffer | None:
        return Buffer("", address, address + 1, address) if draw.is_memory(address) else None

    return placed(draw.base, Memory(draw.buffers, own))


def difference(base: Work, head: Work) -> str:
    """Return the first difference between two graphs, or why it is unknown whether they differ; "" for equal work."""
    for node in (*base, *head):
        if node.unknown:
            return f"{node.label}: {node.unknown}"
    for before, after in zip(base, head, strict=False):
        if before.kind != after.kind:
            return f"{before.label} → {after.label}"
        if found := dict(_differences(before, after)):
            told = [found[name] for name in _TELLING if name in found] or list(found.values())[:1]
            return f"{after.label}: {', '.join(told)}"
    if len(base) != len(head):
        return f"{counted(len(base), 'node')} → {counted(len(head), 'node')}"
    return "" if base == head else "the graphs differ"


def _differences(before: Node, after: Node) -> Iterator[tuple[str, str]]:
    """Yield the name of each fact that differs, and a text that says how."""
    facts = dict(after.facts)
    for name, fact in before.facts:
        if name not in facts:
            yield name, f"no {name}"
        elif fact != facts[name]:
            yield (
                name,
                _told(fact, facts[name]) if name == "machine code" else f"{name} {_spell(fact, facts[name])}",
            )
    if len(before.facts) != len(after.facts):
        yield "", "other parameters"
    if before.after != after.after:
        yield "", "waits for other work, or in another way"


def _told(before: Fact, after: Fact) -> str:
    """Return how machine code differs. Two fingerprints say nothing to a reader."""
    unknown = any(UNKNOWN_CODE in str(code) for code in (before, after))
    return "another function, whose machine code is not known" if unknown else "other machine code"


def _spell(before: Fact, after: Fact) -> str:
    if not isinstance(before, tuple) or not isinstance(after, tuple):
        return f"{_text(before)} → {_text(after)}"
    if len(before) == len(after) and not all(isinstance(part, int) for part in before):
        first, second = next(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1])
        return f"{_text(first)} → {_text(second)}"
    return f"{_text(before)} → {_text(after)}"


def _text(part: object) -> str:
    if isinstance(part, tuple):
        return "×".join(map(_text, part))
    return str(int.from_bytes(part, "little")) if isinstance(part, bytes) else str(part)
