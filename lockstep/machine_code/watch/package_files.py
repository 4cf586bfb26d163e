"""Find which module of the packages under test a function belongs to, and whether a path is inside the packages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from lockstep.machine_code.watch.object_id import object_id

#: Modules that access files and folders; such access is allowed inside the packages.
FILES = frozenset({"pathlib", "posixpath", "genericpath", "glob", "os", "pkgutil", "shutil"})
#: Functions of these modules that only handle path names and access no file.
_OF_NAMES = frozenset(
    {
        *("join", "dirname", "basename", "split", "splitext", "normpath", "isabs", "commonprefix", "normcase"),
        *("splitdrive", "fspath", "fsencode", "fsdecode", "_get_sep", "_splitext", "_fspath", "__init__", "__new__"),
        *("_from_parts", "_from_parsed_parts", "_parse_args", "_format_parsed_parts", "__fspath__", "__str__"),
        *("__repr__", "__truediv__", "__rtruediv__", "_make_child", "joinpath", "parent", "parents", "name", "stem"),
        *("suffix", "with_name", "with_suffix", "with_stem", "parts", "as_posix", "relative_to", "is_relative_to"),
        *("__hash__", "__eq__", "drive", "root", "anchor", "is_absolute", "_cparts", "with_segments", "_load_parts"),
        *("_raw_path", "_str_normcase", "_parts_normcase", "_tail", "_parse_path", "__lt__", "_make_child_relpath"),
        *("__len__", "__getitem__", "__iter__"),
    }
)


class TreeFiles:
    """Decides whether functions and paths belong to the packages under test.

    Args:
        root: folder that holds the packages.
        packages: names of the top-level packages. Other files in ``root`` do not belong to the packages.
    """

    def __init__(self, root: Path, packages: Iterable[str]) -> None:
        self._root = f"{root.resolve()}{os.sep}"
        self._places = tuple(f"{self._root}{package}{end}" for package in packages for end in (os.sep, ".py"))
        self._modules: dict[int, tuple[CodeType, str]] = {}

    def module(self, frame: FrameType) -> str:
        """Return the dotted name of the module that a function belongs to.

        For code of the tree the name is derived from its file, because a module may assign its own ``__name__``.
        """
        code = frame.f_code
        entry = self._modules.get(object_id(code))
        if entry is None:
            entry = self._modules[object_id(code)] = code, self._named_by(code.co_filename)
        return entry[1] or str(frame.f_globals.get("__name__", ""))

    def _named_by(self, file: str) -> str:
        if not file.endswith(".py") or not self.holds(file):
            return ""
        parts = Path(file).resolve().relative_to(self._root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def holds(self, path: Any) -> bool:
        """Return whether an absolute path leads to a file or folder of the packages; False for a relative path."""
        text = os.fsdecode(path) if isinstance(path, bytes | str | os.PathLike) else ""
        real = os.path.realpath(text) if text.startswith(os.sep) else ""
        return real.startswith(self._places) or f"{real}{os.sep}" in self._places

    def allows(self, frame: FrameType) -> bool:
        """Return whether a call of a function in ``FILES`` only handles path names, or accesses only the packages."""
        if frame.f_code.co_name in _OF_NAMES:
            return True
        for name in ("self", "path", "filename", "p", "f", "s", "top"):
            value = frame.f_locals.get(name)
            if isinstance(value, str | os.PathLike):
                return self.holds(value)
            if isinstance(value, list | tuple):  # a list of folders, like __path__
                return all(map(self.holds, value))
        return False
