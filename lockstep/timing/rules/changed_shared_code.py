"""Detect whether code under test changed what all arms of a comparison share: the code of a variant, torch's settings.

Variants of a family run in one process, so the changes of one affect the times of the others. This finds what careless
code does. It is not a sandbox: ``lockstep referee`` judges code of strangers, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

import torch

from lockstep.timing.rules.own_code import places_of
from lockstep.timing.rules.persisting_cache import persisting_bytes, reset_persisting
from lockstep.timing.rules.rule import Disqualified, Rule

T = TypeVar("T")

#: Settings of torch that affect all arms: how to read each setting and how to restore it.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the precision of float32 products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
}


@dataclass(frozen=True)
class _Saved:
    """The saved value of a name in a module or class (its owner), and the code of the function behind it."""

    owner: Any
    name: str
    value: Any
    code: Any

    @property
    def changed(self) -> bool:
        # Compare by identity alone, because code under test can define ``==``.
        return vars(self.owner).get(self.name) is not self.value or _code(self.value) is not self.code

    def restore(self) -> None:
        if isinstance(self.value, FunctionType):
            self.value.__code__ = self.code
        setattr(self.owner, self.name, self.value)

    def __str__(self) -> str:
        if self.name == "function" and isinstance(self.value, FunctionType):
            return f"the code of {self.owner.__name__}"
        return f"{self.owner.__name__}.{self.name}"


class _SetAside(Disqualified):
    """Code under test set a part of the L2 aside for persisting accesses, in which inputs of cold calls could stay."""


class Trusted:
    """The settings and the variants' code, saved at creation. Create it before code under test is imported."""

    def __init__(self) -> None:
        self._saved: list[_Saved] = []
        self._persisting = persisting_bytes()
        self.accept_settings()

    def accept_settings(self) -> None:
        """Accept torch's current settings: an import may choose them, because they affect all arms alike."""
        self._settings = {name: read() for name, (read, _) in _SETTINGS.items()}

    def with_variants(self, variants: Mapping[str, Any]) -> Trusted:
        """Return the saved settings together with the variants' current code, which no variant may replace."""
        more = copy(self)
        found = [(owner, name, vars(owner)[name]) for owner, name in places_of(variants)]
        more._saved = self._saved + [_Saved(owner, name, value, _code(value)) for owner, name, value in found]
        return more

    def guarded(self, call: Callable[[], T]) -> T:
        """Call ``call``, which runs code under test; check what it changed; return its result.

        If the call set a part of the L2 aside for persisting accesses, the call is made once more. A library sets the
        part aside at its first use only (torch 2.11 in its first cross entropy over 32,000 classes on an H200). A
        variant that sets a part aside does so in the second call too. ``Disqualified`` is raised as by ``require``; for
        a part of the L2 only if the second call sets it aside too.
        """
        try:
            with self.guarding():
                return call()
        except _SetAside:
            with self.guarding():
                return call()

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Check with ``require`` what a block changed that runs code under test.

        Changed settings of torch are restored without an error, because a variant's first call may import a module that
        changes them.
        """
        try:
            yield
        finally:
            self._restore_settings()
            self.require()

    def require(self) -> None:
        """Check that code under test left the variants' code and torch's settings as they were saved.

        Whatever was changed is restored first, so that the next variant runs as usual. Then ``Disqualified``
        (``CHANGED_HARNESS``, ``CHANGED_BASELINE``) names what was changed.
        """
        set_aside = self._restore_cache()
        changed = [entry for entry in self._saved if entry.changed]
        for entry in changed:
            entry.restore()
        if changed:
            names = ", ".join(str(entry) for entry in changed[:3])
            raise Disqualified(Rule.CHANGED_BASELINE, f"replaced {names}")
        if settings := self._restore_settings():
            raise Disqualified(Rule.CHANGED_HARNESS, f"left torch with a changed setting: {', '.join(settings)}")
        if set_aside:
            raise _SetAside(Rule.CHANGED_HARNESS, set_aside)

    def _restore_cache(self) -> str:
        """Restore how much of the L2 is set aside for persisting accesses. Return the change as text; "" if none."""
        now = persisting_bytes()
        if now == self._persisting:
            return ""
        reset_persisting(self._persisting)
        return (
            f"set aside {now / 2**20:.3g} MiB of the device's L2 for persisting accesses (was "
            f"{self._persisting / 2**20:.3g}): inputs of cold calls could stay there, and other variants lose that part"
        )

    def _restore_settings(self) -> list[str]:
        """Restore torch's saved settings. Return the names of the settings that had changed."""
        changed = [name for name, (read, _) in _SETTINGS.items() if read() != self._settings[name]]
        for name in changed:
            _SETTINGS[name][1](self._settings[name])
        return changed


def _code(value: Any) -> Any:
    return value.__code__ if isinstance(value, FunctionType) else None
