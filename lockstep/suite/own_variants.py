"""Let a suite define variants itself: methods that import the package under test when they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, overload

Function = Callable[..., Any]


@dataclass(frozen=True)
class Adapter:
    """A method that is a variant of its suite.

    ``prepare``: function that returns further named arguments (packed weights, for example) from the suite's inputs, or
    ``None``. ``prepare`` runs before timing, never in the timed part.
    """

    function: Function
    prepare: Function | None = None

    def __get__(self, suite: object, owner: type | None = None) -> Any:
        """Return the adapter itself when read from the class, and the bound method when read from a suite."""
        return self if suite is None else MethodType(self.function, suite)


@overload
def variant(function: Function, /) -> Function: ...
@overload
def variant(*, prepare: Function) -> Callable[[Function], Function]: ...
def variant(function: Function | None = None, /, *, prepare: Function | None = None) -> Any:
    """Mark a method of a suite as a variant, which gets the method's name.

    The method receives the suite's inputs that it names as parameters, and ``out`` if it names ``out``. Import the
    package under test inside the method: then every commit is measured with this method and with its own package.
    ``prepare``: function that computes further arguments from the suite's inputs before timing; see ``Adapter``.
    """
    if function is not None:
        return Adapter(function)
    return lambda function: Adapter(function, prepare)
