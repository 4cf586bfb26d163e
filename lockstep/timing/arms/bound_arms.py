"""Bind each variant to argument sets that the harness draws, places and rotates. A bound variant is an arm.

All arms of a comparison share inputs and outputs. Only the results of offline preparation (packed weights) are
separate.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lockstep.suite.evaluate import bind
from lockstep.suite.variants import Family, takes_out
from lockstep.timing.arms.argument_sets import ArgumentSet, place
from lockstep.timing.checks.outputs import Located, outputs_of
from lockstep.timing.device import Call, Device, Replay


@dataclass(frozen=True)
class BoundCall:
    """A variant's function with the arguments of one argument set, ready to be called."""

    function: Any
    arguments: dict[str, Any]

    def __call__(self) -> Any:
        """Call the function once."""
        return self.function(**self.arguments)


@dataclass(frozen=True, eq=False)
class ArmReplay:
    """An arm's calls, captured so that they can be run again and timed. A rotation is one call on each argument set.

    Attributes:
        run: runs the captured rotations.
        results: returns the result of each call of the last rotation, in the order of the argument sets.
    """

    run: Replay
    results: Callable[[], list[Any]]

    def __call__(self) -> None:
        """Run the captured calls once: all rotations through the argument sets."""
        self.run()


@dataclass(frozen=True)
class Arm:
    """A variant, bound to the arguments of each argument set.

    Attributes:
        calls: one call for each argument set.
        once: whether a replay makes each call only once, because calls change their arguments.
        before: a function that runs before each call. Its time counts, and its result is dropped.
    """

    name: str
    calls: tuple[BoundCall, ...]
    once: bool = False
    before: Call | None = None

    def capture(self, device: Device, pool: object, times: int) -> ArmReplay:
        """Return a replay of ``times`` rotations. A rotation is one call on each argument set.

        Outputs that the variant allocates stay alive for one rotation, so that each call of a rotation writes to other
        memory. The next arm captured in this pool reuses the memory of these outputs, so arms share them too.

        Raises:
            Disqualified: on CUDA, a captured call returned something other than real tensors.
        """
        alive: deque[Any] = deque(maxlen=len(self.calls))

        def keep(call: Call) -> Call:
            return lambda: alive.append(call())

        rotation = [step for call in self.calls for step in (self.before, keep(call)) if step is not None]
        replay = device.capture(rotation * times, pool)
        if device.kind == "cpu":
            alive.clear()
            return ArmReplay(replay, lambda: list(alive))
        torch_device = device.torch_device
        located = [[Located.of(output) for output in outputs_of(self.name, result, torch_device)] for result in alive]
        alive.clear()
        return ArmReplay(replay, lambda: [[place.tensor(torch_device) for place in places] for places in located])


def make_arms(
    variants: Mapping[str, str], family: Family, sets: Sequence[ArgumentSet], seed: int, once: bool = False
) -> list[Arm]:
    """Bind each arm's variant to its arguments in every argument set.

    Variants with the same ``prepare`` function share its result (packed weights), placed at random like the inputs. So
    the two arms of an A/A comparison share every buffer, and most other arms do as well.

    Args:
        variants: variant name of each arm, by the arm's name.
        sets: the argument sets (inputs and outputs), all from one draw.
        seed: seed of the placement.
        once: see ``Arm``.
    """
    chance = random.Random(seed)
    move(family.scratch, random.Random(~seed))
    prepared: dict[Any, dict[str, Any]] = {}
    for variant in variants.values():
        if (prepare := family.prepare.get(variant)) not in prepared:
            prepared[prepare] = family.prepared(variant, sets[0].inputs)
    calls: dict[str, list[BoundCall]] = {arm: [] for arm in variants}
    for argument_set in sets:
        placed = {prepare: place(value, chance) for prepare, value in prepared.items()}
        for arm, variant in variants.items():
            function = family.variants[variant]
            arguments = bind(function, {**argument_set.inputs, **placed[family.prepare.get(variant)]})
            if argument_set.out is not None and takes_out(function):
                arguments["out"] = argument_set.out
            calls[arm].append(BoundCall(function, arguments))
    return [Arm(arm, tuple(bound), once) for arm, bound in calls.items()]


def move(scratch: MutableMapping[Any, torch.Tensor], chance: random.Random) -> None:
    """Copy scratch buffers to random addresses, because addresses affect times; no kernel may use the buffers now."""
    for name, buffer in list(scratch.items()):
        if buffer.device.type != "meta":  # no kernel uses a meta buffer
            scratch[name] = place(buffer, chance)
