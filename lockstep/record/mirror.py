"""Keep a local copy of a results folder at an address of fsspec, such as ``s3://bucket/results``.

Every verb reads and writes the copy. ``pull`` fetches the files that changed at the address, and ``push`` stores those
that changed in the copy. Nothing is deleted at the address. An interrupted ``pull`` or ``push`` can be repeated.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any

from platformdirs import user_cache_path

from lockstep.processes.only_one import only_one
from lockstep.record.file import replace_file

_LOG = logging.getLogger(__name__)

#: Number of files that are fetched or stored together. What was fetched is noted after each.
_AT_ONCE = 256

#: A file of the copy: a digest of what the address says of it, then size and time (ns) of the copied file.
_Copied = tuple[str, int, int]


class MirrorError(OSError):
    """Files at an address cannot be read or written. The message names the address."""


@dataclass(frozen=True)
class Mirror:
    """A local copy.

    Attributes:
        address: the address of the original.
        folder: the folder of the copy, in the user's cache folder.
    """

    address: str
    folder: Path

    @classmethod
    def of(cls, address: str) -> Mirror:
        """Return the copy of an address. It may not exist yet."""
        digest = blake2b(address.rstrip("/").encode(), digest_size=8).hexdigest()
        return cls(address, user_cache_path("lockstep") / f"copy-{digest}" / "results")

    @classmethod
    def at(cls, folder: Path) -> Mirror | None:
        """Return the copy that lies in a folder; ``None`` if the folder is an original."""
        known = folder.absolute().parent / "address"
        return cls(known.read_text(encoding="utf-8"), folder) if known.is_file() else None

    def pull(self) -> int:
        """Fetch what is new or changed, delete what is gone, and return the number of files at the address.

        Raises:
            MirrorError: the address cannot be read.
        """
        with self._opened() as (files, root, copied):
            there = _listed(files, root)
            for names in _portions(name for name, told in there.items() if not self._has(name, told, copied)):
                paths = [self.folder / name for name in names]
                for path in paths:
                    path.parent.mkdir(parents=True, exist_ok=True)
                # Readers must not see a part of a file.
                parts = [path.with_name(f".{path.name}.part") for path in paths]
                files.get([f"{root}/{name}" for name in names], list(map(str, parts)))
                for name, path, part in zip(names, paths, parts, strict=True):
                    part.replace(path)
                    copied[name] = self._copied(name, there[name])
                self._note(copied)
            for name in copied.keys() - there.keys():
                (self.folder / name).unlink(missing_ok=True)
                del copied[name]
            self._note(copied)
            return len(there)

    def push(self) -> int:
        """Store the files that changed in the copy, and return their number.

        Raises:
            MirrorError: the address cannot be written.
        """
        with self._opened() as (files, root, copied):
            here = [path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file()]
            names = [path.as_posix() for path in here if not any(part.startswith(".") for part in path.parts)]
            changed = [name for name in names if self._copied(name)[1:] != copied.get(name, ("",))[1:]]
            for some in _portions(changed):
                files.put([str(self.folder / name) for name in some], [f"{root}/{name}" for name in some])
            there = _listed(files, root) if changed else {}
            copied |= {name: self._copied(name, there[name]) for name in changed if name in there}
            self._note(copied)
            return len(changed)

    def follow(self, stop: threading.Event, every_s: float = 60.0) -> None:
        """Pull every ``every_s`` seconds until ``stop`` is set. An address that cannot be read is tried again."""
        while not stop.wait(every_s):
            try:
                self.pull()
            except MirrorError as error:
                _LOG.warning("results are not up to date: %s", error)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[Any, str, dict[str, _Copied]]]:
        """Yield the file system, the root of the files in it, and what was copied. One process at a time."""
        # Imported here: only addresses need the extra `remote`.
        import fsspec

        # It says at each start where it found the credentials.
        logging.getLogger("botocore").setLevel(logging.WARNING)
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.folder.with_name("address"), self.address)
        with only_one(self.folder.with_name("lock"), wait=True):
            try:
                copied = json.loads(self._index.read_text(encoding="utf-8")) if self._index.is_file() else {}
                files, root = fsspec.url_to_fs(self.address)
                yield files, root.rstrip("/"), {name: tuple(known) for name, known in copied.items()}
            except Exception as error:  # each file system has errors of its own
                raise MirrorError(f"{self.address}: {' '.join(str(error).split()) or type(error).__name__}") from error

    @property
    def _index(self) -> Path:
        return self.folder.with_name("copied.json")

    def _has(self, name: str, told: str, copied: Mapping[str, _Copied]) -> bool:
        """Return whether the copy has a file as it is at the address, perhaps with changes that are not stored yet."""
        return name in copied and copied[name][0] == told and (self.folder / name).is_file()

    def _copied(self, name: str, told: str = "") -> _Copied:
        stat = (self.folder / name).stat()
        return told, stat.st_size, stat.st_mtime_ns

    def _note(self, copied: Mapping[str, _Copied]) -> None:
        replace_file(self._index, json.dumps(copied))


def _portions(names: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(names)
    return (ordered[at : at + _AT_ONCE] for at in range(0, len(ordered), _AT_ONCE))


def _listed(files: Any, root: str) -> dict[str, str]:
    """Return a digest of what the file system tells of each file below a root, by the file's name below the root.

    Raises:
        ValueError: a name leads out of the folder.
    """
    files.invalidate_cache()
    there: dict[str, str] = {}
    for path, told in files.find(root, detail=True).items():
        name = PurePosixPath(path).relative_to(root)
        if ".." in name.parts:
            raise ValueError(f"the name {path} leads out of the folder")
        if not any(part.startswith(".") for part in name.parts):
            facts = sorted((key, str(fact)) for key, fact in told.items())
            there[str(name)] = blake2b(repr(facts).encode(), digest_size=12).hexdigest()
    return there


def local(address: str) -> Path:
    """Return a folder of results: the path itself, or the copy of an address such as ``s3://bucket/results``.

    Raises:
        MirrorError: the address cannot be read, or no file is there.
    """
    if "://" not in address:
        return Path(address)
    mirror = Mirror.of(address)
    if not mirror.pull():
        raise MirrorError(f"{address}: there are no files")
    return mirror.folder
