"""Draw random inputs. Inputs are never zero: an H200 runs a bf16 product 13 % faster on zeros than on random data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Draw:
    """Draws tensors on one device from one seed. Suites name dtypes as strings and import no torch.

    On "meta", tensors are empty. A random draw on "meta" would load torch's reference implementations and with them
    torch._dynamo, which takes 2 s.
    """

    def __init__(self, device: torch.device | str, seed: int) -> None:
        self.device = torch.device(device)
        self._generator: torch.Generator | None = None
        if self.device.type != "meta":
            self._generator = torch.Generator(self.device).manual_seed(seed)

    def normal(self, *shape: int, dtype: str = "bfloat16", scale: float = 1.0) -> torch.Tensor:
        """Return normal values with standard deviation ``scale``; shape ``[*shape]``."""
        if self._generator is None:
            return self.empty(*shape, dtype=dtype)
        values = torch.randn(shape, generator=self._generator, device=self.device, dtype=torch.float32)
        return (values * scale).to(_dtype(dtype))

    def uniform(self, *shape: int, low: float, high: float, dtype: str = "float32") -> torch.Tensor:
        """Return values uniform in ``[low, high)``; shape ``[*shape]``."""
        if self._generator is None:
            return self.empty(*shape, dtype=dtype)
        values = torch.rand(shape, generator=self._generator, device=self.device, dtype=torch.float32)
        return (values * (high - low) + low).to(_dtype(dtype))

    def integers(self, *shape: int, low: int, high: int, dtype: str = "int32") -> torch.Tensor:
        """Return integers uniform in ``[low, high)``; shape ``[*shape]``."""
        if self._generator is None:
            return self.empty(*shape, dtype=dtype)
        return torch.randint(low, high, shape, generator=self._generator, device=self.device, dtype=_dtype(dtype))

    def empty(self, *shape: int, dtype: str = "bfloat16") -> torch.Tensor:
        """Return an uninitialised output buffer."""
        return torch.empty(shape, device=self.device, dtype=_dtype(dtype))

    def tensor(self, values: Any, dtype: str) -> torch.Tensor:
        """Return the given values (offsets of ragged groups, for example) as a tensor on the draw's device."""
        return torch.tensor(values, device=self.device, dtype=_dtype(dtype))


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is not a torch dtype; write it as torch does, e.g. 'bfloat16'")
    return dtype


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return every tensor in a tensor, tuple, list or dict, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors_of(part)]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors_of(part)]
    return []


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a tensor, tuple, list or dict with every tensor in it replaced by ``change(tensor)``."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: map_tensors(part, change) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(part, change) for part in value)
    return value


def shuffled(value: Any) -> Any:
    """Return a tensor, tuple, list or dict with each tensor's elements shuffled; "meta" tensors stay as they are."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_meta:
            return tensor
        order = torch.randperm(tensor.numel(), device=tensor.device)
        return torch.empty_like(tensor).copy_(tensor.flatten()[order].view(tensor.shape))

    return map_tensors(value, change)
