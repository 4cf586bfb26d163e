"""Find the line of the code under test that asks, and what its modules ask while they are imported."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from lockstep.machine_code.family_files import named_files
from lockstep.machine_code.model import Obstacle

Frames = Sequence[tuple[FrameType, int]]


class Sources:
    """The files of the code under test, and what they asked at import.

    Args:
        tree: folder of the packages under test.
        packages: the packages under test.
        suites: folders of the suites that have variants of their own, and the names of their packages.
    """

    def __init__(self, tree: Path, packages: Collection[str], suites: Mapping[Path, Collection[str]]) -> None:
        self._tree = tree
        self._packages = frozenset(packages)
        self._suites = suites
        self.packages = self._packages.union(*suites.values())
        self._asked: dict[str, dict[str, str]] = {}

    def line(self, frames: Frames) -> str:
        """Return file and line of the innermost function under test, "toy/scale.py:7"; "" if there is none."""
        return next((f"{file}:{number}" for frame, number in frames if (file := self._file(frame))), "")

    def note_import(self, question: str, frames: Frames) -> bool:
        """Record the question of a module that is being imported; return False if no module is being imported."""
        importing = [file for frame, _ in frames if frame.f_code.co_name == "<module>" and (file := self._file(frame))]
        for file in importing:
            self._asked.setdefault(file, {}).setdefault(f"{question} while it is imported", self.line(frames))
        return bool(importing)

    @property
    def asked(self) -> bool:
        """Return whether a module asked anything while it was imported."""
        return bool(self._asked)

    @contextlib.contextmanager
    def reached(self) -> Iterator[list[Obstacle]]:
        """Yield a list. After the block it holds what was asked by the modules that the block reaches.

        These are the modules of the packages under test whose functions run in the block, and the modules that they
        import by name.
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
        paths = [Path(file).relative_to(self._tree) for file in ran if Path(file).is_relative_to(self._tree)]
        own = (str(path) for path in paths if path.parts[0].removesuffix(".py") in self._packages)
        files = named_files(self._tree, own)
        asked = (each for file in sorted(files) for each in self._asked.get(file, {}).items())
        obstacles += (Obstacle(*each) for each in dict.fromkeys(asked))

    def _file(self, frame: FrameType) -> str:
        """Return the path of a frame's file in its folder; "" for a file that is not under test."""
        path = Path(frame.f_code.co_filename)
        for root, packages in ((self._tree, self._packages), *self._suites.items()):
            if path.is_relative_to(root) and path.relative_to(root).parts[0].removesuffix(".py") in packages:
                return str(path.relative_to(root))
        return ""
