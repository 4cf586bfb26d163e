"""Name, lock and clean up the folder of a cache. Its name has a digest of the code, so other code has another cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from platformdirs import user_cache_path

_PACKAGE = Path(__file__).parents[1]

#: Seconds after which a cache in use is marked as used again, and seconds without use after which it is deleted.
_USED, _UNUSED = 86_400.0, 7 * 86_400.0


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


@contextmanager
def only_one(path: Path, wait: bool) -> Iterator[bool]:
    """Hold a lock on a file during a block. Yield whether this process got the lock.

    Only one process at a time can hold the lock. If the process is killed, the system releases the lock.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def sweep_caches(cache: Path) -> None:
    """Mark a cache as used, and delete caches of other code versions that were not used for a long time."""
    with suppress(OSError):
        if time.time() - cache.stat().st_mtime > _USED:
            os.utime(cache)
        for folder in cache.parent.glob("layout-*"):
            if folder != cache and time.time() - folder.stat().st_mtime > _UNUSED:
                shutil.rmtree(folder, ignore_errors=True)
