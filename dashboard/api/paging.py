"""Split long lists into pages: ``limit`` items from ``cursor`` on, and a link to the next items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from flask import request

T = TypeVar("T")

#: Maximum number of items of one answer.
MOST_ITEMS = 10_000


class WrongQuery(ValueError):
    """A value of the query is wrong. The message names the key and a valid value."""


@dataclass(frozen=True)
class Part:
    """A page of a list.

    Attributes:
        items: the items of this page, as JSON objects.
        next: the cursor of the next page; "" on the last page.
    """

    items: list[dict[str, Any]]
    next: str = ""

    @property
    def address(self) -> str:
        """Address of the list's next page: the current request with the cursor ``next``."""
        parameters = [(key, value) for key, value in request.args.items(multi=True) if key != "cursor"]
        return f"{request.script_root}{request.path}?{urlencode([*parameters, ('cursor', self.next)])}"


def part_of(items: Sequence[T], as_json: Callable[[T], dict[str, Any]]) -> Part:
    """Return the page of ``items`` that the query requests. The cursor is the index of the page's first item."""
    limit, cursor = limit_and_cursor(MOST_ITEMS)
    start = cursor or 0
    following = str(start + limit) if start + limit < len(items) else ""
    return Part([as_json(item) for item in items[start : start + limit]], following)


def limit_and_cursor(usual: int) -> tuple[int, int | None]:
    """Return the query's limit, by default ``usual``, and its cursor, ``None`` for the first page.

    Raises:
        WrongQuery: limit or cursor is not a number, or the limit is out of its range.
    """
    limit, cursor = request.args.get("limit", str(usual)), request.args.get("cursor", "")
    if not (limit.isdecimal() and len(limit) < 9 and 1 <= int(limit) <= MOST_ITEMS):
        raise WrongQuery(f"limit is {limit[:20]!r}: write a number from 1 to {MOST_ITEMS}")
    if cursor and not (cursor.isdecimal() and len(cursor) < 10):
        raise WrongQuery(f"cursor is {cursor[:20]!r}: take the cursor from the Link header of the previous answer")
    return int(limit), int(cursor) if cursor else None
