"""End a verb that hangs in a kernel. Verbs that call kernels in their own process, as a profiler requires, use this."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

from lockstep.processes.exit_status import BROKEN


class Deadline:
    """A countdown that ends the process with status ``BROKEN`` if ``renew`` is not called for some seconds.

    ``deadline`` creates it. A separate thread ends the process, because Python runs no signal handler while it waits
    for a GPU kernel.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._doing = "at start"
        self._renewed = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def renew(self, stage: str, variant: str = "") -> None:
        """Restart the countdown; the message at its end names this ``stage`` and ``variant``."""
        self._doing = f"{variant} ({stage})" if variant else stage
        self._renewed.set()

    def end(self) -> None:
        """Stop the countdown without ending the process."""
        self._over = True
        self._renewed.set()
        self._thread.join()

    def _watch(self) -> None:
        while self._renewed.wait(self._seconds):
            self._renewed.clear()
            if self._over:
                return
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            print(f"hung for {self._seconds:g} s: {self._doing}", file=sys.stderr, flush=True)
        os._exit(BROKEN)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[Deadline]:
    """Run the block under a ``Deadline`` of ``seconds`` between calls of ``renew``. In it, Ctrl-C ends the process."""
    former = signal.signal(signal.SIGINT, signal.SIG_DFL)
    watch = Deadline(seconds)
    try:
        yield watch
    finally:
        watch.end()
        signal.signal(signal.SIGINT, former)
