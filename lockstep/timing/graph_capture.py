"""Capture calls in a CUDA graph, and clean up so that a failed call has no effect on later captures.

If a call invalidates a capture, ``capture_end`` of torch 2.11 raises before it informs the allocator, and
``torch.cuda.graph`` does not leave its stream. The pool then refuses every later capture ("already recording to
mempool_id"), and an honest variant would be blamed. torch 2.12 ends the pool's recording itself (pytorch#180395) but
does not restore the stream. Sources: ``CUDAGraph::capture_end`` in aten/src/ATen/cuda/CUDAGraph.cpp,
``torch.cuda.graph``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lockstep.timing.graph_nodes import require_work
from lockstep.timing.rules import Disqualified

#: Graphs whose capture failed and whose memory torch did not release. The allocator of pinned memory holds a callback
#: that reads such a graph, so the graph must outlive the process's last allocation.
_ABANDONED: list[torch.cuda.CUDAGraph] = []


class CaptureError(RuntimeError):
    """A variant cannot be captured in a CUDA graph. The variant is not timed without a graph, which would take 6–7×
    as long.
    """


def capture_graph(calls: Sequence[Callable[[], Any]], pool: Any) -> torch.cuda.CUDAGraph:
    """Return a graph of the calls, ready to launch.

    Args:
        calls: the calls to capture; each must launch work on the GPU.
        pool: owns the memory that the calls allocate. After an error use another pool: a pool whose last graph is gone
            cannot be captured into again (torch 2.11).

    Raises:
        CaptureError: a call synchronises, allocates outside torch, raises, or cannot be captured for another reason.
        NotImplementedError: a call raised this error.
        torch.cuda.OutOfMemoryError: the device has too little memory.
        Disqualified: ``EMPTY_GRAPH``, the calls launched fewer operations than there are calls.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    stream = torch.cuda.current_stream()
    failed: Exception | None = None  # raised by a call; ending the broken capture may raise another error
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
    """End a capture wherever it stopped, free its memory, and make ``stream`` current again."""
    native: Any = torch._C
    capturing = torch.cuda.graph.default_capture_stream
    if capturing is not None:
        # A call that changed the current stream prevented torch from ending the capture.
        torch.cuda.set_stream(capturing)
        if torch.cuda.is_current_stream_capturing():
            with contextlib.suppress(RuntimeError):
                native._CUDAGraph.capture_end(graph)
    torch.cuda.set_stream(stream)
    graph.reset()
    try:
        native._cuda_endAllocateToPool(stream.device_index, pool)
    except RuntimeError:
        return  # torch has ended the capture, and frees the memory with the graph
    _ABANDONED.append(graph)
    native._cuda_releasePool(stream.device_index, pool)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
