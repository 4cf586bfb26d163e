"""Judge what calls on random inputs show without timing: whether a variant is deterministic, and its error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from lockstep.gate.case_verdict import DETERMINISTIC, SeriesKey, Verdict
from lockstep.gate.measuring.buffers import BASE, HEAD, SideFailed
from lockstep.gate.measuring.determinism import compare_bits
from lockstep.gate.measuring.error import compare_errors
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.variants import Family
from lockstep.timing.checks.check import Checker, brief
from lockstep.timing.device import DeviceLost


class CallChecks:
    """Judges determinism and errors of variants in a worker, once for cold and warm L2 together.

    Args:
        families: the imported families, by suite name and side ("base" or "head").
        call: ``call(variant, side, check)`` runs ``check`` with the modules of base or head and returns its result.
        draw: returns a case's checker, which holds inputs; with ``fresh``, a checker with other random inputs.
    """

    def __init__(
        self,
        families: Mapping[tuple[str, str], Family],
        call: Callable[[str, str, Callable[[], Any]], Any],
        draw: Callable[..., Checker],
    ) -> None:
        self._families = families
        self._call = call
        self._draw = draw
        self._verdicts: dict[tuple[str, str, str, str], Verdict] = {}

    def judge(self, suite: Suite, case: Case, key: SeriesKey, min_effect: float, deadline: float) -> Verdict:
        """Return the verdict on determinism or error (``key.quantity``) in a case that both base and head can run.

        Args:
            suite, case, key: the case.
            min_effect: changes of the error up to this share do not count.
            deadline: time on ``time.monotonic()``'s clock after which no call starts.

        Raises:
            DeviceLost: a call broke the CUDA context.
        """
        name = suite.name, case.label, key.variant, key.quantity
        verdict = self._verdicts.get(name)
        if verdict is None:
            if key.quantity == DETERMINISTIC:
                base, head = (self._differences(suite, case, key.variant, side) for side in (BASE, HEAD))
                verdict = compare_bits(key, base, head, deadline)
            else:
                verdict = compare_errors(key, self._errors(suite, case, key.variant), min_effect, deadline)
            if verdict.outcome != "unsure":
                self._verdicts[name] = verdict
        return replace(verdict, key=key)

    def _differences(self, suite: Suite, case: Case, variant: str, side: str) -> Iterator[str]:
        """Call base or head (``side``) repeatedly; yield how each further result differs from the first one."""
        calls = self._draw(suite, case).repeated(self._families[suite.name, side], variant)
        while True:
            yield self._on_side(variant, side, lambda: next(calls))

    def _errors(self, suite: Suite, case: Case, variant: str) -> Iterator[tuple[float, float]]:
        """Yield the errors of base and head again and again, each time on new random inputs."""
        while True:
            checker = self._draw(suite, case, fresh=True)
            yield self._error(checker, variant, BASE), self._error(checker, variant, HEAD)

    def _error(self, checker: Checker, variant: str, side: str) -> float:
        family = self._families[checker.suite.name, side]
        return float(self._on_side(variant, side, lambda: checker.accuracy(family, variant)).norm)

    def _on_side(self, variant: str, side: str, check: Callable[[], Any]) -> Any:
        """Run ``check`` on the variant of base or head (``side``) and return its result.

        Raises:
            SideFailed: the check failed.
            DeviceLost: the check broke the CUDA context.
            torch.cuda.OutOfMemoryError: the device has too little memory for the check.
        """
        try:
            return self._call(variant, side, check)
        except (torch.cuda.OutOfMemoryError, DeviceLost):
            raise
        except Exception as error:
            raise SideFailed(side, brief(error)) from error
