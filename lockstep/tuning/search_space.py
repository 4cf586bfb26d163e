"""What a family leaves open for tuning, and compiling all of it in parallel.

A family's module says it as data: ``CANDIDATES = {variant: function}``, where the function takes a case's axes by name
and returns an offer: the name of a ``choice``, the ``sizes`` that the choice is made for, and ``configs`` to try. The
variant takes one of them as ``config=``; without it, it does what its ``TABLE`` says.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from lockstep.machine_code.precompile import MOST_PROCESSES
from lockstep.processes.children import end_with_parent, reap, start
from lockstep.suite.discovery import load_suites, nearest
from lockstep.suite.family import Family, load_family
from lockstep.suite.model import Case, Suite, SuiteError, bind

#: The variant as it is: what a candidate has to beat.
INCUMBENT = "now"


class SearchSpace(Protocol):
    """What may be tuned at one case."""

    @property
    def choice(self) -> str:
        """Name of the choice in the table."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """What the choice is made for."""

    @property
    def configs(self) -> Sequence[Any]:
        """What may be used: named tuples, or names."""


class TuningTable(Protocol):
    """A family's table of tuned choices, its module's ``TABLE``."""

    def save(
        self, gpu: str, about: Mapping[str, str | int], tuned: Sequence[tuple[str, Mapping[str, int], Any]]
    ) -> Path:
        """Store (choice, sizes, configuration) for a GPU; returns the file."""


def table_of(suite: Suite) -> TuningTable:
    """The family's table.

    Raises:
        SuiteError: its module has none.
    """
    module = importlib.import_module(f"{suite.package}.{suite.family}")
    table = getattr(module, "TABLE", None)
    if table is None:
        raise SuiteError(f"{module.__file__} has no TABLE to write what is tuned into")
    return table  # type: ignore[no-any-return]  # whatever has the methods


def tunable(suite: Suite) -> tuple[str, ...]:
    """Variants that offer candidates."""
    return tuple(_spaces(suite))


def search_space_of(suite: Suite, variant: str, case: Case) -> SearchSpace:
    """What may be tuned of a variant at a case.

    Raises:
        SuiteError: nothing; the message names the variants that can.
    """
    spaces = _spaces(suite)
    if variant not in spaces:
        raise SuiteError(f"{suite.name}: {variant!r} offers no candidates{nearest(variant, spaces)}")
    space: SearchSpace = spaces[variant](**bind(spaces[variant], case))
    return space


def contest(suite: Suite, variant: str, space: SearchSpace) -> Family:
    """The variant as it is and with each configuration, as a family of rivals that are prepared alike."""
    family = load_family(suite)
    function = family.variants[variant]
    rivals = {INCUMBENT: function} | {name_of(config): partial(function, config=config) for config in space.configs}
    prepare = family.prepare.get(variant)
    return Family(rivals, dict.fromkeys(rivals, prepare) if prepare else {}, family.note, family.scratch)


def name_of(config: Any) -> str:
    """A configuration in one line."""
    if hasattr(config, "_asdict"):
        return " ".join(f"{name}={value}" for name, value in config._asdict().items())
    return str(config)


def _spaces(suite: Suite) -> dict[str, Any]:
    module = importlib.import_module(f"{suite.package}.{suite.family}")
    prefix = f"{suite.op}." if suite.op else ""
    spaces = getattr(module, "CANDIDATES", {})
    return {name.removeprefix(prefix): space for name, space in spaces.items() if name.startswith(prefix)}


def compile_all(benchmark_dir: Path, jobs: Sequence[tuple[str, str, str]], arch: int) -> None:
    """Compile every candidate of (suite, variant, case label) jobs for ``sm_<arch>`` into Triton's cache.

    What cannot be compiled on meta tensors compiles when it is first called.
    """
    count = max(1, min(MOST_PROCESSES, len(os.sched_getaffinity(0)) - 1))
    command = [
        sys.executable,
        "-m",
        "lockstep.tuning.search_space",
        "--benchmarks",
        str(benchmark_dir),
        "--arch",
        str(arch),
    ]
    running = [
        start(
            [*command, "--share", str(share), "--of", str(count), *("\t".join(job) for job in jobs)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # No CUDA context: these processes must not take memory on the GPU.
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
        for share in range(count)
    ]
    try:
        for process in running:
            reap(process)
    except BaseException:
        for process in running:
            reap(process, 0.0)
        raise


def _calls(suite: Suite, variant: str, case: Case) -> Iterator[partial[Any]]:
    """Calls of every candidate on meta tensors."""
    from lockstep.suite.family import takes_out
    from lockstep.suite.inputs import Draw

    family = contest(suite, variant, search_space_of(suite, variant, case))
    draw, axes = Draw("meta", 0), dict(case)
    inputs = suite.inputs(**bind(suite.inputs, {"draw": draw, **axes}))
    for name, function in family.variants.items():
        arguments = family.arguments(name, inputs)
        if suite.outputs is not None and takes_out(function):
            arguments["out"] = suite.outputs(**bind(suite.outputs, {"draw": draw, **axes}))
        yield partial(function, **arguments)


def _main() -> int:
    end_with_parent()
    parser = argparse.ArgumentParser(prog="lockstep candidates")
    parser.add_argument("--benchmarks", type=Path, required=True)
    parser.add_argument("--arch", type=int, required=True)
    parser.add_argument("--share", type=int, required=True)
    parser.add_argument("--of", type=int, required=True)
    parser.add_argument("jobs", nargs="+")
    options = parser.parse_args()
    suites = load_suites(options.benchmarks)

    from lockstep.machine_code.compiling import intercept

    with intercept(options.arch):
        number = 0
        for job in options.jobs:
            name, variant, label = job.split("\t")
            for call in _calls(suites[name], variant, suites[name].case(label)):
                number += 1
                if number % options.of != options.share:
                    continue
                try:
                    call()
                except Exception as error:  # whatever it is, the one who measures meets it again and reports it
                    print(f"{job}: {type(error).__name__}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
