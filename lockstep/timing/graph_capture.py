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

from lockstep.timing.rules.graph_nodes import require_work
from lockstep.timing.rules.rule import Disqualified, Rule
from lockstep.timing.stack import clear_stack

#: Parts of CUDA's texts for errors of captures (``cudaErrorStreamCapture…`` 904 and 901).
_FORKED, _INVALIDATED = "capturing stream has unjoined work", "failed due to a previous error during capture"

#: Advice for the author of a variant, by a part of CUDA's text.
_ADVICE = {
    "not permitted when stream is capturing": "a call reads a value from the device, waits for it, allocates memory"
    " outside torch or changes a setting of the device",
    # Any thread can invalidate a capture of torch ("global" mode), and only that thread gets the cause.
    _INVALIDATED: "a call did what a capture does not allow and ignored the error, or another thread worked meanwhile",
    "dependency created on uncaptured work": "a call waits for a stream that is not part of the capture: make that"
    " stream wait for the caller's stream (wait_stream) before giving it work",
}

#: Graphs whose capture failed and whose memory torch did not release. The allocator of pinned memory holds a callback
#: that reads such a graph, so the graph must outlive the process's last allocation.
_ABANDONED: list[torch.cuda.CUDAGraph] = []


class CaptureError(RuntimeError):
    """A variant cannot be captured in a CUDA graph. It is not timed: timing without a graph takes 6–7 times as long."""


def capture_graph(calls: Sequence[Callable[[], Any]], pool: Any, *, launch: bool = True) -> torch.cuda.CUDAGraph:
    """Return a graph of the calls.

    Args:
        pool: owns the memory that the calls allocate. After an error use another pool: a pool whose last graph is gone
            cannot be captured into again (torch 2.11).
        launch: whether the graph is to be launched; otherwise it can only be read.

    Raises:
        CaptureError: a call synchronises, allocates outside torch, raises, or cannot be captured for another reason.
        NotImplementedError: a call raised this error.
        torch.cuda.OutOfMemoryError: the device has too little memory.
        Disqualified: ``EMPTY_GRAPH``, the calls launched fewer operations than there are calls; ``UNJOINED_WORK``, the
            calls left work on another stream.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    stream = torch.cuda.current_stream()
    failed: Exception | None = None  # raised by a call; ending the broken capture may raise another error
    try:
        with torch.cuda.graph(graph, pool=pool):
            try:
                clear_stack()
                for call in calls:
                    call()
            except Exception as error:
                failed = error
                raise
        require_work(graph.raw_cuda_graph(), len(calls))
        if launch:
            graph.instantiate()
    except Exception as error:
        _abandon(graph, pool, stream)
        first = failed or error
        if isinstance(first, (NotImplementedError, torch.cuda.OutOfMemoryError, Disqualified)):
            raise first from None
        if evidence := _unjoined(str(first)):
            raise Disqualified(Rule.UNJOINED_WORK, evidence) from error
        raise CaptureError(
            f"calls cannot be captured in a CUDA graph: {_first_line(first)}{_advice(str(first))}"
        ) from error
    return graph


def _unjoined(error: str) -> str:
    """Return how captured calls left work on another stream, if the capture's first error shows that; else ""."""
    if _FORKED in error:
        return (
            "forked another stream from the caller's and did not join it: let the caller's stream wait for that stream "
            "before the call returns"
        )
    return ""


def _advice(error: str) -> str:
    return next((f" ({advice})" for part, advice in _ADVICE.items() if part in error), "")


def _abandon(graph: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream) -> None:
    """Clean up after a failed capture: end it, free its memory, and make ``stream`` current again."""
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
