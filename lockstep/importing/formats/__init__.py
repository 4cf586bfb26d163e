"""Read the result files of other benchmark tools, one module a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Protocol

from lockstep.importing.formats import (
    github_action_benchmark,
    google_benchmark,
    hyperfine,
    nvbench,
    pytest_benchmark,
    pytorch_hud,
)
from lockstep.importing.model import ForeignRun

#: Keys that an object must have; an object whose keys have shapes of their own; or a list of entries of one shape.
Shape = Set[str] | Mapping[str, "Shape"] | Sequence["Shape"]


class Format(Protocol):
    """A format: a module, or an object."""

    @property
    def SHAPE(self) -> Shape:
        """The shape by which a file is recognised."""

    def read(self, content: Any, folder: Path) -> list[ForeignRun]:
        """Return the runs that a file in ``folder`` holds."""


#: Formats by name. Those that are recognised by the fewest keys come last.
FORMATS: Mapping[str, Format] = {
    "pytest-benchmark": pytest_benchmark,
    "nvbench": nvbench,
    "github-action-benchmark": github_action_benchmark,
    "pytorch-hud": pytorch_hud,
    "google-benchmark": google_benchmark,
    "hyperfine": hyperfine,
    "customSmallerIsBetter": github_action_benchmark.Output("lower"),
    "customBiggerIsBetter": github_action_benchmark.Output("higher"),
}

#: Formats of files without a better direction: who imports such a file names the format.
DIRECTED = ("customSmallerIsBetter", "customBiggerIsBetter")
