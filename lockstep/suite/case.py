"""Cases: the shapes at which the kernels of a family are measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

Axis = int | float | str | bool


class Case(Mapping[str, Axis]):
    """One shape: axis name to value, e.g. ``Case(M=8, K=4096, N=2048)``. Immutable and hashable."""

    __slots__ = ("_axes",)

    def __init__(self, **axes: Axis) -> None:
        self._axes = tuple(axes.items())

    @property
    def label(self) -> str:
        """Return the case as text, ``M=8,K=4096,N=2048``. A true axis is written as its name, a false one left out."""
        return ",".join(
            name if value is True else f"{name}={value}" for name, value in self._axes if value is not False
        )

    def __getitem__(self, name: str) -> Axis:
        for axis, value in self._axes:
            if axis == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._axes)

    def __len__(self) -> int:
        return len(self._axes)

    def __hash__(self) -> int:
        return hash(self._axes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self._axes == other._axes

    def __repr__(self) -> str:
        return f"Case({self.label})"


def grid(**axes: Axis | list[Any] | tuple[Any, ...]) -> tuple[Case, ...]:
    """Return every combination of the axes, first axis slowest: ``grid(K=4096, N=2048, M=[1, 2, 4])``."""
    values = [value if isinstance(value, list | tuple) else [value] for value in axes.values()]
    return tuple(Case(**dict(zip(axes, combination, strict=True))) for combination in itertools.product(*values))
