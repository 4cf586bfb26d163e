"""Read a captured CUDA graph from the driver, as nodes of ``lockstep.same_work.work``.

Functions, structures and numbers are those of cuda.h (CUDA 12.3 and later). The driver's library is called directly,
because its functions and structures keep their form from version to version.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lockstep.machine_code.compiling.cubin import fingerprint
from lockstep.same_work.work import UNKNOWN_CODE, Edge, Fact, Node, Work

#: ``CUgraphNodeType``: the kinds of nodes whose work is known. Others run code of the host, allocate memory, wait for
#: events, or decide on the GPU what runs.
_KERNEL, _COPY, _SET, _EMPTY = 0, 1, 2, 5
_OTHERS = {3: "a function of the host", 4: "another graph", 6: "a wait for an event", 7: "the record of an event",
           8: "a semaphore", 9: "a semaphore", 10: "an allocation", 11: "a release of memory", 12: "memory operations",
           13: "a branch on the device"}  # fmt: skip

#: ``CUlaunchAttributeID``, as far as nodes of a graph have them. Stream order and PDL are edges of the graph.
_ATTRIBUTES = {1: "access policy", 2: "cooperative", 4: "cluster", 5: "cluster scheduling", 8: "priority",
               9: "memory domains", 10: "memory domain", 11: "preferred cluster", 13: "updatable",
               14: "shared memory carveout", 16: "NVLink scheduling"}  # fmt: skip

#: The attribute that holds an address.
_ACCESS_POLICY = 1

#: ``CUfunction_attribute``: registers, local and shared memory, cache mode, cluster sizes and so on.
_FUNCTION_ATTRIBUTES = range(16)
_NAMED = {1: "static shared memory", 3: "local memory", 4: "registers"}

#: ``CUmemorytype`` and ``CUpointer_attribute``.
_DEVICE_MEMORY, _UNIFIED_MEMORY, _MEMORY_TYPE = 2, 4, 2

#: Keys of ``extra`` of a launch whose parameters are one block of bytes.
_BLOCK, _BLOCK_SIZE = 1, 2

#: Maximum bytes of one buffer that are compared by their contents.
MOST_CONTENTS = 16 << 20


class _Kernel(Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = [
        ("func", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("params", POINTER(c_void_p)),
        ("extra", POINTER(c_void_p)),
        ("kern", c_void_p),
        ("ctx", c_void_p),
    ]


class _Side(Structure):
    """The source or the destination in ``CUDA_MEMCPY3D``."""

    _fields_ = [
        ("at", c_size_t * 4),
        ("memory", c_uint),
        ("host", c_void_p),
        ("device", c_uint64),
        ("array", c_void_p),
        ("reserved", c_void_p),
        ("pitch", c_size_t * 2),
    ]


class _Copy(Structure):
    """``CUDA_MEMCPY3D``."""

    _fields_ = [("source", _Side), ("target", _Side), ("extent", c_size_t * 3)]


class _Set(Structure):
    """``CUDA_MEMSET_NODE_PARAMS``."""

    _fields_ = [
        ("target", c_uint64),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element", c_uint),
        ("extent", c_size_t * 2),
    ]


class GraphError(RuntimeError):
    """A function of the driver failed, so the graph cannot be read."""


class TritonCode:
    """The machine code of each kernel that Triton loads, by the driver's handle of its function."""

    def __init__(self) -> None:
        self._files: dict[int, Mapping[str, str]] = {}
        self._known: dict[int, str] = {}

    @classmethod
    @functools.cache
    def listening(cls) -> TritonCode:
        """Return the one object of this process that hears of each kernel that Triton loads; of none without Triton."""
        codes = cls()
        try:
            from triton import knobs
        except ImportError:
            return codes
        knobs.runtime.kernel_load_end_hook.add(codes._loaded)
        return codes

    def _loaded(self, module: Any, function: Any, name: str, metadata_group: Mapping[str, str], hash: str) -> None:  # noqa: A002
        self._files[function] = metadata_group
        self._known.pop(function, None)

    def of(self, function: int) -> str:
        """Return the fingerprint of a function's machine code; "" if Triton did not load the function."""
        if function not in self._known and function in self._files:
            files = {Path(name).suffix: Path(path) for name, path in self._files[function].items()}
            try:
                metadata = SimpleNamespace(**json.loads(files[".json"].read_text()))
                asm = {"ptx": files[".ptx"].read_text(), "cubin": files[".cubin"].read_bytes()}
                self._known[function] = fingerprint(asm, metadata)
            except (OSError, KeyError, ValueError, IndexError):
                return ""  # Triton's cache was emptied, or has files of another form
        return self._known.get(function, "")


