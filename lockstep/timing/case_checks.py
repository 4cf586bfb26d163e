"""Check contenders once for each case, and know how many bytes their calls touch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from lockstep.suite.case import Case
from lockstep.suite.checkout import note_place
from lockstep.suite.definition import Suite
from lockstep.suite.inputs import tensors_of
from lockstep.timing.arms.argument_rotation import PLACEMENT_BYTES, set_count, size_of
from lockstep.timing.arms.shared_buffers import Contender
from lockstep.timing.checks.check import Checked, Checker, brief, without_frames
from lockstep.timing.device import Device, DeviceLost
from lockstep.timing.rules.changed_shared_code import Trusted

T = TypeVar("T")


@dataclass(frozen=True)
class Sizes:
    """Bytes that the calls of a case touch.

    Attributes:
        touched: bytes that one call touches, by variant.
        together: bytes of all tensors of all variants.
        narrowest: bytes of an element of the narrowest input.
    """

    touched: dict[str, int]
    together: int
    narrowest: int

    def count(self, floor_s: float, device: Device, l2: str, most_bytes: int = PLACEMENT_BYTES) -> int:
        """Return the number of argument sets that the arms rotate through. See ``set_count``."""
        return set_count(min(self.touched.values()), self.together, floor_s, device, l2, most_bytes)


@dataclass
class Checks:
    """The checks of a process. Results are kept; inputs and reference are kept for the last case only.

    Attributes:
        next_seed: returns the seed of the inputs of the next case.
        listener: called with "check" and the contender before its code runs.
        around: returns a context for each check, for example one that records launches.
    """

    device: Device
    next_seed: Callable[[], int]
    listener: Callable[[str, Contender], None] = lambda stage, contender: None
    around: Callable[[Suite, Case, Contender], AbstractContextManager[Any]] = lambda *_: nullcontext()
    _checker: Checker | None = None
    _results: dict[tuple[str, str, str, str], Checked | Exception] = field(default_factory=dict)
    _sizes: dict[tuple[str, str, tuple[str, ...]], Sizes] = field(default_factory=dict)

    def checker(self, suite: Suite, case: Case, *, fresh: bool = False) -> Checker:
        """Return a case's checker, which holds inputs and reference; with ``fresh``, a checker with other inputs."""
        if fresh:
            self.forget()
        if self._checker is None or self._checker.suite is not suite or self._checker.case != case:
            self.forget()
            self._checker = Checker.draw(suite, case, self.device.torch_device, self.next_seed())
        return self._checker

    def forget(self) -> None:
        """Free inputs and reference: they and what comes next may not fit in memory together."""
        self._checker = None

    def of(self, suite: Suite, case: Case, contender: Contender, trusted: Trusted, *, twice: bool) -> Checked:
        """Check a contender, or return its earlier result: the cold and the warm series of a case share one check.

        ``twice``: whether to call it twice, to find out whether it is deterministic. A failed check raises its error, a
        broken CUDA context ``DeviceLost``.
        """
        key = suite.name, case.label, contender.tree, contender.variant
        if key not in self._results:

            def check() -> Checked:
                checker = self.checker(suite, case)
                if twice:
                    return checker.check(contender.family, contender.variant)
                return Checked(checker.accuracy(contender.family, contender.variant), None)

            try:
                with self.around(suite, case, contender):
                    self._results[key] = self.call(contender, trusted, check)
            except torch.cuda.OutOfMemoryError:
                self._results[key] = MemoryError("the device has too little memory for its check")
            except DeviceLost:
                raise
            except Exception as error:
                note_place(error)
                self._results[key] = without_frames(error)
        known = self._results[key]
        if isinstance(known, Exception):
            raise known
        return known

    def call(self, contender: Contender, trusted: Trusted, action: Callable[[], T]) -> T:
        """Run ``action``, which calls a contender, in the contender's namespace, and return its result.

        Raise ``torch.cuda.OutOfMemoryError`` if the device has too little memory; the cached memory is released first.
        Raise ``DeviceLost`` if the call broke the CUDA context.
        """
        self.listener("check", contender)
        try:
            with contender.active():
                return trusted.guarded(action)
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            raise
        except NotImplementedError:
            raise
        except Exception as error:
            if not self.device.healthy():
                name = f"{contender.variant}@{contender.tree}" if contender.tree else contender.variant
                raise DeviceLost(name, brief(error)) from error
            raise

    def sizes(self, suite: Suite, case: Case, contenders: Sequence[Contender]) -> Sizes:
        """Return the bytes that one call of each contender touches."""
        key = suite.name, case.label, tuple(contender.variant for contender in contenders)
        if key not in self._sizes:
            checker = self.checker(suite, case)
            widths = [tensor.element_size() for tensor in tensors_of(checker.inputs) if tensor.dtype != torch.bool]
            out = [checker.out] if checker.out is not None else list(checker.reference)
            touched = {}
            for contender in contenders:
                with contender.active():
                    arguments = checker.arguments(contender.family, contender.variant)
                touched[contender.variant] = tensors_of([arguments, out])
            together = {id(tensor): tensor for tensors in touched.values() for tensor in tensors}
            self._sizes[key] = Sizes(
                {name: size_of(tensors) for name, tensors in touched.items()},
                size_of(together.values()),
                min(widths, default=1),
            )
        return self._sizes[key]
