"""Account for the time of a measurement: seconds by stage. Each moment counts for one stage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

#: The stages that the worker of a commit reports. Its parent adds "start", "compile" and "rest"; see ``CommitWorker``.
STAGES = {
    "import": "the module of the suite's family",
    "check": "inputs, reference, the first call of every variant (which includes its compilation)",
    "draw": "argument sets and what variants prepare from them",
    "capture": "CUDA graphs, and one rotation to learn how long a call takes",
    "time": "warm-up and timed rounds",
    "controls": "the controls between epochs",
    "verify": "replays of the timed arms on other values, and the comparison of their outputs",
}


@dataclass
class Stages:
    """Sums up the seconds of each stage of a measurement; the time of a nested stage does not count for the outer."""

    seconds: dict[str, float] = field(default_factory=dict)
    now: Callable[[], float] = time.monotonic
    _running: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the time of the block, and add it to the stage ``name``."""
        self._turn()
        self._running.append(name)
        try:
            yield
        finally:
            self._turn()
            self._running.pop()

    def take(self) -> dict[str, float]:
        """Return the seconds of each stage since the last call, and reset them to zero."""
        self._turn()
        seconds, self.seconds = self.seconds, {}
        return seconds

    def _turn(self) -> None:
        now = self.now()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


def summary(seconds: Mapping[str, float]) -> str:
    """Return the stages in one line, longest first: ``300 s: time 150 s (50 %), capture 75 s (25 %) …``."""
    total = sum(seconds.values())
    if not set(seconds) & set(STAGES):
        return ""
    parts = sorted(seconds.items(), key=lambda part: -part[1])
    return f"{total:.0f} s: " + ", ".join(f"{name} {part:.0f} s ({100 * part / total:.0f} %)" for name, part in parts)
