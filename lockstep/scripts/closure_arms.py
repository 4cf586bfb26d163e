"""Make arms of closures: captured in CUDA graphs, or called from the host where a capture is not possible."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from lockstep.scripts.timed_call import TimedCall
from lockstep.suite.variants import Family
from lockstep.timing.arms.bound_arms import Arm, ArmReplay, BoundCall
from lockstep.timing.arms.shared_buffers import Buffers, Contender
from lockstep.timing.checks.check import brief
from lockstep.timing.device import Device, DeviceLost

#: A family without variants: a closure is bound already.
NO_FAMILY = Family({}, {})

#: Returns the context in which code of a side runs.
Namespace = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class HostArm(Arm):
    """An arm whose calls are made by the host each time, so that its time includes what the host takes."""

    def capture(self, device: Device, pool: object, times: int) -> ArmReplay:
        """Return a replay of ``times`` calls, outside a graph."""
        calls = self.calls * times

        def run() -> None:
            for call in calls:
                call()

        return ArmReplay(self._within(run), list)


def arms_of(calls: Mapping[str, tuple[TimedCall, Namespace]], device: Device) -> tuple[list[Arm], str]:
    """Return closures as arms, and why all of them are called from the host: one cannot be captured; "" if all can.

    Raise ``DeviceLost`` if the attempt broke the device.
    """
    reasons = [_why_not_captured(_arm(name, *call, host=False), device) for name, call in calls.items()]
    reason = next(filter(None, reasons), "")
    arms = [_arm(name, *call, host=bool(reason)) for name, call in calls.items()]
    return arms, f"timed from the host, not in a graph: {reason}" if reason else ""


def _arm(name: str, call: TimedCall, namespace: Namespace, *, host: bool) -> Arm:

    @contextmanager
    def active() -> Iterator[None]:
        with namespace(), call.state.entered():
            yield

    def once() -> None:
        call.drop_gradients()
        call()  # what it returns is dropped at once, as by the script's own timer

    kind = HostArm if host else Arm
    return kind(name, (BoundCall(once, {}),), active=active)


def _why_not_captured(arm: Arm, device: Device) -> str:
    """Return why the calls of an arm cannot be captured in a graph; "" if they can. A CPU captures nothing."""
    try:
        arm.capture(device, device.new_pool(), 1)()
        device.synchronize()
    except Exception as error:
        device.release()
        if not device.healthy():
            raise DeviceLost(arm.name, brief(error)) from error
        return brief(error)
    return ""


class ClosureBuffers(Buffers):
    """The buffers of arms that are bound already: the closures' own."""

    def __init__(self, arms: Sequence[Arm], seed: int, *, shared: bool) -> None:
        super().__init__((), seed)
        self._arms = {arm.name: arm for arm in arms}
        self._are_shared = shared

    def arms(self, contenders: Sequence[Contender]) -> tuple[list[Arm], bool]:
        """Return the arms in the order of the contenders, and whether all of them use the same buffers."""
        return [self._arms[contender.arm] for contender in contenders], self._are_shared


@contextlib.contextmanager
def collected() -> Iterator[None]:
    """Make the garbage collections of captures fast within the block: they skip the objects that exist now."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
