"""Counts of requests by client: the memory storage of the ``limits`` library, made safe for many threads.

Each counted request starts a timer that drops expired counts, if none runs. In limits 5.8 two requests at once may both
start the timer that the second one made: the first of them answers 500, "threads can only be started once".
"""

from __future__ import annotations

import threading

from limits.storage import MemoryStorage


class RequestCounts(MemoryStorage):
    """limits' ``MemoryStorage``, counting one request at a time; named ``one-by-one://``."""

    STORAGE_SCHEME = ["one-by-one"]  # noqa: RUF012  # as its parent declares it

    def __init__(self, uri: str | None = None, wrap_exceptions: bool = False, **options: str) -> None:
        self._one = threading.Lock()
        super().__init__(uri, wrap_exceptions, **options)

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Add to the count and return it; ``expiry`` is in seconds."""
        with self._one:
            return super().incr(key, expiry, amount)
