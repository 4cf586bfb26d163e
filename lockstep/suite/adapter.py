"""Variants that a suite defines itself: today's functions, which import the package under test when they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, overload

Function = Callable[..., Any]


@dataclass(frozen=True)
class Adapter:
    """A method that is a variant of its suite.

    Attributes:
        function: the method.
        prepare: function from the suite's inputs to further named arguments (packed weights, say); None for none.
            It runs before timing, never inside it.
    """

    function: Function
    prepare: Function | None = None

    def __get__(self, suite: object, owner: type | None = None) -> Any:
        """Return the adapter from the class, the bound method from a suite."""
        return self if suite is None else MethodType(self.function, suite)


@overload
def variant(function: Function, /) -> Function: ...
@overload
def variant(*, prepare: Function) -> Callable[[Function], Function]: ...
def variant(function: Function | None = None, /, *, prepare: Function | None = None) -> Any:
    """Mark a method of a suite as a variant of the method's name.

    It gets those of the suite's inputs that it names, and ``out`` if it takes one. Import the package under test inside
    it: the function is today's, and what it imports is the commit's.

    Args:
        function: the method.
        prepare: a function of the suite's inputs; see ``Adapter``.
    """
    if function is not None:
        return Adapter(function)
    return lambda function: Adapter(function, prepare)
