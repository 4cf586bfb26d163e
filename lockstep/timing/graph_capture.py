"""Capture calls in a CUDA graph, so that a call that fails leaves no trace in the process.

If a call invalidates a capture, ``capture_end`` of torch 2.11 raises before it tells the allocator, and
``torch.cuda.graph`` does not leave its stream. The pool then refuses every further capture ("already recording to
mempool_id"), and an honest variant would be accused. torch 2.12 ends the pool itself (pytorch#180395), but leaves the
stream as it is. Sources: ``CUDAGraph::capture_end`` in aten/src/ATen/cuda/CUDAGraph.cpp, ``torch.cuda.graph``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lockstep.timing.graph_nodes import require_work
from lockstep.timing.rules import Disqualified

#: Graphs whose capture failed and whose memory torch did not end. The allocator of pinned memory keeps a function that
#: reads such a graph, so it must outlive the process's last allocation.
_ABANDONED: list[torch.cuda.CUDAGraph] = []


class CaptureError(RuntimeError):
    """A variant cannot be captured in a CUDA graph. It is not timed another way, which would show 6–7× its time."""


def capture_graph(calls: Sequence[Callable[[], Any]], pool: Any) -> torch.cuda.CUDAGraph:
    """Return a graph of the calls, ready to be launched.

    Args:
        calls: what to capture; each must launch something.
        pool: owns what they allocate. After an error take another: a pool whose last graph is gone cannot be captured
            into again (torch 2.11).

    Raises:
        CaptureError: a call synchronises, allocates outside torch, raises, or is otherwise unfit.
        NotImplementedError: from a call.
        torch.cuda.OutOfMemoryError: no room.
        Disqualified: ``EMPTY_GRAPH``, a call launched nothing.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    stream = torch.cuda.current_stream()
    failed: Exception | None = None  # in a call; ending the broken capture may raise as well
    try:
        with torch.cuda.graph(graph, pool=pool):
            try:
                for call in calls:
                    call()
            except Exception as error:
                failed = error
                raise
        require_work(graph.raw_cuda_graph(), len(calls))
        graph.instantiate()
    except Exception as error:
        _abandon(graph, pool, stream)
        first = failed or error
        if isinstance(first, (NotImplementedError, torch.cuda.OutOfMemoryError, Disqualified)):
            raise first from None
        raise CaptureError(f"cannot be captured in a CUDA graph: {_first_line(first)}") from error
    return graph


def _abandon(graph: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream) -> None:
    """End a capture wherever it stopped, give its memory back, and go on with ``stream``."""
    native: Any = torch._C
    capturing = torch.cuda.graph.default_capture_stream
    if capturing is not None:
        # A call that changed the current stream kept torch from ending the capture.
        torch.cuda.set_stream(capturing)
        if torch.cuda.is_current_stream_capturing():
            with contextlib.suppress(RuntimeError):
                native._CUDAGraph.capture_end(graph)
    torch.cuda.set_stream(stream)
    graph.reset()
    try:
        native._cuda_endAllocateToPool(stream.device_index, pool)
    except RuntimeError:
        return  # torch has ended it, and gives the memory back with the graph
    _ABANDONED.append(graph)
    native._cuda_releasePool(stream.device_index, pool)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
