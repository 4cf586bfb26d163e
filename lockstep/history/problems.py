"""Problems of result files, and the outcome of a refresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: The cost of a problem: the whole "file" was not read, a "part" of the file was not read, or nothing ("note").
Weight = Literal["file", "part", "note"]


@dataclass(frozen=True, slots=True)
class Complaint:
    """A problem of a file, without the file's name. The caller adds the name.

    Attributes:
        what: one sentence without its subject, which is the file.
        reason: ``what`` without the details of this file; "" if ``what`` has no such details.
        weight: the cost of the problem.
    """

    what: str
    reason: str = ""
    weight: Weight = "part"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a file in the results folder.

    Attributes:
        path: the path of the file, relative to the results folder.
        what: one sentence without its subject, which is the file.
        reason: ``what`` without the details of this file; "" if ``what`` has no such details.
        weight: the cost of the problem.
    """

    path: str
    what: str
    reason: str = ""
    weight: Weight = "file"

    @property
    def kind(self) -> str:
        """Text that is equal for problems of the same kind."""
        return self.reason or self.what


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The outcome of a refresh.

    Attributes:
        files: number of result files in the folder.
        changed: number of files that were read because they are new or changed.
        gone: number of files that were known and no longer exist.
        points: number of points in the changed files.
        problems: number of problems in all files.
        notes: number of accepted differences from asv's format, in all files.
        seconds: duration.
    """

    files: int
    changed: int
    gone: int
    points: int
    problems: int
    notes: int
    seconds: float