def read_graph(graph: int, codes: TritonCode) -> Work:
    """Return the nodes of a captured graph, with raw addresses; ``GraphError`` if a function of the driver fails.

    ``graph`` is a ``cudaGraph_t``, the same as the driver's ``CUgraph``. ``codes`` is machine code of the kernels that
    Triton loaded. Any other function has its handle as identity: in one process the same handle is the same code, and
    different handles may be.
    """
    nodes = _listed("cuGraphGetNodes", c_void_p(graph))[0]
    positions = {node: number for number, node in enumerate(nodes)}
    work = []
    for node in nodes:
        before, edges = _listed("cuGraphNodeGetDependencies_v2", c_void_p(node), edges=True)
        pairs = zip(before, edges, strict=True)
        after = tuple(sorted((Edge(positions[other], data) for other, data in pairs), key=lambda edge: edge.node))
        work.append(_node(node, after, codes))
    return tuple(work)


def contents(start: int, size: int) -> str:
    """Return a digest of a range of the GPU's memory; "" if it is too large to compare or cannot be read."""
    if size > MOST_CONTENTS:
        return ""
    copy = ctypes.create_string_buffer(size)
    status = _driver().cuMemcpyDtoH_v2(copy, c_uint64(start), c_size_t(size))
    return "" if status else hashlib.sha256(copy).hexdigest()[:16]


def is_device_memory(address: int) -> bool:
    """Return whether an address lies in memory of a GPU."""
    kind = c_uint()
    status = _driver().cuPointerGetAttribute(byref(kind), c_int(_MEMORY_TYPE), c_uint64(address))
    return not status and kind.value == _DEVICE_MEMORY


def _node(node: int, after: tuple[Edge, ...], codes: TritonCode) -> Node:
    kind = c_int()
    _call("cuGraphNodeGetType", c_void_p(node), byref(kind))
    if kind.value == _KERNEL:
        return _kernel(node, after, codes)
    if kind.value == _COPY:
        return _copy(node, after)
    if kind.value == _SET:
        set_ = _Set()
        _call("cuGraphMemsetNodeGetParams", c_void_p(node), byref(set_))
        return Node("set", (("target", bytes(c_uint64(set_.target))), ("pitch", set_.pitch), ("value", set_.value),
                            ("element", set_.element), ("extent", tuple(set_.extent))), after)  # fmt: skip
    if kind.value == _EMPTY:
        return Node("empty", after=after)
    return Node(_OTHERS.get(kind.value, f"a node of type {kind.value}"), after=after, unknown="its work is not known")


def _kernel(node: int, after: tuple[Edge, ...], codes: TritonCode) -> Node:
    launch, function, name = _Kernel(), c_void_p(), c_char_p()
    _call("cuGraphKernelNodeGetParams_v2", c_void_p(node), byref(launch))
    function.value = launch.func
    if not function.value:
        _call("cuKernelGetFunction", byref(function), c_void_p(launch.kern))
    _call("cuFuncGetName", byref(name), function)
    handle, mangled = function.value or 0, (name.value or b"").decode(errors="replace")
    facts: list[tuple[str, Fact]] = [
        ("machine code", codes.of(handle) or f"function {handle:#x} {mangled}, {UNKNOWN_CODE}"),
        ("grid", tuple(launch.grid)),
        ("block", tuple(launch.block)),
        ("shared memory", launch.shared),
        *_attributes(node, function),
    ]
    parameters = list(_parameters(launch, function))
    facts += [(f"parameter {index}", value) for index, value in enumerate(parameters) if value is not None]
    unknown = "" if None not in parameters else "its parameters cannot be read"
    return Node("kernel", tuple(facts), after, unknown, unmangled(mangled))


