"""Where a problem and its candidates are: plain values, which travel to the worker as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Source:
    """Where a problem is defined.

    Attributes:
        kind: the format.
        definition: name of a suite, or path of a file.
        cases: texts that pick cases (``M=8``); () takes the first case of the device.
        every: all cases of the device.
        l2: "cold", "warm", or "" for cold on a GPU and warm on a CPU.
        against: variant of the suite that is the incumbent; "" for the baseline.
        tolerance: largest accepted relative error, instead of the problem's own.
        precision: dtype of a KernelBench problem, a name in torch.
        workloads: file of a FlashInfer-Bench definition's workloads; "" for the one beside it.
        benchmarks, checkout, packages: folders and packages of a suite's name, as ``WorkerSpec`` has them.
    """

    kind: Literal["suite", "kernelbench", "flashinfer"]
    definition: str
    cases: tuple[str, ...] = ()
    every: bool = False
    l2: str = ""
    against: str = ""
    tolerance: float | None = None
    precision: str = "float32"
    workloads: str = ""
    benchmarks: str = ""
    checkout: str = ""
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Submission:
    """A candidate's file.

    Attributes:
        name: unique in a loop.
        path: the file; nobody changes it while the loop runs.
        function: a name in it, or "".
    """

    name: str
    path: str
    function: str = ""


class Refused(ValueError):
    """A candidate's file cannot be imported, or does not hold what the problem asks for.

    Attributes:
        rule: name of the rule that its import broke, or "".
    """

    def __init__(self, reason: str, rule: str = "") -> None:
        super().__init__(reason)
        self.rule = rule
