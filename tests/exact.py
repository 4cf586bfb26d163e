"""A history of exact quantities as ``lockstep code history`` writes it, of numbers that a test plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from history import DAY_MS, START_MS

from lockstep.asv.exact_results import write_exact
from lockstep.machine_code.compiling.compiler_facts import CompilerFacts
from lockstep.machine_code.model import Call, CaseCode, CaseKey, KernelCode, MachineCode
from lockstep.machine_code.targets import Target
from lockstep.processes.toolchain import INSTALLED
from lockstep.suite.discovery import load_suites

SM90 = Target.parse("sm_90")
FACTS = CompilerFacts({"triton": "3.7.1", "torch": "2.13.0", "python": "3.11.7", "ptxas": "12.8"}, {})
KEY = CaseKey("linear", "stream", "M=8,K=4096,N=2048")


def code(registers: int = 128, spills: int = 0, launches: int = 1, kept: int = 0) -> CaseCode:
    """A case that launches one kernel so many times."""
    kernel = KernelCode("k", "identity", "k.py:1", machine=MachineCode("aa", registers, spills, 0, {"all": 500}))
    return CaseCode(
        (kernel,) * launches, ("given x=t0", *("launch [1] ()",) * launches), call=Call(0, launches, 0, 0, 0, kept)
    )


def write_exact_history(results: Path, commits: Sequence[str], plan: Callable[[int], CaseCode | None]) -> None:
    """Write the commits for which the plan has code."""
    suite = load_suites(Path(__file__).parents[1] / "benchmarks")[KEY.suite]
    for number, commit in enumerate(commits):
        if here := plan(number):
            write_exact(results, SM90, commit, START_MS + number * DAY_MS, "", [suite], {KEY: here}, INSTALLED, FACTS)
