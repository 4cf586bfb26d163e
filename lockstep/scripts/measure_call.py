"""Measure one timed call of one version: its time with an interval, as a record."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch

from lockstep.gate.model import SeriesKey
from lockstep.record.model import Record
from lockstep.scripts.closure_arms import Namespace, arms_of, collected
from lockstep.scripts.compare_outputs import first_output, too_slow
from lockstep.scripts.taken_calls import line_of
from lockstep.scripts.timed_call import TimedCall
from lockstep.timing.arms.captured_arms import Capturer
from lockstep.timing.arms.replays import settle
from lockstep.timing.device import Device, DeviceLost
from lockstep.timing.estimates import Series, outcome_of
from lockstep.timing.rounds import Pace, time_rounds
from lockstep.timing.rules.changed_shared_code import Trusted

#: The name of the only arm.
_ARM = "call"

#: Epochs of a call, each with a new capture.
EPOCHS = 5


@dataclass
class CallMeasurer:
    """Measures timed calls on one device, one after another."""

    device: Device
    pace: Pace
    version: str
    namespace: Namespace
    _trusted: Trusted = field(default_factory=Trusted)
    _chance: random.Random = field(default_factory=random.Random)

    def measure(self, key: SeriesKey, call: TimedCall, epochs: int = EPOCHS) -> Record:
        """Return the record of a call; ``DeviceLost`` if it broke the CUDA context."""
        began, started_at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")

        def record(state: str, reason: str = "", **numbers: object) -> Record:
            seconds = time.monotonic() - began
            common = {"reason": reason, "started_at": started_at, "wall_s": seconds, "baseline": key.variant}
            return Record(key.suite, key.variant, key.case, key.l2, state, self.version, **{**common, **numbers})  # type: ignore[arg-type]

        try:
            first_output(call, self.namespace)
            if slow := too_slow(call, self.namespace, time.monotonic() - began):
                return record("na", slow)
            with collected():
                series, note = self._timed(call, epochs)
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            return record("failed", "out of memory")
        except DeviceLost:
            raise
        except Exception as error:
            if not self.device.healthy():
                raise DeviceLost(key.variant, line_of(error, Path(call.place[0]))) from error
            return record("failed", line_of(error, Path(call.place[0])))
        found = outcome_of(series, True, 0.0, self.device.sample_clocks())
        return record(
            "ok",
            latency=found.latency,
            mde=found.mde,
            rounds=found.rounds,
            epochs=found.epochs,
            clocks=found.clocks,
            latency_samples=found.latency_samples,
            note=note,
        )

    def _timed(self, call: TimedCall, epochs: int) -> tuple[Series, str]:
        arms, note = arms_of({_ARM: (call, self.namespace)}, self.device)
        series = Series()
        capturer = Capturer(self.device, self.pace.replay_s, self._trusted, alike=True)
        for number in range(epochs):
            captured = capturer.capture(arms, lambda *_: None)
            if capturer.failures:
                raise capturer.failures[_ARM]
            settle([one.replay for one in captured], self.device, 0.0 if number else self.pace.warmup_s)
            series.add(time_rounds(captured, self.pace, self.device, self._chance)[_ARM])
        return series, note
