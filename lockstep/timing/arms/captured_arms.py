"""Capture the arms of an epoch as replays that are long enough to time. An arm that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from lockstep.record.model import TWIN
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.arms.replays import Repeated, replay_of, seconds_a_call
from lockstep.timing.device import Device, DeviceLost, Replay
from lockstep.timing.graph_capture import CaptureError
from lockstep.timing.rules.background_work import require_joined
from lockstep.timing.rules.rule import Disqualified
from lockstep.timing.rules.trusted import Trusted


@dataclass(frozen=True)
class Captured:
    """An arm's name and its replay, which is long enough to be timed."""

    name: str
    replay: Repeated[ArmReplay]


def capture_arms(
    arms: Sequence[Arm],
    device: Device,
    replay_s: float,
    per_call: dict[str, float],
    failures: dict[str, Exception],
    trusted: Trusted,
    listener: Callable[[str, str], None],
) -> list[Captured]:
    """Capture for each arm a replay of at least ``replay_s`` seconds. An arm that fails is left out.

    Args:
        arms: the arms of one epoch.
        replay_s: minimum length of a replay in seconds.
        per_call: seconds per call, by arm; the first epoch fills it.
        failures: receives the errors, by arm.
        trusted: the saved functions that timing relies on; checked for replacements after each arm.
        listener: called with "capture" and the arm's name before the arm runs.

    Raises:
        DeviceLost: an arm broke the device.
    """
    captured: list[Captured] = []
    pool = device.new_pool()
    probes: list[Replay] = []  # must stay alive until the pool has other graphs
    for arm in arms:
        listener("capture", arm.name)
        try:
            capture = partial(arm.capture, device, pool)
            if arm.name not in per_call:
                per_call[arm.name], probe = seconds_a_call(capture, len(arm.calls), device)
                probes.append(probe)
                if device.kind == "cpu":
                    require_joined(probe)
            if arm.once:
                repeated = Repeated(capture(1), 1, len(arm.calls))
            else:
                repeated = replay_of(capture, len(arm.calls), per_call[arm.name], replay_s)
            trusted.require()
            captured.append(Captured(arm.name, repeated))
        except torch.cuda.OutOfMemoryError:
            failures[arm.name] = MemoryError("out of memory while its calls were captured")
            pool = device.new_pool()
            device.release()
        except (CaptureError, Disqualified, NotImplementedError) as error:
            if not device.healthy():
                raise DeviceLost(arm.name.removesuffix(TWIN), str(error)) from error
            failures[arm.name] = error
            pool = device.new_pool()
    return captured
