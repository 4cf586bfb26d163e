"""Capture the arms of an epoch as replays that are long enough to time. An arm that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch

from lockstep.record.model import TWIN
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.arms.replays import Repeated, replay_of, seconds_a_call
from lockstep.timing.checks.check import brief
from lockstep.timing.device import Device, DeviceLost, Replay
from lockstep.timing.graph_capture import CaptureError
from lockstep.timing.rules.changed_shared_code import Trusted
from lockstep.timing.rules.rule import Disqualified

#: Errors whose messages say what was wrong with a capture; of any other error the type says more.
_KNOWN = (CaptureError, Disqualified, NotImplementedError)

T = TypeVar("T")


@dataclass(frozen=True)
class Captured:
    """An arm's name, its replay, which is long enough to be timed, and roughly the seconds of the replay."""

    name: str
    replay: Repeated[ArmReplay]
    seconds: float


@dataclass
class Capturer:
    """Captures the arms of each epoch.

    Attributes:
        trusted: the saved functions that timing relies on; checked for replacements after each arm.
        alike: whether the arms are versions of one kernel. All replays then have the number of calls that suits the
            fastest arm, because the first call of a replay costs more in all of them; and equal allocations within
            calls get equal addresses.
        failures: the errors, by arm. An arm that failed is not captured again.
        per_call: seconds per call, by arm; the arm's first epoch fills it.
    """

    device: Device
    replay_s: float
    trusted: Trusted
    alike: bool = False
    failures: dict[str, Exception] = field(default_factory=dict)
    per_call: dict[str, float] = field(default_factory=dict)

    def capture(self, arms: Sequence[Arm], listener: Callable[[str, str], None]) -> list[Captured]:
        """Capture a replay of at least ``replay_s`` seconds for each arm of an epoch. An arm that fails is left out.

        ``listener`` hears "capture" and the arm's name before the arm runs. An arm that breaks the device raises
        ``DeviceLost``.
        """
        pool = self.device.new_pool()
        held: list[Replay] = []  # must stay alive until the pool has other graphs

        def attempt(arm: Arm, action: Callable[[], T]) -> T | None:
            nonlocal pool
            listener("capture", arm.name)
            try:
                return action()
            except torch.cuda.OutOfMemoryError:
                self.failures[arm.name] = MemoryError("out of memory while its calls were captured")
                self.device.release()
            except Exception as error:
                if not self.device.healthy():
                    raise DeviceLost(arm.name.removesuffix(TWIN), str(error)) from error
                self.failures[arm.name] = error if isinstance(error, _KNOWN) else RuntimeError(brief(error))
            pool = self.device.new_pool()  # after a failed capture a pool cannot be used again
            return None

        def probe(arm: Arm) -> None:
            rotations = partial(arm.capture, self.device, pool)
            self.per_call[arm.name], replay = seconds_a_call(rotations, len(arm.calls), self.device)
            held.append(replay)

        def capture(arm: Arm) -> Captured:
            rotations, calls = partial(arm.capture, self.device, pool), len(arm.calls)
            own_s = self.per_call[arm.name]
            seconds = min(self.per_call.values()) if self.alike else own_s
            if arm.once:
                repeated = Repeated(rotations(1), 1, calls)
            else:
                repeated = replay_of(rotations, calls, seconds, self.replay_s)
            if not self.alike:  # whoever compares versions of a kernel checks once for all of them
                self.trusted.require()
            return Captured(arm.name, repeated, own_s * repeated.calls)

        for arm in arms:
            if arm.name not in self.per_call and arm.name not in self.failures:
                attempt(arm, partial(probe, arm))
        usable = [arm for arm in arms if arm.name not in self.failures]
        if self.alike and usable:
            # Reserves the memory for outputs allocated within calls, so that all arms find it free. Otherwise the first
            # arm would lay out the pool, and the others would fill its gaps.
            rehearsal = attempt(usable[0], partial(usable[0].capture, self.device, pool, 2))
            held += [rehearsal] if rehearsal else []
        return [found for arm in usable if (found := attempt(arm, partial(capture, arm)))]
