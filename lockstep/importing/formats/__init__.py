"""Read the result files of other benchmark tools, one module a tool."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from lockstep.importing.formats import (
    github_action_benchmark,
    google_benchmark,
    nvbench,
    pytest_benchmark,
    pytorch_hud,
)

#: The module of each format. Google benchmark's recognises most, so it comes last.
FORMATS: Mapping[str, ModuleType] = {
    "pytest-benchmark": pytest_benchmark,
    "nvbench": nvbench,
    "github-action-benchmark": github_action_benchmark,
    "pytorch-hud": pytorch_hud,
    "google-benchmark": google_benchmark,
}
