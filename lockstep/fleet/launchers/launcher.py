"""The protocol of a launcher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lockstep.fleet.shard import Shard


@dataclass(frozen=True)
class Job:
    """A shard to measure.

    Attributes:
        words: the words of the command after ``lockstep``.
        folder: the folder that the job writes.
    """

    shard: Shard
    words: tuple[str, ...]
    folder: Path

    @property
    def log(self) -> Path:
        """Return the path of the file with the job's output."""
        return self.folder.with_name(f"{self.folder.name}.log")


@dataclass(frozen=True)
class News:
    """What a launcher tells of a job: a line of its output, or its end.

    Attributes:
        line: the line; "" at the end.
        status: exit status of the job; ``None`` before its end.
    """

    job: Job
    line: str = ""
    status: int | None = None


class Launcher(Protocol):
    """Starts jobs on an engine. ``start`` is called once; ``stop`` may interrupt ``watch``."""

    def start(self, jobs: Sequence[Job]) -> None:
        """Start all jobs."""

    def watch(self) -> Iterator[News]:
        """Yield what the jobs print, until all have ended."""

    def stop(self) -> None:
        """Interrupt the jobs, as Ctrl-C does, and wait until they have saved what they measured."""
