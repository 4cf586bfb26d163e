"""Say what a server cannot do at present, once, and why a file cannot be used."""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

#: With less free space, SQLite fails with "disk I/O error" where it means a full disk.
_FULL_BYTES = 1 << 16


class Trouble:
    """Something that a server cannot do at present. Standard error gets one line when it begins and one when it ends.

    ``text``: what cannot be done and why; "" if there is no trouble.
    """

    def __init__(self) -> None:
        self.text = ""
        self._lock = threading.Lock()

    def begin(self, text: str) -> None:
        """State the trouble."""
        with self._lock:
            before, self.text = self.text, text
        if not before:
            print(f"lockstep: {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """State that the trouble is over, if there was any."""
        with self._lock:
            before, self.text = self.text, ""
        if before:
            print(f"lockstep: no longer true: {before}", file=sys.stderr, flush=True)


def reason_of(error: Exception) -> str:
    """Return the text of an error without the name of its file, for messages that name the file themselves."""
    return getattr(error, "strerror", None) or str(error)


def refused_by_disk(error: Exception, folder: Path) -> str:
    """Return why the file system of ``folder`` refused to read or write, with what to do; "" if the disk did not."""
    try:
        disk = os.statvfs(next(path for path in (folder, *folder.parents) if path.exists()))
    except OSError:
        return ""
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOSPC, errno.EDQUOT) or disk.f_bavail * disk.f_frsize < _FULL_BYTES:
        return "its disk is full: free space on it"
    if disk.f_files and not disk.f_favail:
        return "its disk has no free inodes: delete files on it"
    if code == errno.EROFS or disk.f_flag & os.ST_RDONLY:
        return "its disk is read-only: mount it writable"
    return ""
