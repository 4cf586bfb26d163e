"""Problems of result files, and what a refresh did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: What a problem costs: the whole "file" was not read, a "part" of it was not, or nothing ("note").
Weight = Literal["file", "part", "note"]


@dataclass(frozen=True, slots=True)
class Complaint:
    """A problem of a file, without the file's name: whoever reads the file adds it.

    Attributes:
        what: one sentence without its subject, which is the file.
        reason: ``what`` without the parts that are particular to one file; "" if ``what`` has no such part.
        weight: what it costs.
    """

    what: str
    reason: str = ""
    weight: Weight = "part"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a file of the results folder.

    Attributes:
        path: the path of the file, relative to the results folder.
        what: one sentence without its subject, which is the file.
        reason: under which problems of one kind are counted.
        weight: what it costs.
    """

    path: str
    what: str
    reason: str = ""
    weight: Weight = "file"

    @property
    def kind(self) -> str:
        """What problems of one kind share."""
        return self.reason or self.what


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh did.

    Attributes:
        files: result files in the folder.
        changed: files that were read because they are new or changed.
        gone: files that were known and no longer exist.
        points: number of points in the changed files.
        problems: number of problems in all files.
        notes: number of differences from what asv writes, in all files, that were read nevertheless.
        seconds: duration.
    """

    files: int
    changed: int
    gone: int
    points: int
    problems: int
    notes: int
    seconds: float
