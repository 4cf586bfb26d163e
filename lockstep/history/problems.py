"""Describe what is wrong with result files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: How much was not read because of a problem: the whole "file", a "part" of it, or nothing ("note").
Weight = Literal["file", "part", "note"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a file in the results folder, as it is listed for people.

    Attributes:
        path: the path of the file, relative to the results folder.
        what: what is wrong, as one sentence.
        reason: ``what`` without the details of this file; "" if ``what`` has no such details.
        weight: how much of the file was not read.
    """

    path: str
    what: str
    reason: str = ""
    weight: Weight = "file"

    @property
    def kind(self) -> str:
        """The text by which problems of the same kind are counted together: ``reason``, or else ``what``."""
        return self.reason or self.what
