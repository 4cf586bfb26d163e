"""Let one process at a time use a file or a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_one(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a folder, or of a file that is made if it is missing. Yield whether this process got the lock.

    Only one process at a time can hold the lock. If the process is killed, the system releases the lock. The lock of a
    folder on NFS keeps only processes of the same machine apart. Raise ``OSError`` if the file cannot be opened.
    """
    # NFS refuses an exclusive lock on a file that is open for reading alone.
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        yield alone
    finally:
        os.close(handle)
