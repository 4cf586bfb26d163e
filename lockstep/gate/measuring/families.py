"""Hold the families of base and head in one process, each with its namespace."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any

from lockstep.gate.measuring.pairing import BASE, HEAD
from lockstep.gate.model import SideFacts
from lockstep.gate.namespaces import Sides
from lockstep.suite.definition import Suite
from lockstep.suite.variants import Family, NotInCommit
from lockstep.timing.arms.shared_buffers import ArmFailed, Contender
from lockstep.timing.checks.baseline_as_reference import take_as_standard
from lockstep.timing.checks.check import brief
from lockstep.timing.rules.changed_shared_code import Trusted
from lockstep.timing.rules.rule import Disqualified


class Families:
    """The variants of suites as imported from base and from head."""

    def __init__(self, sides: Sides) -> None:
        self.trusted = Trusted()
        self._sides = sides
        self._families: dict[tuple[str, str], Family] = {}

    def load(self, suite: Suite, side: str) -> SideFacts:
        """Import a suite's variants from base or head (``side``); return them, or why the import fails."""
        try:
            family = self._sides.load_family(suite, side)
        except NotInCommit:
            return SideFacts(missing=True)
        except Exception as error:
            return SideFacts(error=brief(error))
        self._families[suite.name, side] = family
        if side == BASE or suite.standard is None:
            take_as_standard(suite, family, functools.partial(self._sides.active, side))
        self.trusted.accept_settings()
        self.trusted = self.trusted.with_variants(family.variants)
        return SideFacts({name: self._where(function, side) for name, function in family.variants.items()})

    def contender(self, suite: Suite, variant: str, arm: str, side: str) -> Contender | None:
        """Return a variant of base or head (``side``) as an arm; ``None`` if that side has no such variant."""
        family = self._families.get((suite.name, side))
        if family is None or variant not in family.variants:
            return None
        return Contender(arm, variant, family, side, functools.partial(self._sides.active, side))

    def pair(self, suite: Suite, variant: str, *, twins: bool = False) -> tuple[Contender, Contender]:
        """Return base and head of a variant that both have; with ``twins``, base takes the place of head."""
        base = self.contender(suite, variant, BASE, BASE)
        head = self.contender(suite, variant, HEAD, BASE if twins else HEAD)
        assert base is not None
        assert head is not None
        return base, head

    def require_code(self) -> None:
        """Raise ``ArmFailed`` for head if code was replaced at run time: base is trusted, so head replaced it."""
        try:
            self.trusted.require()
        except Disqualified as changed:
            raise ArmFailed(HEAD, brief(changed)) from changed

    def _where(self, function: Any, side: str) -> tuple[str, int]:
        """Return a variant's file, relative to the tree, and line; ("", 0) if no Python code of the tree defines it."""
        function = inspect.unwrap(function)
        while isinstance(function, functools.partial):
            function = inspect.unwrap(function.func)
        code = getattr(function, "__code__", None)
        with contextlib.suppress(ValueError):
            if code is not None:
                return str(self._sides.relative(side, code.co_filename)), int(code.co_firstlineno)
        return "", 0
