"""Suites of a few lines, for tests that need a definition and no file of it."""

from __future__ import annotations

from typing import Any

from lockstep import Case, Cost, Suite

_METHODS = ("draw", "buffers", "reference", "cost", "skips", "full_history", "warm_history", "summands")


def make_suite(base: type[Suite] = Suite, **members: Any) -> Suite:
    """A suite with these members; functions are called without ``self``. What is left out is empty."""
    usual = {
        "family": "thing",
        "cases": (),
        "quick": (),
        "baseline": "plain",
        "draw": lambda new: {},
        "reference": lambda: None,
        "cost": lambda: Cost(0.0, 0.0),
    }
    given = members if base is not Suite else usual | members
    parts = {name: staticmethod(value) if name in _METHODS else value for name, value in given.items()}
    return type("Made", (base,), {**parts, "__module__": __name__})()


def changed_suite(suite: Suite, **members: Any) -> Suite:
    """The suite with other members."""
    return make_suite(type(suite), **members)


ONE = (Case(M=1),)