def unmangled(name: str) -> str:
    """Return a kernel's own name, without namespaces and template arguments: "reduce_kernel" for "_ZN2at6native13…".

    Source: "<nested-name>" and "<source-name>" of the Itanium C++ ABI. Other names are returned as they are.
    """
    rest = re.sub(r"^_Z(NK?)?", "", name)
    own = ""
    while rest != name and (found := re.match(r"[1-9]\d*", rest)):
        own, rest = rest[found.end() :][: int(found[0])], rest[found.end() + int(found[0]) :]
    return own or name


def _attributes(node: int, function: c_void_p) -> Iterator[tuple[str, Fact]]:
    """Yield the attributes of a launch and of its function; an attribute that the driver refuses is left out."""
    driver = _driver()
    for number, name in _ATTRIBUTES.items():
        value = (ctypes.c_ubyte * 64)()  # the size of CUlaunchAttributeValue
        if not driver.cuGraphKernelNodeGetAttribute(c_void_p(node), c_int(number), byref(value)):
            # Only the window of the access policy has an address; other values need no search for one.
            yield name, bytes(value) if number == _ACCESS_POLICY else bytes(value).hex()
    for number in _FUNCTION_ATTRIBUTES:
        setting = c_int()
        if not driver.cuFuncGetAttribute(byref(setting), c_int(number), function):
            yield _NAMED.get(number, f"function attribute {number}"), setting.value


def _parameters(launch: _Kernel, function: c_void_p) -> Iterator[bytes | None]:
    """Yield the bytes of each parameter; ``None`` if they cannot be read."""
    offset, size, end = c_size_t(), c_size_t(), 0
    sizes: list[tuple[int, int]] = []
    while not _driver().cuFuncGetParamInfo(function, c_size_t(len(sizes)), byref(offset), byref(size)):
        sizes.append((offset.value, size.value))
        end = offset.value + size.value
    if not sizes:
        return
    if launch.params:
        for index, (_, length) in enumerate(sizes):
            address = launch.params[index]
            yield ctypes.string_at(address, length) if address else None
        return
    block = _block(launch)
    if len(block) < end:
        yield None
        return
    yield from (block[start : start + length] for start, length in sizes)


def _block(launch: _Kernel) -> bytes:
    """Return the parameters of a launch that got them as one block of bytes (``extra``)."""
    address = size = index = 0
    while launch.extra and (key := launch.extra[index] or 0):
        value = launch.extra[index + 1] or 0
        address = value if key == _BLOCK else address
        size = c_size_t.from_address(value).value if key == _BLOCK_SIZE and value else size
        index += 2
    return ctypes.string_at(address, size) if address else b""


def _copy(node: int, after: tuple[Edge, ...]) -> Node:
    copy = _Copy()
    _call("cuGraphMemcpyNodeGetParams", c_void_p(node), byref(copy))
    facts: list[tuple[str, Fact]] = [("extent", tuple(copy.extent))]
    unknown = ""
    for name, side in (("source", copy.source), ("target", copy.target)):
        address = side.device if side.memory == _DEVICE_MEMORY else side.device or side.host or 0
        if side.memory not in (_DEVICE_MEMORY, _UNIFIED_MEMORY) or not is_device_memory(address):
            # The host may write other values there before each replay.
            unknown = f"its {name} is not in the GPU's memory"
        facts += [(name, bytes(c_uint64(address))), (f"{name} from", tuple(side.at)), ("pitch", tuple(side.pitch))]
    return Node("copy", tuple(facts), after, unknown)


def _listed(function: str, handle: c_void_p, *, edges: bool = False) -> tuple[list[int], list[bytes]]:
    """Return the nodes that a function of the driver lists; with ``edges`` also the data of the edges to them."""
    count, none = c_size_t(), [None] if edges else []
    _call(function, handle, None, *none, byref(count))
    nodes, data = (c_void_p * count.value)(), (c_uint64 * count.value)()
    if count.value:  # the driver refuses to list no nodes
        _call(function, handle, nodes, *([data] if edges else []), byref(count))
    return [node or 0 for node in nodes], [bytes(c_uint64(edge)) for edge in data]


def _call(function: str, *arguments: Any) -> None:
    if status := getattr(_driver(), function)(*arguments):
        raise GraphError(f"{function} failed with CUresult {status}")


@functools.cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise GraphError(f"the driver's library cannot be loaded: {error}") from error
