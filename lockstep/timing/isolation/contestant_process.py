"""The process that runs one variant for a judge in another process (``lockstep.timing.isolation.isolated_judge``).

This process holds no reference, no seed, no verdict, and no clock that the result depends on. Requests: first
``{"address", "sets"}`` of the arena, ``idle`` any number of times, ``load``, then ``setup`` (lengths), ``prepare``
(sets), ``run`` (sets). Events: ``up``, ``idle``, ``ready``, ``done``; ``ready`` and ``done`` carry an ``error`` or "".
The judge does not rely on these answers: the judge takes the time and reads the outputs itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.processes.import_torch import load_torch
from lockstep.processes.template import Template
from lockstep.processes.worker import WorkerProcess

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.suite.variants import Family
    from lockstep.timing.device import Device, Replay

#: Modules that every contestant imports before the code under test. The last two belong to an extra.
_PRELOADED = (
    "torch",
    "lockstep.suite.checkout",
    "lockstep.suite.discovery",
    "lockstep.suite.variants",
    "lockstep.timing.isolation.arena",
    "lockstep.timing.checks.check",
    "lockstep.timing.device",
    "lockstep.timing.isolation.sandbox",
    "triton",
    "landlock",
    "pyseccomp",
)


def template_for(module: str) -> Template:
    """Start the template process from which contestants, the processes that run one variant each, are forked.

    The template process imports its modules while this process continues.

    Args:
        module: the module that the contestants run.
    """
    return Template([*_PRELOADED, module])


def main() -> int:
    """Run a contestant, the process of one variant: serve the judge's requests until standard input ends."""
    process = WorkerProcess("lockstep contestant")
    parser = process.parser
    parser.add_argument("--benchmarks", type=Path, required=True)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--packages", nargs="+", required=True)
    parser.add_argument("--suite", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    options = process.parse()
    load_torch()
    # Imported here: torch is slow to import, and the process must first be tied to its parent.
    from lockstep.suite.checkout import import_from
    from lockstep.suite.discovery import load_suites
    from lockstep.suite.variants import load_family

    suites = load_suites(options.benchmarks)

    def load() -> tuple[Family, str]:
        import_from(options.checkout, options.packages)
        return load_family(suites[options.suite]), options.variant

    return serve(process, options.scratch, load)


def serve(process: WorkerProcess, scratch: Path, load: Callable[[], tuple[Family, str]]) -> int:
    """Run a variant in this process at the requests of a judge in another process, until standard input ends.

    Args:
        process: this process, tied to its parent; torch is loaded.
        scratch: the folder that the code under test may write to.
        load: imports the code under test and returns its family and the variant's name.
    """
    # Imported here: torch is slow to import, and the process must first be tied to its parent.
    from lockstep.timing.checks.check import brief
    from lockstep.timing.device import open_device
    from lockstep.timing.isolation.arena import attach, decode
    from lockstep.timing.isolation.sandbox import restrict

    process.emit("up")
    requests = process.requests()
    arena = next(requests)
    # Attach before the sandbox starts: opening CUDA's handles needs file access.
    buffer = attach(arena["address"])
    sets = [decode(text, buffer) for text in arena["sets"]]
    device = open_device()
    idle = _idle_replay(device)
    missing = restrict(scratch)
    process.emit("idle", error="")
    for request in requests:
        if "load" in request:
            break
        idle()
        device.synchronize()
        process.emit("done", error="")
    # From this line on, code under test runs in the process.
    try:
        contestant = _Contestant(*load(), device, sets)
    except Exception as error:
        process.emit("ready", error=brief(error))
        return 0
    process.emit("ready", error="", missing=missing, prepares=contestant.prepares())
    verbs: dict[str, Callable[[Any], None]] = {
        "setup": contestant.set_up,
        "prepare": contestant.prepare,
        "run": contestant.run,
    }
    for request in requests:
        [(verb, value)] = request.items()
        try:
            verbs[verb](value)
            process.emit("done", error="")
        except Exception as error:
            process.emit("done", error=brief(error))
    return 0


def _idle_replay(device: Device) -> Replay:
    """Return a replay that does almost nothing. Its time is the cost of a run without code under test."""
    # Imported here: torch is slow to import, and the process must first be tied to its parent.
    import torch

    number = torch.zeros(1, device=device.torch_device)
    replay = device.capture([lambda: number.add_(1.0)], device.new_pool())
    replay()
    return replay


@dataclass
class _Contestant:
    """The variant of this process, bound to argument sets.

    Each set is a dict of ``inputs``, ``out`` and ``results``.
    """

    family: Family
    variant: str
    device: Device
    sets: Sequence[dict[str, Any]]
    _prepared: list[dict[str, Any]] = field(default_factory=list)
    _replays: dict[int, Replay] = field(default_factory=dict)

    def prepares(self) -> list[str]:
        """Return the names of the inputs that the variant's offline preparation takes; [] without a preparation."""
        # Imported here: torch is slow to import, and the process must first be tied to its parent.
        from lockstep.suite.evaluate import bind

        prepare = self.family.prepare.get(self.variant)
        return list(bind(prepare, self.sets[0]["inputs"])) if prepare else []

    def prepare(self, count: int) -> None:
        """Run the variant's offline preparation for the first ``count`` sets, and overwrite its earlier results in
        place.
        """
        # Imported here: torch is slow to import, and the process must first be tied to its parent.
        from lockstep.suite.inputs import tensors_of

        for number, argument_set in enumerate(self.sets[:count]):
            prepared = self.family.prepared(self.variant, argument_set["inputs"])
            if number == len(self._prepared):
                self._prepared.append(prepared)
                continue
            for old, new in zip(tensors_of(self._prepared[number]), tensors_of(prepared), strict=True):
                old.copy_(new)

    def set_up(self, lengths: Sequence[int]) -> None:
        """Compile the variant; capture for each length a replay of one call on each of the first ``length`` sets."""
        # Imported here: torch is slow to import, and the process must first be tied to its parent.
        from lockstep.suite.evaluate import bind
        from lockstep.suite.inputs import tensors_of
        from lockstep.suite.variants import takes_out

        self.prepare(len(self.sets))
        function = self.family.variants[self.variant]
        calls = []
        for argument_set, prepared in zip(self.sets, self._prepared, strict=True):
            arguments = bind(function, {**argument_set["inputs"], **prepared})
            if argument_set["out"] is not None and takes_out(function):
                arguments["out"] = argument_set["out"]
            calls.append(_call(function, arguments, tensors_of(argument_set["results"])))
        calls[0]()  # compiles
        self.device.synchronize()
        pool = self.device.new_pool()
        for length in lengths:
            self._replays[length] = self.device.capture(calls[:length], pool)
        for replay in self._replays.values():
            replay()  # the first launch of a graph also copies the graph to the GPU
        self.device.synchronize()

    def run(self, count: int) -> None:
        """Call the variant once on each of the first ``count`` sets, and wait until the device has finished."""
        self._replays[count]()
        self.device.synchronize()


def _call(function: Any, arguments: dict[str, Any], results: Sequence[Tensor]) -> Callable[[], None]:
    """Return a function that calls ``function`` and copies its outputs into the shared buffers ``results``."""
    # Imported here: torch is slow to import, and the process must first be tied to its parent.
    from lockstep.suite.inputs import tensors_of

    def call() -> None:
        returned = tensors_of(function(**arguments))
        if len(returned) != len(results):
            raise ValueError(f"the variant returned {len(returned)} tensors, expected {len(results)}")
        for target, value in zip(results, returned, strict=True):
            if target.shape != value.shape:
                raise ValueError(f"the variant returned shape {list(value.shape)}, expected {list(target.shape)}")
            if value.data_ptr() != target.data_ptr():
                target.copy_(value)

    return call


if __name__ == "__main__":
    sys.exit(main())
