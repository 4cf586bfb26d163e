"""Check that a captured CUDA graph contains work for every call."""

from __future__ import annotations

import ctypes

from lockstep.timing.rules.rule import Disqualified, Rule

#: Node types that do nothing on the GPU: host function, empty, event wait and event record (CUgraphNodeType of cuda.h).
_IDLE_NODES = {3, 5, 6, 7}


def require_work(raw_graph: int, calls: int) -> None:
    """Refuse a captured graph that has fewer working nodes (kernels, copies, fills) than calls.

    Raise ``Disqualified`` by the rule ``EMPTY_GRAPH``. Raise ``RuntimeError`` if a driver function fails.
    """
    driver, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(raw_graph)
    count = ctypes.c_size_t()
    _require_success("cuGraphGetNodes", driver.cuGraphGetNodes(handle, None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    if count.value:  # the driver refuses to list the nodes of an empty graph
        _require_success("cuGraphGetNodes", driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count)))
    kind, working = ctypes.c_int(), 0
    for node in nodes:
        _require_success("cuGraphNodeGetType", driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
        working += kind.value not in _IDLE_NODES
        if working >= calls:
            return
    raise Disqualified(Rule.EMPTY_GRAPH, f"{calls} captured calls launched only {working} kernels, copies and fills")


def _require_success(function: str, status: int) -> None:
    if status:
        raise RuntimeError(f"{function} failed with CUresult {status}")
