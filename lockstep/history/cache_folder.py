"""Name, lock and clean up the folder of a cache. Its name has a digest of the code, so other code has another cache.

One rule holds for all damage: the whole folder is moved aside, and made again from the result files.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from platformdirs import user_cache_path

from lockstep.processes.exit_status import Unusable
from lockstep.processes.only_one import only_one
from lockstep.processes.trouble import refused_by_disk

_LOG = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parents[1]

#: Seconds after which a cache in use is marked as used again, and seconds without use after which it is deleted.
_USED, _UNUSED = 86_400.0, 7 * 86_400.0

#: Ending of the name of a folder that was moved aside. ``sweep_caches`` deletes it later, like any unused cache.
_ASIDE = ".damaged"

#: The inode, the size and the times of a file or folder. Every write of a file changes one of them.
Stamp = tuple[int, int, int, int]


class StoreError(Unusable):
    """The store's cache cannot be used. The message says where the cache is and what to do."""


class DamagedCache(StoreError):
    """The cache was damaged. The next refresh of the store makes it again from the result files."""


def unusable(cache: Path, error: Exception) -> StoreError:
    """Return the error to raise where the file system refuses to read or write a cache."""
    reason = refused_by_disk(error, cache) or f"{error}: choose another folder"
    return StoreError(f"the cache {cache} cannot be used: {reason}")


def default_cache(root: Path) -> Path:
    """Return the default location of a results folder's cache."""
    digest = blake2b(str(root.resolve()).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return user_cache_path("lockstep") / f"results-{digest}"


@cache
def code_digest(package: Path = _PACKAGE) -> str:
    """Return the digest of all source files of a package, by default ``lockstep``.

    A version number would not tell two checkouts apart. Reading all files takes 10 ms.
    """
    digest = blake2b(digest_size=10)
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def lock_of(cache: Path) -> Path:
    """Return the lock file of all that writes a cache. It lies beside the cache, which may be moved aside."""
    return cache.with_name("lock")


def identity(cache: Path) -> int:
    """Return the inode of a cache's folder, which tells whether it was made again; 0 if there is no folder."""
    with suppress(OSError):
        return cache.stat().st_ino
    return 0


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file or folder; ``None`` if it cannot be examined."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def move_aside(cache: Path, damaged: int, reason: str) -> None:
    """Rename a damaged cache, for people who look for the cause, and log it.

    ``damaged``: the ``identity`` of the damaged folder. Nothing is done if another process has replaced it meanwhile.
    """
    aside = cache.with_name(cache.name + _ASIDE)
    with only_one(lock_of(cache), wait=True):
        if identity(cache) != damaged:
            return
        shutil.rmtree(aside, ignore_errors=True)
        cache.rename(aside)
        os.utime(aside)
    # Formatted here, because asv prints records without their arguments.
    _LOG.warning(
        f"the cache {cache} is damaged ({reason}): it is kept as {aside.name} and made again from the result files. "
        "If this happens again, check the disk."
    )


def moved_aside(cache: Path) -> str:
    """Return the name of the folder to which a damaged cache was moved; "" if there is none."""
    aside = cache.with_name(cache.name + _ASIDE)
    return aside.name if aside.exists() else ""


def sweep_caches(cache: Path) -> None:
    """Mark a cache as used, and delete caches of other code versions that were not used for a long time."""
    with suppress(OSError):
        if time.time() - cache.stat().st_mtime > _USED:
            os.utime(cache)
        for folder in cache.parent.glob("layout-*"):
            if folder != cache and time.time() - folder.stat().st_mtime > _UNUSED:
                shutil.rmtree(folder, ignore_errors=True)
