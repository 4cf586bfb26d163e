"""Clear the stack, so that memory which a library leaves undefined is equal in two captures.

Some kernels of torch get a structure with padding or unset members as a parameter (``ReduceOp``, ``TensorIterator``).
Such bytes hold whatever earlier calls left on the stack, so two graphs of one call differ.
"""

from __future__ import annotations

import ctypes
import os

#: Bytes below the caller's frame that are cleared. Torch's calls from Python to a launch need less.
_BYTES = 256 << 10


class _Zeros(ctypes.Structure):
    """A structure that a C function gets by value, so its caller copies it to the stack."""

    _fields_ = [("bytes", ctypes.c_ubyte * _BYTES)]


_ZEROS = _Zeros()
_FUNCTION = ctypes.CDLL(None).getpid if os.name == "posix" else None


def clear_stack() -> None:
    """Fill the part of this thread's stack that the next calls use with zeros."""
    if _FUNCTION is not None:
        _FUNCTION(_ZEROS)  # any function that ignores its arguments
