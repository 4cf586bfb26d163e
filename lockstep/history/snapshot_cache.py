"""What was worked out of a picture of the results, kept as long as the picture and no longer."""

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
class _Made:
    """A thing, once it is made."""

    done: bool = False
    value: Any = None
    #: Items that it holds, if it is a collection.
    held: int = 0


#: Things that one function keeps of a picture, the longest unused goes first: a walk along the commits must not
#: push out what every page of a machine needs. Fewer are kept of things that hold very much together.
_MOST, _MOST_HELD = 16, 200_000

_KEPT: WeakKeyDictionary[Results, dict[Hashable, OrderedDict[Hashable, _Made]]] = WeakKeyDictionary()
_LOCK = threading.Lock()

#: Held by the thread that makes things. Python runs one thread at a time, so several that make large things take no
#: less time than one after the other, and hold the memory of all at once.
_MAKING = threading.RLock()


def once(results: Results, who: Hashable, key: Hashable, make: Callable[[], T]) -> T:
    """What ``make`` gives, made once for this picture and key; who asks meanwhile waits for it.

    Args:
        results: the picture; a refreshed one is another.
        who: what is made. key: of what.
        make: takes nothing, and gives something that nobody changes.
    """
    with _LOCK:
        kept = _KEPT.setdefault(results, {}).setdefault(who, OrderedDict())
        made = kept.setdefault(key, _Made())
        kept.move_to_end(key)
        while len(kept) > _MOST:
            kept.popitem(last=False)
    if not made.done:
        with _MAKING:
            if not made.done:
                made.value = make()
                made.held = len(made.value) if isinstance(made.value, Sized) else 1
                made.done = True
                with _LOCK:
                    while len(kept) > 1 and sum(one.held for one in kept.values()) > _MOST_HELD:
                        kept.popitem(last=False)
    found: T = made.value
    return found


def remembered(function: Callable[Concatenate[Results, P], T]) -> Callable[Concatenate[Results, P], T]:
    """``once`` for a function of a picture and further (hashable) arguments."""

    @wraps(function)
    def ask(results: Results, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = args, tuple(sorted(kwargs.items()))
        return once(results, function, key, lambda: function(results, *args, **kwargs))

    return ask
