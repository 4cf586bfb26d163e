"""Bind variants to the buffers of one epoch. All arms share every buffer that may be shared.

The placement of buffers moves a time by tenths of a percent; shared buffers move the times of all arms alike. Arms
share inputs, outputs, equal results of offline preparation, and the scratch buffers (counters and mailboxes) of a
family.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from lockstep.suite.evaluate import bind
from lockstep.suite.variants import Family, takes_out
from lockstep.timing.arms.argument_rotation import ArgumentSet, place, restorer
from lockstep.timing.arms.bound_arms import Arm, BoundCall
from lockstep.timing.checks.refill_arguments import alike


@dataclass(frozen=True)
class Contender:
    """What becomes an arm: a variant of a family, and the namespace in which its code runs.

    Attributes:
        tree: name of the tree that the family was imported from; "" if there is one tree only.
        active: returns the context in which code of the family runs.
    """

    arm: str
    variant: str
    family: Family
    tree: str = ""
    active: Callable[[], AbstractContextManager[Any]] = nullcontext

    @property
    def prepare(self) -> Any:
        """Return the function that prepares further arguments offline; ``None`` if there is none."""
        return self.family.prepare.get(self.variant)


class ArmFailed(RuntimeError):
    """An arm cannot be prepared, captured or run, or computes a wrong result."""

    def __init__(self, arm: str, reason: str) -> None:
        super().__init__(reason)
        self.arm = arm


class Buffers:
    """The argument sets of one epoch, and the tensors that variants prepare offline.

    ``restore``: restores the values of the ``inout`` inputs before each timed replay; ``None`` without such inputs.

    Args:
        sets: copies of a case's inputs and output buffers, with the same values at different addresses.
        seed: seed of the placement of prepared tensors and scratch buffers.
        inout: names of inputs that calls write; a replay then uses each argument set once.
    """

    def __init__(self, sets: Sequence[ArgumentSet], seed: int, inout: Sequence[str] = ()) -> None:
        self.once = bool(inout)
        self.restore = restorer(sets, inout)
        self.sets = sets
        self.seed = seed
        self._chance = random.Random(seed)
        self._scratch_chance = random.Random(~seed)
        self._placed: dict[Any, list[dict[str, Any]]] = {}
        self._moved: dict[tuple[tuple[int, int], ...], bool] = {}

    def arms(self, contenders: Sequence[Contender]) -> tuple[list[Arm], bool]:
        """Return the arms, and whether all use the same buffers; ``ArmFailed`` if an offline preparation raises."""
        shared = self._share_scratch([contender.family.scratch for contender in contenders])
        self._prepare(contenders)
        arms = []
        for contender in contenders:
            function, calls = contender.family.variants[contender.variant], []
            for argument_set, prepared in zip(self.sets, self._placed[contender.prepare], strict=True):
                arguments = bind(function, {**argument_set.inputs, **prepared})
                if argument_set.out is not None and takes_out(function):
                    arguments["out"] = argument_set.out
                calls.append(BoundCall(function, arguments))
            arms.append(Arm(contender.arm, tuple(calls), self.once, active=contender.active))
        alike = len({id(self._placed[contender.prepare]) for contender in contenders}) == 1
        return arms, shared and alike

    def prepared(self, contender: Contender) -> dict[str, Any]:
        """Return what a contender, of which ``arms`` has made an arm, prepared offline."""
        return self._placed[contender.prepare][0]

    def _share_scratch(self, scratches: Sequence[MutableMapping[Any, torch.Tensor]]) -> bool:
        """Move scratch buffers once per epoch. Return whether all families use the same ones.

        Without the move each buffer would keep one address in all epochs. That changes the times of unchanged kernels
        by 0.3 to 2.8 % on an H200, equally in every epoch, so more epochs could not tell the effect from a change.
        """
        first, *others = {id(scratch): scratch for scratch in scratches}.values()
        # Calls may have added buffers since: the first call of a variant often allocates its counters.
        families = tuple((id(scratch), len(scratch)) for scratch in (first, *others))
        if families not in self._moved:
            for scratch in (first, *others):
                for name, buffer in list(scratch.items()):
                    if scratch is not first and name in first and _equal(first[name], buffer):
                        scratch[name] = first[name]
                    elif buffer.device.type != "meta":  # no kernel uses a meta buffer
                        scratch[name] = place(buffer, self._scratch_chance)
            self._moved[families] = all(
                first.keys() == other.keys() and all(first[name] is other[name] for name in first) for other in others
            )
        return self._moved[families]

    def _prepare(self, contenders: Sequence[Contender]) -> None:
        """Place what contenders prepare, once for each function that prepares; equal values of a variant are shared."""
        made: dict[Any, dict[str, Any]] = {}
        same_as: dict[Any, Any] = {}
        for contender in contenders:
            prepare = contender.prepare
            if prepare in self._placed or prepare in made or prepare in same_as:
                continue
            try:
                with contender.active():
                    # All sets hold equal values.
                    value = contender.family.prepared(contender.variant, self.sets[0].inputs)
            except Exception as error:
                reason = f"its preparation raised {type(error).__name__}: {error}"
                raise ArmFailed(contender.arm, reason) from error
            rivals = (one.prepare for one in contenders if one.variant == contender.variant)
            equal = next((rival for rival in rivals if rival in made and _equal(made[rival], value)), None)
            if equal is None or prepare is None:
                made[prepare] = value
            else:
                same_as[prepare] = equal
        placed = [{prepare: place(value, self._chance) for prepare, value in made.items()} for _ in self.sets]
        self._placed |= {prepare: [of_set[prepare] for of_set in placed] for prepare in made}
        self._placed |= {prepare: self._placed[equal] for prepare, equal in same_as.items()}


def make_arms(variants: Mapping[str, str], family: Family, sets: Sequence[ArgumentSet], seed: int) -> list[Arm]:
    """Bind variants of one family to argument sets. ``variants`` maps an arm's name to its variant's name."""
    contenders = [Contender(arm, variant, family) for arm, variant in variants.items()]
    return Buffers(sets, seed).arms(contenders)[0]


def _equal(left: Any, right: Any) -> bool:
    """Return whether two prepared values are equal; tensors in dtype, device, shape, strides and content."""

    def layout(tensor: torch.Tensor) -> tuple[object, ...]:
        return tensor.dtype, tensor.device, tensor.shape, tensor.stride()

    def same(one: torch.Tensor, other: torch.Tensor) -> bool:
        return layout(one) == layout(other) and torch.equal(one, other)

    # An object of another class is passed only to the side that made it.
    return alike(left, right, same, others=False)
