"""Detect damaged parts of the cache: the name of a part ends with a checksum of its content."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

_LOG = logging.getLogger(__name__)

#: Ending of the name of a part that was moved aside.
DAMAGED = ".damaged"

_BLOCK = 1 << 20

#: Number of parts that are remembered as verified. Merges replace parts, so the number would grow for ever.
_MOST = 10_000

#: The inode, the size and the times of a file. Every write changes one of them.
Stamp = tuple[int, int, int, int]


class StoreError(Exception):
    """The store's cache cannot be used. The message says where the cache is and what to do."""


class DamagedPart(StoreError):
    """A part is damaged or missing. The next refresh of the store makes it again from the result files."""


def checksum(path: Path) -> str:
    """Return the CRC-32 of a file as eight hexadecimal digits.

    CRC-32 detects damage as well as a cryptographic digest does. With zlib it takes a third of the time of BLAKE2b.
    """
    crc = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            crc = zlib.crc32(block, crc)
    return f"{crc:08x}"


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file; ``None`` if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class PartChecks:
    """Verifies parts before this process reads them. Several threads may use it.

    Attributes:
        failed: whether a part was found damaged or missing. The store resets it when it has read the files again.
    """

    def __init__(self) -> None:
        self.failed = False
        self._verified: dict[Path, Stamp] = {}

    def verify(self, part: Path) -> None:
        """Verify the checksum of a part on first use, and again if its stamp has changed since then.

        A damaged part is moved aside.

        Raises:
            DamagedPart: the part is damaged, missing or cannot be read.
        """
        stamp = stamp_of(part)
        if stamp is not None and self._verified.get(part) == stamp:
            return
        try:
            found = checksum(part) if stamp is not None else None
        except OSError as error:
            found = str(error)
        if stamp is not None and found == part.stem.rpartition("-")[2]:
            if len(self._verified) >= _MOST:
                self._verified.clear()
            self._verified[part] = stamp
            return
        self.failed = True
        if stamp is not None:
            move_aside(part, f"its checksum is {found}")
        raise DamagedPart(
            f"the part {part} of the cache is damaged or missing, and is made again from the result files: try again"
        )

    def changed(self, parts: Iterable[Path]) -> bool:
        """Return whether a part is missing, or was written after it was verified. No content is read."""
        stamps = ((part, stamp_of(part)) for part in parts)
        return any(stamp is None or self._verified.get(part, stamp) != stamp for part, stamp in stamps)


def move_aside(path: Path, reason: str) -> None:
    """Rename a damaged file of the cache, for people who look for the cause, and log it."""
    aside = path.with_suffix(DAMAGED)
    # Formatted here, because asv prints records without their arguments.
    _LOG.warning(
        f"the cache file {path} is damaged ({reason}): it is kept as {aside.name}, and made again from the result "
        "files. If this happens again, check the disk."
    )
    try:
        path.replace(aside)
        os.utime(aside)
    except FileNotFoundError:  # another thread or process has moved it
        pass
