"""Describe a problem and its candidates in plain values, which are sent to the worker as JSON."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class ProblemDefinition:
    """The problem that candidates solve, and the cases to measure, as plain values.

    Attributes:
        definition: name of a suite, or path of a file.
        cases: texts that select cases (``M=8``); without texts, the first case that the device measures.
        every: whether to take all cases that the device measures.
        against: variant of the suite that is the incumbent; "" for the baseline.
        tolerance: largest accepted relative error; None for the problem's own tolerance.
        precision: dtype of a KernelBench problem, named as in torch.
        workloads: file with the workloads of a FlashInfer-Bench definition; "" for the file in its data set.
        benchmarks, checkout, packages: folders and packages of a named suite; see ``WorkerSpec``.
        seed: seed of a KernelBench problem's weights, drawn by the judge, so that all its processes have the same.
    """

    kind: Literal["suite", "kernelbench", "flashinfer"]
    definition: str
    cases: tuple[str, ...] = ()
    every: bool = False
    against: str = ""
    tolerance: float | None = None
    precision: str = "float32"
    workloads: str = ""
    benchmarks: str = ""
    checkout: str = ""
    packages: tuple[str, ...] = ()
    seed: int = field(default_factory=lambda: random.SystemRandom().getrandbits(31))


@dataclass(frozen=True)
class Submission:
    """A candidate as submitted to the referee: a file, with the candidate's name.

    Attributes:
        name: name of the candidate, unique in a loop.
        path: path of the file, which must not change while the loop runs; "" for a variant of the suite.
        function: name of a function or class in the file, or ""; the name of the variant.
    """

    name: str
    path: str
    function: str = ""


@dataclass(frozen=True)
class Contest:
    """What the process of a contestant runs: a candidate, or the problem's own incumbent for None."""

    problem: ProblemDefinition
    candidate: Submission | None


class Refused(ValueError):
    """A candidate cannot be loaded, raises, or lacks what the problem requires; the message says why."""
