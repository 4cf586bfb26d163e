"""Judge what calls on random inputs show without timing: whether a variant is deterministic, and its error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from lockstep.gate.measuring.compare_bits import compare_bits
from lockstep.gate.measuring.compare_errors import compare_errors
from lockstep.gate.measuring.pairing import BASE
from lockstep.gate.model import DETERMINISTIC, Outcome, SeriesKey, Verdict
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.timing.arms.shared_buffers import ArmFailed, Contender
from lockstep.timing.case_checks import Checks
from lockstep.timing.checks.check import brief
from lockstep.timing.device import DeviceLost
from lockstep.timing.rules.changed_shared_code import Trusted

T = TypeVar("T")


class CallChecks:
    """Judges determinism and errors of variants in a worker, once for cold and warm L2 together."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._verdicts: dict[tuple[str, str, str, str], Verdict] = {}

    def judge(
        self,
        suite: Suite,
        case: Case,
        key: SeriesKey,
        pair: Sequence[Contender],
        trusted: Trusted,
        min_effect: float,
        deadline: float,
    ) -> Verdict:
        """Return the verdict on determinism or error (``key.quantity``) in a case that both base and head can run.

        If a further call of base fails, the verdict is "unsure"; of head, "failed"; for lack of memory, "na". A call
        that breaks the CUDA context raises ``DeviceLost``.

        Args:
            min_effect: changes of the error up to this share do not count.
            deadline: time on ``time.monotonic()``'s clock after which no call starts.
        """
        name = suite.name, case.label, key.variant, key.quantity
        verdict = self._verdicts.get(name)
        if verdict is None:
            try:
                if key.quantity == DETERMINISTIC:
                    base, head = (self._differences(suite, case, side, trusted) for side in pair)
                    verdict = compare_bits(key, base, head, deadline)
                else:
                    verdict = compare_errors(key, self._errors(suite, case, pair, trusted), min_effect, deadline)
            except torch.cuda.OutOfMemoryError:
                verdict = Verdict(key, "na", "the device has too little memory for a further call")
            except ArmFailed as failed:
                outcome: Outcome = "unsure" if failed.arm == BASE else "failed"
                verdict = Verdict(key, outcome, f"{failed.arm} fails in a further call: {failed}")
            if verdict.outcome != "unsure":
                self._verdicts[name] = verdict
        return replace(verdict, key=key)

    def _differences(self, suite: Suite, case: Case, side: Contender, trusted: Trusted) -> Iterator[str]:
        """Call base or head (``side``) repeatedly; yield how each further result differs from the first one."""
        calls = self._checks.checker(suite, case).repeated(side.family, side.variant)
        while True:
            yield self._call(side, trusted, lambda: next(calls))

    def _errors(
        self, suite: Suite, case: Case, pair: Sequence[Contender], trusted: Trusted
    ) -> Iterator[tuple[float, float]]:
        """Yield the errors of base and head again and again, each time on new random inputs."""
        while True:
            checker = self._checks.checker(suite, case, fresh=True)
            base, head = (
                self._call(side, trusted, partial(checker.accuracy, side.family, side.variant)).norm for side in pair
            )
            yield base, head

    def _call(self, side: Contender, trusted: Trusted, check: Callable[[], T]) -> T:
        """Run ``check`` on base or head (``side``) and return its result."""
        try:
            return self._checks.call(side, trusted, check)
        except (torch.cuda.OutOfMemoryError, DeviceLost):
            raise
        except Exception as error:
            raise ArmFailed(side.arm, brief(error)) from error
