"""An arm: a variant that is bound to argument sets, and its replay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from lockstep.timing.checks.output_memory import Located, outputs_of
from lockstep.timing.device import Call, Device, Replay


@dataclass(frozen=True)
class BoundCall:
    """A variant's function with the arguments of one argument set, ready to be called."""

    function: Any
    arguments: dict[str, Any]

    def __call__(self) -> Any:
        """Call the function once."""
        return self.function(**self.arguments)


@dataclass(frozen=True, eq=False)
class ArmReplay:
    """An arm's calls, captured so that they can be run again and timed. A rotation is one call on each argument set.

    ``results``: returns the result of each call of the last rotation, in the order of the argument sets.
    """

    run: Replay
    results: Callable[[], list[Any]]

    def __call__(self) -> None:
        """Run the captured calls once: all rotations through the argument sets."""
        self.run()


@dataclass(frozen=True)
class Arm:
    """A variant, bound to the arguments of each argument set.

    Attributes:
        calls: one call for each argument set.
        once: whether a replay makes each call only once, because calls change their arguments.
        before: a function that runs before each call. Its time counts, and its result is dropped.
    """

    name: str
    calls: tuple[BoundCall, ...]
    once: bool = False
    before: Call | None = None
    active: Callable[[], AbstractContextManager[Any]] = nullcontext

    def capture(self, device: Device, pool: object, times: int) -> ArmReplay:
        """Return a replay of ``times`` rotations. A rotation is one call on each argument set.

        Outputs that the variant allocates stay alive for one rotation, so that each call of a rotation writes to other
        memory. The next arm captured in this pool reuses the memory of these outputs, so arms share them too. On CUDA,
        a call that returns something other than real tensors raises ``Disqualified``.
        """
        alive: deque[Any] = deque(maxlen=len(self.calls))

        def keep(call: Call) -> Call:
            return lambda: alive.append(call())

        rotation = [step for call in self.calls for step in (self.before, keep(call)) if step is not None]
        with self.active():
            replay = device.capture(rotation * times, pool)
        if device.kind == "cpu":
            alive.clear()
            return ArmReplay(self._within(replay), lambda: list(alive))
        torch_device = device.torch_device
        located = [[Located.of(output) for output in outputs_of(self.name, result, torch_device)] for result in alive]
        alive.clear()
        return ArmReplay(replay, lambda: [[place.tensor(torch_device) for place in places] for places in located])

    def called(self) -> ArmReplay:
        """Return a replay that makes each call once, outside a graph."""
        results: list[Any] = []

        def run() -> None:
            results[:] = [call() for call in self.calls]

        def of_last_run() -> list[Any]:
            if not results:
                within()
            return list(results)

        within = self._within(run)
        return ArmReplay(within, of_last_run)

    def _within(self, run: Replay) -> Replay:
        """Return a function that runs in the arm's context."""

        def within() -> None:
            with self.active():
                run()

        return run if self.active is nullcontext else within
