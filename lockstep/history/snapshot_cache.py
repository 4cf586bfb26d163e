"""Cache what functions compute from a snapshot, for as long as the snapshot exists."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from lockstep.history.snapshot import Results

P = ParamSpec("P")
T = TypeVar("T")


#: Maximum number of cached values, and of their items. The value that was not used for the longest time is dropped
#: first. Each function of a snapshot has its own limits, so that a query of every commit does not drop values that
#: every page needs.
_MOST, _MOST_ITEMS = 16, 200_000

#: Maximum number of cached values of a function of a single commit. Such a value takes 1 MB for 1,200 series.
_FEW = 6

#: For each snapshot and function, lists by the arguments: empty, or with the computed value.
_CACHE: WeakKeyDictionary[Results, dict[Hashable, OrderedDict[Hashable, list[Any]]]] = WeakKeyDictionary()
_LOCK = threading.Lock()

#: A thread holds this lock while it computes a value. Python runs one thread at a time, so parallel computations would
#: save no time, and they would need memory for several large values at once.
_COMPUTING = threading.RLock()


def remembered(
    function: Callable[Concatenate[Results, P], T], limit: int = _MOST
) -> Callable[Concatenate[Results, P], T]:
    """Decorate a function of a snapshot and hashable arguments, so that each value is computed once.

    Other threads that need the same value wait for it. Callers must not modify a value.
    """

    @wraps(function)
    def call(results: Results, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = args, tuple(sorted(kwargs.items()))
        with _LOCK:
            entries = _CACHE.setdefault(results, {}).setdefault(function, OrderedDict())
            entry = entries.setdefault(key, [])
            entries.move_to_end(key)
            while len(entries) > limit:
                entries.popitem(last=False)
        if not entry:
            with _COMPUTING:
                if not entry:
                    entry.append(function(results, *args, **kwargs))
                    with _LOCK:
                        while len(entries) > 1 and sum(map(_size, entries.values())) > _MOST_ITEMS:
                            entries.popitem(last=False)
        value: T = entry[0]
        return value

    return call


def remembered_few(function: Callable[Concatenate[Results, P], T]) -> Callable[Concatenate[Results, P], T]:
    """Decorate a function of a single commit like ``remembered``: its values are large and many, so few are cached."""
    return remembered(function, _FEW)


def _size(entry: list[Any]) -> int:
    """Return the number of items of a cached value; 0 if it is not computed yet, 1 if it is not a collection."""
    return sum(len(value) if isinstance(value, Sized) else 1 for value in entry)
