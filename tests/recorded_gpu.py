"""A GPU that records what it is asked to do: a stand-in for captured graphs, which generated packages import.

A kernel is a Python function. Its bytecode is its machine code, so names of locals, comments and lines do not count.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from lockstep.same_work.work import Buffer, Edge, Node, Work

#: Each address differs from that of the other side only where a side has memory of its own.
_memory: dict[int, bytes] = {}
_next = [0x7F00_0000_0000]


@dataclass(frozen=True)
class Tensor:
    """Memory on the stand-in."""

    address: int
    size: int
    values: tuple[int, ...] = ()

    def at(self, offset: int) -> Tensor:
        return Tensor(self.address + offset, self.size - offset)


def tensor(size: int, content: bytes = b"", values: tuple[int, ...] = ()) -> Tensor:
    """Memory at an address of its own, with a content."""
    address = _next[0]
    _next[0] += (size + 511) // 512 * 512 + 512
    _memory[address] = content.ljust(size, b"\0")
    return Tensor(address, size, values)


@dataclass
class Graph:
    """A graph that is being captured: a main stream and others that it forks."""

    nodes: list[Node] = field(default_factory=list)
    last: dict[str, list[int]] = field(default_factory=dict)
    pool: int = 0x7A00_0000_0000

    def add(
        self, kind: str, facts: tuple[tuple[str, Any], ...], name: str, stream: str, edge: bytes, unknown: str = ""
    ) -> None:
        after = tuple(Edge(number, edge) for number in self.last.get(stream, []))
        self.nodes.append(Node(kind, facts, after, unknown, name))
        self.last[stream] = [len(self.nodes) - 1]


_graph = [Graph()]


def captured(call: Any) -> Work:
    """The graph of a call."""
    _graph[0] = Graph()
    call()
    return tuple(_graph[0].nodes)


def empty(size: int) -> Tensor:
    """Memory from the graph's pool, which starts at the same address for both sides."""
    graph = _graph[0]
    graph.pool += 4096
    return Tensor(graph.pool, size)


def launch(
    kernel: Any, grid: Any, *args: Any,
    block: int = 128, shared: int = 0, cluster: int = 1, stream: str = "main", pdl: bool = False, carveout: int = -1,
) -> None:  # fmt: skip
    """Launch a kernel, or a library's function by its name."""
    code = kernel if isinstance(kernel, str) else machine_code(kernel.__code__)
    facts = [("machine code", code), ("grid", tuple(grid)), ("block", (block, 1, 1)), ("shared memory", shared),
             ("cluster", struct.pack("<III", cluster, 1, 1)), ("carveout", carveout)]  # fmt: skip
    facts += [(f"parameter {number}", _bytes(value)) for number, value in enumerate(args)]
    name = kernel if isinstance(kernel, str) else kernel.__name__
    _graph[0].add("kernel", tuple(facts), name, stream, bytes([0, 0, 1 if pdl else 0, *bytes(5)]))


def copy(target: Tensor, source: Tensor, size: int, stream: str = "main") -> None:
    _graph[0].add(
        "copy", (("source", _bytes(source)), ("target", _bytes(target)), ("extent", (size,))), "", stream, bytes(8)
    )


def fill(target: Tensor, value: int, stream: str = "main") -> None:
    _graph[0].add("set", (("target", _bytes(target)), ("value", value)), "", stream, bytes(8))


def other(kind: str) -> None:
    """A node whose work is not known: a host function, a branch on the device."""
    _graph[0].add(kind, (), "", "main", bytes(8), "its work is not known")


def fork(stream: str) -> None:
    _graph[0].last[stream] = list(_graph[0].last.get("main", []))


def join(stream: str) -> None:
    _graph[0].last["main"] = sorted({*_graph[0].last.get("main", []), *_graph[0].last.get(stream, [])})


def descriptor(tensor: Tensor, box: int) -> bytes:
    """A TMA descriptor: its address first, 128 bytes in all."""
    return struct.pack("<QQ", tensor.address, box).ljust(128, b"\0")


def live(address: int) -> Buffer | None:
    """The buffer at an address, by size and content."""
    for start, content in _memory.items():
        if start <= address < start + len(content):
            name = f"{len(content)} bytes {hashlib.sha256(content).hexdigest()[:8]}"
            return Buffer(name, start, start + len(content), start)
    return None


def is_memory(address: int) -> bool:
    return 0x7A00_0000_0000 <= address < 0x7B00_0000_0000 or live(address) is not None


def forget() -> None:
    """Free everything."""
    _memory.clear()


def shared(**tensors: Tensor) -> list[Buffer]:
    """The buffers that both sides get."""
    return [Buffer(name, one.address, one.address + one.size, one.address) for name, one in tensors.items()]


def machine_code(code: CodeType) -> str:
    constants = [
        machine_code(one) if isinstance(one, CodeType) else repr(one)
        for place, one in enumerate(code.co_consts)
        if place or not isinstance(one, str | None)  # the docstring
    ]
    return hashlib.sha256(repr((code.co_code, constants, code.co_names)).encode()).hexdigest()[:16]


def _bytes(value: Any) -> bytes:
    if isinstance(value, Tensor):
        return struct.pack("<Q", value.address)
    return value if isinstance(value, bytes) else struct.pack("<d" if isinstance(value, float) else "<q", value)
