"""Summarise how much of a results folder was not read, and why. ``lockstep ingest`` lists each file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lockstep.history.snapshot import Results
from lockstep.history.validation import Problem, Weight

#: Number of reasons that a sentence lists.
_MOST = 5

Reasons = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Tally:
    """How much of a results folder was not read or differs from asv's format, counted by reason.

    Attributes:
        files: the number of result files.
        unread: the number of result files that were not read at all.
        reasons: why files were not read, each with the number of files, the most frequent first.
        parts: why single benchmarks, provenance files and folders were not read, each with its count.
        notes: how content that was read differs from asv's format, each with its count.
    """

    files: int
    unread: int
    reasons: Reasons
    parts: Reasons
    notes: Reasons

    def sentences(self, advice: str = "`lockstep ingest` lists them") -> Iterator[str]:
        """Yield at most two sentences about content that was not read, each without a full stop; none if all was read.

        ``advice`` is added to the first of them; "" for none.
        """
        if self.unread:
            were = "was" if self.unread == 1 else "were"
            sentence = f"{self.unread:,} of {self.files:,} files {were} not read: {_listed(self.reasons)}"
            yield f"{sentence}; {advice}" if advice else sentence
        if self.parts:
            count = sum(number for _, number in self.parts)
            subject = "part of the results was" if count == 1 else "parts of the results were"
            sentence = f"{count:,} {subject} not read: {_listed(self.parts)}"
            yield f"{sentence}; {advice}" if advice and not self.unread else sentence

    def as_json(self) -> dict[str, Any]:
        """Return the counts of problems and notes as a JSON object."""
        weights: tuple[tuple[Weight, Reasons], ...] = (
            ("file", self.reasons),
            ("part", self.parts),
            ("note", self.notes),
        )
        kinds = [
            {"weight": weight, "reason": reason, "count": count}
            for weight, reasons in weights
            for reason, count in reasons
        ]
        return {"files": self.files, "files_not_read": self.unread, "kinds": kinds}


def tally(results: Results) -> Tally:
    """Count the problems and notes of a results folder by reason."""
    files = [problem for problem in results.problems if problem.weight == "file"]
    parts = (problem for problem in results.problems if problem.weight == "part")
    return Tally(
        results.files,
        len({problem.path for problem in files}),
        _counted(files),
        _counted(parts),
        _counted(results.notes),
    )


def problem_json(problem: Problem) -> dict[str, str]:
    """Return a problem or note as a JSON object."""
    return {"path": problem.path, "what": problem.what, "reason": problem.kind, "weight": problem.weight}


def _counted(problems: Iterable[Problem]) -> Reasons:
    return tuple(Counter(problem.kind for problem in problems).most_common())


def _listed(reasons: Reasons) -> str:
    shown = [f"{reason} ({count:,})" for reason, count in reasons[:_MOST]]
    left = sum(count for _, count in reasons[_MOST:])
    return ", ".join([*shown, *([f"other reasons ({left:,})"] if left else [])])
