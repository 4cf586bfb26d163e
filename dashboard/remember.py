"""Answers that hold for one state of the results, kept as long as that state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from dashboard.results.picture import Results

P = ParamSpec("P")
T = TypeVar("T")

#: Answers of one function for one state; then it starts anew.
_MOST = 16


def remembered(function: Callable[Concatenate[Results, P], T]) -> Callable[Concatenate[Results, P], T]:
    """Compute once for each state of the results and other (hashable) arguments; safe with threads."""
    known: WeakKeyDictionary[Results, dict[Hashable, Any]] = WeakKeyDictionary()
    lock = threading.Lock()

    @wraps(function)
    def ask(results: Results, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, tuple(sorted(kwargs.items())))
        with lock:
            answers = known.setdefault(results, {})
            if key in answers:
                found: T = answers[key]
                return found
        answer = function(results, *args, **kwargs)
        with lock:
            if len(answers) >= _MOST:
                answers.clear()
            answers[key] = answer
        return answer

    return ask
