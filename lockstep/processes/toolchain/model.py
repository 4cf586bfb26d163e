"""Describe a toolchain: the packages that a worker process imports instead of the installed packages."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path


@dataclass(frozen=True)
class Toolchain:
    """Folders that precede the installed packages on the path of a worker process.

    Attributes:
        name: the user's text, such as "triton==3.6.0"; "installed" for the running environment.
        folders: absolute folders from which packages are imported; earlier folders take precedence. A package that none
            of them has is imported from the running environment.
    """

    name: str = "installed"
    folders: tuple[Path, ...] = ()

    def versions(self) -> dict[str, str]:
        """Return the version of each package that a worker with this toolchain can import, by normalized name."""
        return dict(_versions(self.folders))

    def digest(self) -> str:
        """Return a digest of all package versions, and of the files of Triton, which may be rebuilt in place.

        A file is identified by its size and modification time.
        """
        return _digest(self.folders)


#: The toolchain that consists of the installed packages.
INSTALLED = Toolchain()


@cache
def _versions(folders: tuple[Path, ...]) -> tuple[tuple[str, str], ...]:
    versions: dict[str, str] = {}
    # The first folder that has a package wins, as for an import.
    for distribution in distributions(path=[*map(str, folders), *sys.path]):
        versions.setdefault(re.sub(r"[-_.]+", "-", str(distribution.metadata["Name"])).lower(), distribution.version)
    return tuple(sorted(versions.items()))


@cache
def _digest(folders: tuple[Path, ...]) -> str:
    digest = hashlib.sha256(repr(_versions(folders)).encode())
    for path in _files_of_triton(folders):
        state = path.stat()
        digest.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _files_of_triton(folders: tuple[Path, ...]) -> Iterator[Path]:
    inside = [folder / "triton" for folder in folders if (folder / "triton").is_dir()]
    if not inside:
        spec = importlib.util.find_spec("triton")
        inside = [Path(place) for place in spec.submodule_search_locations or ()] if spec else []
    for suffix in ("*.py", "*.so"):
        yield from sorted(path for folder in inside[:1] for path in folder.rglob(suffix))
