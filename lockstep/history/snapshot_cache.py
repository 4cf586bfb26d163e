"""Cache results of functions of a snapshot for the life of the snapshot."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from lockstep.history.snapshot import Results

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Entry:
    """A cached value, empty until the value is computed. ``size`` is the number of items in a collection."""

    done: bool = False
    value: Any = None
    size: int = 0


#: Limits of cached values and of their items. The longest unused value is dropped first. The limits are per function
#: and snapshot: a walk along the commits must not evict values that every page of a machine needs.
_MOST, _MOST_ITEMS = 16, 200_000

#: Values that are cached of a function of a single commit. Such a value takes 1 MB for 1,200 series.
_FEW = 6

_CACHE: WeakKeyDictionary[Results, dict[Hashable, OrderedDict[Hashable, _Entry]]] = WeakKeyDictionary()
_LOCK = threading.Lock()

#: The computing thread holds this lock. Python runs one thread at a time, so parallel computations of large values
#: would save no time and need the memory of all of them at once.
_COMPUTING = threading.RLock()


def once(results: Results, who: Hashable, key: Hashable, make: Callable[[], T], most: int = _MOST) -> T:
    """Return the value of ``make``, computed once per snapshot, function and key. Other threads wait for the value.

    Args:
        results: the snapshot.
        who: the function whose value is cached.
        key: the arguments of the function.
        make: takes no arguments, and returns a value that callers do not modify.
        most: maximum number of values that are cached of the function.
    """
    with _LOCK:
        entries = _CACHE.setdefault(results, {}).setdefault(who, OrderedDict())
        entry = entries.setdefault(key, _Entry())
        entries.move_to_end(key)
        while len(entries) > most:
            entries.popitem(last=False)
    if not entry.done:
        with _COMPUTING:
            if not entry.done:
                entry.value = make()
                entry.size = len(entry.value) if isinstance(entry.value, Sized) else 1
                entry.done = True
                with _LOCK:
                    while len(entries) > 1 and sum(each.size for each in entries.values()) > _MOST_ITEMS:
                        entries.popitem(last=False)
    found: T = entry.value
    return found


def remembered(function: Callable[Concatenate[Results, P], T]) -> Callable[Concatenate[Results, P], T]:
    """Cache a function of a snapshot and hashable arguments, see ``once``."""
    return _cached(function, _MOST)


def remembered_few(function: Callable[Concatenate[Results, P], T]) -> Callable[Concatenate[Results, P], T]:
    """Cache the last few values, see ``remembered``: for values of a single commit, which are large and many."""
    return _cached(function, _FEW)


def _cached(function: Callable[Concatenate[Results, P], T], most: int) -> Callable[Concatenate[Results, P], T]:
    @wraps(function)
    def ask(results: Results, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = args, tuple(sorted(kwargs.items()))
        return once(results, function, key, lambda: function(results, *args, **kwargs), most)

    return ask
