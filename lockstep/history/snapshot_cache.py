"""Results of functions of a snapshot, cached as long as the snapshot lives."""

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
    """A cached value, once it is computed; ``size`` is its number of items, if it is a collection."""

    done: bool = False
    value: Any = None
    size: int = 0


#: Values that are cached of one function and snapshot, and items in all of them; the longest unused goes first. The
#: limit is for each function: a walk along the commits must not push out what every page of a machine needs.
_MOST, _MOST_ITEMS = 16, 200_000

_CACHE: WeakKeyDictionary[Results, dict[Hashable, OrderedDict[Hashable, _Entry]]] = WeakKeyDictionary()
_LOCK = threading.Lock()

#: Held by the thread that computes. Python runs one thread at a time, so several that compute large values take no less
#: time than one after the other, and need the memory of all at once.
_COMPUTING = threading.RLock()


def once(results: Results, who: Hashable, key: Hashable, make: Callable[[], T]) -> T:
    """Return what ``make`` returns, computed once for this snapshot and key; other threads wait for it.

    Args:
        results: the snapshot.
        who: the function that asks. key: the function's arguments.
        make: takes nothing, and returns a value that nobody changes.
    """
    with _LOCK:
        entries = _CACHE.setdefault(results, {}).setdefault(who, OrderedDict())
        entry = entries.setdefault(key, _Entry())
        entries.move_to_end(key)
        while len(entries) > _MOST:
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
    """Cache a function of a snapshot and further (hashable) arguments, see ``once``."""

    @wraps(function)
    def ask(results: Results, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = args, tuple(sorted(kwargs.items()))
        return once(results, function, key, lambda: function(results, *args, **kwargs))

    return ask
