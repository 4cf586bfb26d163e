"""Find the line of the code under test that asks, and what its modules ask while they are imported."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from lockstep.machine_code.model import Obstacle
from lockstep.suite.family_files import named_files

Frames = Sequence[tuple[FrameType, int]]


class Sources:
    """The files of the code under test, and what they ask while they are imported.

    Attributes:
        roots: the top-level packages and modules of the code under test, by the folder that holds them.
        asked: the questions of each file and the line that asks, by the file's path in its folder.
    """

    def __init__(self, roots: Mapping[Path, Collection[str]]) -> None:
        self._roots = roots
        self.packages = frozenset().union(*roots.values())
        self.asked: dict[str, dict[str, str]] = {}

    def line(self, frames: Frames) -> str:
        """Return file and line of the innermost function under test, "toy/scale.py:7"; "" if there is none."""
        placed = ((self._file(frame.f_code.co_filename), number) for frame, number in frames)
        return next((f"{file}:{number}" for file, number in placed if file), "")

    def note_import(self, question: str, frames: Frames) -> bool:
        """Record the question of a module that is being imported; return False if no module is being imported."""
        running = [frame.f_code.co_filename for frame, _ in frames if frame.f_code.co_name == "<module>"]
        importing = [file for path in running if (file := self._file(path))]
        for file in importing:
            self.asked.setdefault(file, {}).setdefault(f"{question} while it is imported", self.line(frames))
        return bool(importing)

    @contextlib.contextmanager
    def reached(self) -> Iterator[list[Obstacle]]:
        """Yield a list. After the block it holds what was asked by the modules that the block reaches.

        These are the modules whose functions run in the block, and the modules that they import by name. Suites do not
        count: each of their functions may import another module.
        """
        ran: set[str] = set()
        obstacles: list[Obstacle] = []

        def note(frame: FrameType, event: str, _: Any) -> None:
            ran.add(frame.f_code.co_filename)

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            yield obstacles
        finally:
            sys.setprofile(before)
        tree = next(iter(self._roots))
        files = sorted(named_files(tree, {self._file(path, tree) for path in ran}))
        asked = (each for file in files for each in self.asked.get(file, {}).items())
        obstacles += (Obstacle(*each) for each in dict.fromkeys(asked))

    def _file(self, name: str, only: Path | None = None) -> str:
        """Return the path of a file of the code under test in its folder; "" for another file."""
        for root in (only,) if only else self._roots:
            if (path := Path(name)).is_relative_to(root):
                path = path.relative_to(root)
                return str(path) if path.parts[0].removesuffix(".py") in self._roots[root] else ""
        return ""
