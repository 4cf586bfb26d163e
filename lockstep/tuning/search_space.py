"""Read the search space of a family, and compile all of its candidates in parallel.

A family's module declares ``CANDIDATES = {variant: function}``. The function takes a case's axes by name and returns a
search space: the name of a ``choice``, the ``sizes`` that the choice depends on, and the ``configs`` to try. The
variant takes a configuration as ``config=``; without ``config`` the variant reads its module's ``TABLE``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from lockstep.machine_code.compiled_tree import processors_here
from lockstep.machine_code.targets import Target
from lockstep.processes.end_with_parent import end_with_parent, reap, start
from lockstep.processes.worker import read_as, spelled
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite, SuiteError
from lockstep.suite.discovery import load_suites
from lockstep.suite.evaluate import bind, buffers_of, inputs_of
from lockstep.suite.inputs import Draw
from lockstep.suite.selection import nearest
from lockstep.suite.variants import Family, import_module, load_family, takes_out

#: Name of the variant with its current configuration, which a candidate must beat.
INCUMBENT = "now"


class SearchSpace(Protocol):
    """The configurations to try for a variant at one case, and where the tuning table stores the best one."""

    @property
    def choice(self) -> str:
        """Return the name under which the tuning table stores the tuned choice."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return the sizes, by name, for which the tuning table stores the choice."""

    @property
    def configs(self) -> Sequence[Any]:
        """Return the configurations to try, as named tuples or names."""


class TuningTable(Protocol):
    """A family's tuned choices (tiles, dispatch) for each GPU: the ``TABLE`` of its module."""

    def applied(self, gpu: str, name: str, sizes: Mapping[str, int]) -> Any:
        """Return the configuration that the choice ``name`` applies on a GPU at these sizes; None if unknown."""

    def save(
        self, gpu: str, header: Mapping[str, str | int], tuned: Sequence[tuple[str, Mapping[str, int], Any]]
    ) -> Path | None:
        """Make the table of a GPU apply each (choice, sizes, configuration); return its path, None if unchanged."""


def table_of(suite: Suite) -> TuningTable:
    """Return the table of tuned choices of the suite's family; ``SuiteError`` if its module has none."""
    module = import_module(suite)
    table = getattr(module, "TABLE", None)
    if table is None:
        raise SuiteError(f"{suite.module or f'suite {suite.name}'} has no TABLE to store tuned choices in")
    return table  # type: ignore[no-any-return]  # any object with the methods


def tunable(suite: Suite) -> tuple[str, ...]:
    """Return the variants of a suite that can be tuned, because ``CANDIDATES`` has a search space for them."""
    return tuple(_spaces(suite))


def search_space_of(suite: Suite, variant: str, case: Case) -> SearchSpace:
    """Return the search space of a variant at a case; if it has none, ``SuiteError`` names variants that have one."""
    spaces = _spaces(suite)
    if variant not in spaces:
        raise SuiteError(f"suite {suite.name}: variant {variant!r} has no candidates{nearest(variant, spaces)}")
    space: SearchSpace = spaces[variant](**bind(spaces[variant], case))
    return space


def contest(suite: Suite, variant: str, space: SearchSpace) -> Family:
    """Return a family whose variants are the current configuration and those to try; all share one ``prepare``."""
    family = load_family(suite)
    function = family.variants[variant]
    rivals = {INCUMBENT: function} | {name_of(config): partial(function, config=config) for config in space.configs}
    prepare = family.prepare.get(variant)
    return Family(rivals, dict.fromkeys(rivals, prepare) if prepare else {}, family.note, family.scratch)


def name_of(config: Any) -> str:
    """Return a configuration as one line of text that identifies it: "block_m=64 num_warps=4"."""
    if hasattr(config, "_asdict"):
        return " ".join(f"{name}={value}" for name, value in config._asdict().items())
    return str(config)


def _spaces(suite: Suite) -> dict[str, Any]:
    module = import_module(suite)
    prefix = f"{suite.op}." if suite.op else ""
    spaces = getattr(module, "CANDIDATES", {})
    return {name.removeprefix(prefix): space for name, space in spaces.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class _Candidates:
    """What a separate process compiles: suite, variant and case label of each search space."""

    benchmark_dir: Path
    target: Target
    jobs: tuple[tuple[str, str, str], ...]


def compile_all(benchmark_dir: Path, jobs: Sequence[tuple[str, str, str]], target: Target) -> None:
    """Compile all candidates into Triton's cache, in one separate process that calls them on meta tensors.

    A candidate that cannot be called on meta tensors is compiled when it is first measured. ``jobs``: suite, variant
    and case label of each search space.
    """
    # The process sees no GPU, because a CUDA context takes memory on it, and no interpreter, which compiles nothing.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    process = start(
        [
            sys.executable,
            "-m",
            "lockstep.tuning.search_space",
            spelled(_Candidates(benchmark_dir, target, tuple(jobs))),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**environment, "CUDA_VISIBLE_DEVICES": ""},
    )
    try:
        reap(process)
    except BaseException:
        reap(process, 0.0)
        raise


def _calls(suite: Suite, variant: str, case: Case) -> Iterator[partial[Any]]:
    """Yield a call of every candidate on meta tensors, which shows the kernels to compile."""
    family = contest(suite, variant, search_space_of(suite, variant, case))
    new = Draw("meta", 0)
    inputs, out = inputs_of(suite, case, new), buffers_of(suite, case, new)
    for name, function in family.variants.items():
        arguments = family.arguments(name, inputs)
        if out is not None and takes_out(function):
            arguments["out"] = out
        yield partial(function, **arguments)


def _main() -> int:
    end_with_parent()
    asked = read_as(_Candidates, sys.argv[1])
    suites = load_suites(asked.benchmark_dir)

    # Imported here: only this process needs torch and Triton.
    from lockstep.machine_code.compiling.build import fill_cache
    from lockstep.machine_code.tracing.recorded_launches import Request, noted

    requests: list[Request] = []
    with noted(asked.target, lambda request, *_: requests.append(request)):
        for name, variant, label in asked.jobs:
            for call in _calls(suites[name], variant, suites[name].case(label)):
                # The measuring process meets the same error and reports it.
                with contextlib.suppress(Exception):
                    call()
    fill_cache(list({id(request): request for request in requests}.values()), processors_here())
    return 0


if __name__ == "__main__":
    sys.exit(_main())
