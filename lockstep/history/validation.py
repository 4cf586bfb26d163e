"""Distrust: what is read from a results folder came from elsewhere and may be anything."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Bytes. asv's file of 300 series with samples has about 0.5 MB; JSON takes up to 25 times as much as Python's objects.
LARGEST_FILE = 32 * 2**20

#: Characters of a name, which goes into pages and addresses.
LONGEST_NAME = 300

#: Milliseconds since 1970, in the year 2248.
LATEST_TIME = 2**43

#: No time, rate or cost lies outside; within, quotients and products of two stay finite.
SMALLEST, LARGEST = 1e-30, 1e30


class Unreadable(ValueError):
    """A file, or a part of one, is not what it should be; the message says how, not where.

    Args:
        what: the message.
        reason: the same without what is particular to this file, so that files of one kind can be counted.
    """

    def __init__(self, what: str, reason: str = "") -> None:
        super().__init__(what)
        self.reason = reason or what


def plain_file(path: Path) -> Path:
    """``path``, if it may be read.

    Raises:
        Unreadable: a link (it could lead anywhere), a pipe (it would never end) or too large.
        OSError: there is no such file, or no permission.
    """
    size = path.stat().st_size
    if path.is_symlink() or not path.is_file():
        raise Unreadable("is a link or a special file, not a plain one")
    if size > LARGEST_FILE:
        raise Unreadable(f"is larger than {LARGEST_FILE >> 20} MiB")
    return path


def read_json(path: Path) -> Any:
    """The file's content; asv writes NaN and infinities, so they are let in here and sorted out by ``finite``.

    Raises:
        Unreadable: not a plain file, too large, not UTF-8, not JSON or nested too deep.
        OSError: it cannot be opened.
    """
    try:
        return json.loads(plain_file(path).read_bytes().decode("utf-8"))
    except RecursionError as error:
        raise Unreadable("is nested too deep") from error
    except Unreadable:
        raise
    except ValueError as error:
        raise Unreadable(f"is not JSON ({error})", "is not JSON") from error


def name(text: Any) -> str:
    """A name from a file: printable and of bearable length, because it goes into pages and addresses.

    Raises:
        Unreadable: it is not.
    """
    if not isinstance(text, str) or len(text) > LONGEST_NAME or not text.isprintable():
        raise Unreadable(f"has {text!r:.60} where a name belongs", "has something else where a name belongs")
    return text


def short_name(text: str) -> str:
    """A text from a file as a printable name of at most 300 characters; a digest stands for what is cut off."""
    printable = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    if len(printable) <= LONGEST_NAME:
        return printable
    mark = blake2b(printable.encode(), digest_size=4).hexdigest()
    return f"{printable[: LONGEST_NAME - 10]}…{mark}"


def shown(text: str) -> str:
    """A file's name as one printable line."""
    return (
        text
        if text.isprintable()
        else text.encode("utf-8", "backslashreplace").decode().encode("unicode_escape").decode()
    )


def words(text: Any) -> str:
    """Free text from a file, cut at 2000 characters; "" for anything that is not text."""
    if not isinstance(text, str):
        return ""
    return text[:2000].encode("utf-8", "replace").decode("utf-8")


def finite(value: Any) -> float | None:
    """A number as a float; ``None`` for anything else, and for what is too large or too small to reckon with."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if number == 0 or SMALLEST < abs(number) < LARGEST else None


def in_range(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where ``finite`` would let an array's numbers through."""
    size = np.abs(values)
    good: NDArray[np.bool_] = (size == 0) | ((size > SMALLEST) & (size < LARGEST))
    return good


def time_ms(value: Any) -> int:
    """Milliseconds since 1970; 0 for anything that is no such time."""
    number = finite(value)
    return int(number) if number is not None and 0 < number < LATEST_TIME else 0
