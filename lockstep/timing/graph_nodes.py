"""What a captured CUDA graph does: it must hold work for every call."""

from __future__ import annotations

import ctypes

from lockstep.timing.rules import Disqualified, Rule

#: Types of nodes that do nothing on the GPU: host function, empty, event wait and record (CUgraphNodeType of cuda.h).
_IDLE_NODES = {3, 5, 6, 7}


def require_work(raw_graph: int, calls: int) -> None:
    """Refuse a captured graph with fewer working nodes (kernels, copies, fills) than calls.

    Args:
        raw_graph: ``cudaGraph_t``, which is the driver's ``CUgraph``.
        calls: captured calls.

    Raises:
        Disqualified: ``EMPTY_GRAPH``.
        RuntimeError: the driver does not answer.
    """
    driver, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(raw_graph)
    count = ctypes.c_size_t()
    _require_success("cuGraphGetNodes", driver.cuGraphGetNodes(handle, None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    if count.value:  # the driver refuses to list the nodes of a graph without any
        _require_success("cuGraphGetNodes", driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count)))
    kind, working = ctypes.c_int(), 0
    for node in nodes:
        _require_success("cuGraphNodeGetType", driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
        working += kind.value not in _IDLE_NODES
        if working >= calls:
            return
    raise Disqualified(Rule.EMPTY_GRAPH, f"{calls} captured calls launched {working} kernels, copies and fills")


def _require_success(function: str, status: int) -> None:
    if status:
        raise RuntimeError(f"{function} failed with CUresult {status}")
