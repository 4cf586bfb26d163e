"""The buffers of one epoch, shared by base and head wherever both need the same content.

The placement of buffers moves a time by tenths of a percent; shared buffers move the times of base and head alike. Base
and head share inputs, outputs, equal results of offline preparation, and the scratch buffers (counters and mailboxes)
of a family.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lockstep.gate.namespaces import Sides
from lockstep.suite.evaluate import bind
from lockstep.suite.variants import Family, takes_out
from lockstep.timing.arms.argument_sets import ArgumentSet, place, restorer
from lockstep.timing.arms.bound_arms import Arm, BoundCall, move

BASE, HEAD = "base", "head"


@dataclass(frozen=True)
class Contender:
    """A variant as imported from base and from head.

    Attributes:
        families: family of each side, "base" or "head"; for an A/A comparison both sides have the same family.
        trees: for each side, the tree (its name in ``Sides``) from which the side's calls import modules.
    """

    name: str
    families: Mapping[str, Family]
    trees: Mapping[str, str]


class SideFailed(RuntimeError):
    """The version named by ``side``, "base" or "head", cannot be timed."""

    def __init__(self, side: str, reason: str) -> None:
        super().__init__(reason)
        self.side = side


class Buffers:
    """The argument sets of one epoch and the tensors that variants prepare offline, for base and head.

    Args:
        sets: copies of a case's inputs and output buffers, with the same values at different addresses.
        sides: the trees of base and head.
        seed: seed of the placement of prepared tensors.
        inout: names of inputs that calls write; a replay then uses each argument set once.

    Attributes:
        restore: restores the values of the ``inout`` inputs before each timed replay; ``None`` without such inputs.
    """

    def __init__(self, sets: Sequence[ArgumentSet], sides: Sides, seed: int, inout: Sequence[str] = ()) -> None:
        self.once = bool(inout)
        self.restore = restorer(sets, inout)
        self.sets = sets
        self.sides = sides
        self.seed = seed
        self._chance = random.Random(seed)
        self._made: dict[Any, list[dict[str, Any]]] = {}
        self._moved: dict[tuple[int, int], bool] = {}

    def arms(self, contender: Contender) -> tuple[dict[str, Arm], bool]:
        """Return the arms of base and head, and whether both arms use the same buffers throughout.

        Tensors that base and head prepare differently, for example repacked weights, are not shared.

        Raises:
            SideFailed: the offline preparation of base or head raised.
        """
        prepared = self._prepared(contender)
        scratch_shared = self._move_scratch(contender)
        arms = {}
        for side in (BASE, HEAD):
            function = contender.families[side].variants[contender.name]
            calls = []
            for argument_set, prepared_values in zip(self.sets, prepared, strict=True):
                arguments = bind(function, {**argument_set.inputs, **prepared_values[side]})
                if argument_set.out is not None and takes_out(function):
                    arguments["out"] = argument_set.out
                calls.append(BoundCall(function, arguments))
            arms[side] = Arm(side, tuple(calls), self.once)
        return arms, scratch_shared and all(
            prepared_values[BASE] is prepared_values[HEAD] for prepared_values in prepared
        )

    def _move_scratch(self, contender: Contender) -> bool:
        """Move the variants' scratch buffers once per epoch. Return whether base and head use the same buffers.

        Without the move each buffer would keep one address in all epochs. That changes the times of unchanged kernels
        by 0.3 to 2.8 % on an H200, equally in every epoch, so more epochs could not tell the effect from a change.
        """
        base, head = (contender.families[side].scratch for side in (BASE, HEAD))
        pair = id(base), id(head)
        if pair not in self._moved:
            move(base, self._chance)
            if head is not base:
                for name, buffer in list(head.items()):
                    equal = name in base and _equal(base[name], buffer)
                    head[name] = base[name] if equal else place(buffer, self._chance)
            self._moved[pair] = base.keys() == head.keys() and all(base[name] is head[name] for name in base)
        return self._moved[pair]

    def _prepared(self, contender: Contender) -> list[dict[str, Any]]:
        """Return the arguments that base and head prepare, for each argument set; equal values share one object."""
        key = tuple(contender.families[side].prepare.get(contender.name) for side in (BASE, HEAD))
        if key not in self._made:
            # The seed decides which of two different packings is placed first, so that no side is always second.
            order = (BASE, HEAD) if self._chance.random() < 0.5 else (HEAD, BASE)
            prepared = {side: self._prepare(contender, side) for side in order}
            equal = _equal(prepared[BASE], prepared[HEAD])
            self._made[key] = [self._place(prepared, equal) for _ in self.sets]
        return self._made[key]

    def _prepare(self, contender: Contender, side: str) -> dict[str, Any]:
        """Return the arguments that base or head (``side``) prepares from the first set; all sets hold equal values."""
        try:
            with self.sides.active(contender.trees[side]):
                return contender.families[side].prepared(contender.name, self.sets[0].inputs)
        except Exception as error:
            raise SideFailed(side, f"its preparation raised {type(error).__name__}: {error}") from error

    def _place(self, prepared: Mapping[str, dict[str, Any]], equal: bool) -> dict[str, Any]:
        if equal:
            return dict.fromkeys(prepared, place(prepared[HEAD], self._chance))
        return {side: place(values, self._chance) for side, values in prepared.items()}


def _equal(left: Any, right: Any) -> bool:
    """Return whether two prepared values are equal; tensors in dtype, device, shape, strides and content."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return (
            isinstance(left, torch.Tensor)
            and isinstance(right, torch.Tensor)
            and (left.dtype, left.device, left.shape, left.stride())
            == (right.dtype, right.device, right.shape, right.stride())
            and torch.equal(left, right)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_equal, left, right))
    # Numbers and texts; an object of any other class is passed only to the side that made it.
    return isinstance(left, int | float | str | bool | None) and type(left) is type(right) and left == right
