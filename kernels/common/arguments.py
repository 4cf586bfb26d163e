"""Check a kernel's arguments. A failed check raises a ``ValueError`` that names the argument.

A kernel that reads a wrong stride returns wrong numbers without an error. So every public function checks each tensor
before it launches anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def expect(
    tensor: torch.Tensor,
    name: str,
    *,
    shape: Sequence[int | None] | None = None,
    dtype: torch.dtype | Sequence[torch.dtype] | None = None,
    device: torch.device | None = None,
    contiguous: bool = False,
) -> None:
    """Raise unless the tensor has the shape, dtype, device and layout that the kernel needs.

    Args:
        name: the tensor's name in the caller's signature; every message begins with the name.
        shape: the required size of each dimension; a size of ``None`` accepts any size.
        dtype: the accepted dtype, or a sequence of accepted dtypes.
        device: the device on which the tensor must lie.
        contiguous: whether the tensor must be row-major without gaps.

    Raises:
        ValueError: the tensor fails a check; the message names the tensor, what it is and what was expected.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if shape is not None:
        fits = tensor.dim() == len(shape) and all(
            want is None or have == want for have, want in zip(tensor.shape, shape, strict=True)
        )
        if not fits:
            expected = ", ".join("any" if size is None else str(size) for size in shape)
            raise ValueError(f"{name} must have shape [{expected}], got {list(tensor.shape)}")
    if dtype is not None:
        accepted = (dtype,) if isinstance(dtype, torch.dtype) else tuple(dtype)
        if tensor.dtype not in accepted:
            names = " or ".join(str(dtype_name).removeprefix("torch.") for dtype_name in accepted)
            raise ValueError(f"{name} must be {names}, got {str(tensor.dtype).removeprefix('torch.')}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} must be on {device}, got {tensor.device}")
    if contiguous and not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous, got strides {list(tensor.stride())} for shape {list(tensor.shape)}; "
            f"call {name}.contiguous() first"
        )
