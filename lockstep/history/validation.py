"""Validate what result files contain, and say what is wrong. They are not trusted: they may come from anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

#: Maximum size of a file in bytes. asv's file of 300 series with samples has about 0.5 MB. As Python objects, the
#: content of a JSON file takes up to 25 times the file's size.
LARGEST_FILE = 32 * 2**20

#: Maximum number of characters in a name, because names go into pages and addresses.
LONGEST_NAME = 300

#: Latest accepted time, in ms since 1970: in the year 2248.
LATEST_TIME = 2**43

#: Range of the accepted numbers. Every real time, rate and cost lies within it, and quotients and products of two such
#: numbers stay finite.
SMALLEST, LARGEST = 1e-30, 1e30


#: How much was not read because of a problem: the whole "file", a "part" of it, or nothing ("note").
Weight = Literal["file", "part", "note"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a file in the results folder, as it is listed for people.

    Attributes:
        path: the path of the file, relative to the results folder.
        what: what is wrong, as one sentence.
        reason: ``what`` without the details of this file; "" if ``what`` has no such details.
        weight: how much of the file was not read.
    """

    path: str
    what: str
    reason: str = ""
    weight: Weight = "file"

    @property
    def kind(self) -> str:
        """The text by which problems of the same kind are counted together: ``reason``, or else ``what``."""
        return self.reason or self.what


class Unreadable(ValueError):
    """A file, or a part of it, has the wrong form. The message says what is wrong with the file.

    ``reason``: the message without the details of this file, so that problems of one kind can be counted.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


def plain_file(path: Path) -> Path:
    """Return ``path`` if it is safe to read: a plain file that is not too large.

    Raises:
        Unreadable: the file is too large, a link (which could lead anywhere) or a pipe (which could never end).
        OSError: the file does not exist, or its permissions forbid reading.
    """
    size = path.stat().st_size
    if path.is_symlink() or not path.is_file():
        raise Unreadable("the file is a link or a special file, not a plain file")
    if size > LARGEST_FILE:
        raise Unreadable(f"the file is larger than {LARGEST_FILE >> 20} MiB, the limit")
    return path


def read_json(path: Path) -> Any:
    """Return the decoded content of a JSON file.

    NaN and infinities are accepted, because asv writes them. ``finite`` rejects them later.

    Raises:
        Unreadable: not a plain file, too large, not UTF-8, not JSON or nested too deep.
        OSError: the file cannot be opened.
    """
    content = plain_file(path).read_bytes()
    try:
        return from_json(content)
    except ValueError as error:
        raise Unreadable(f"the file is not JSON ({error})", "the file is not JSON") from error


def is_name(text: str) -> bool:
    """Return whether a text may serve as a name: printable and short, because names go into pages and addresses."""
    return len(text) <= LONGEST_NAME and text.isprintable()


def short_name(text: str) -> str:
    """Return a text from a file as a printable name of at most 300 characters. A longer text ends in a digest."""
    printable = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    if len(printable) <= LONGEST_NAME:
        return printable
    mark = blake2b(printable.encode(), digest_size=4).hexdigest()
    return f"{printable[: LONGEST_NAME - 10]}…{mark}"


def finite(value: Any) -> float | None:
    """Return a number as a float; ``None`` for other values, and for numbers that are too large or too small."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if number == 0 or SMALLEST < abs(number) < LARGEST else None


def in_range(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for each number of an array whether ``finite`` would accept it."""
    size = np.abs(values)
    valid: NDArray[np.bool_] = (size == 0) | ((size > SMALLEST) & (size < LARGEST))
    return valid


def time_ms(value: Any) -> int:
    """Return a time in ms since 1970; 0 for a value that is not a valid time."""
    number = finite(value)
    return int(number) if number is not None and 0 < number < LATEST_TIME else 0
