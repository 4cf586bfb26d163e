"""Read the query of a request, and split long lists into pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from flask import request
from pydantic import BaseModel, ValidationError

from dashboard.api.schema import Query

T = TypeVar("T")
Q = TypeVar("Q", bound=BaseModel)


class WrongQuery(ValueError):
    """A value of the query is wrong. The message names the key and what it may be."""


@dataclass(frozen=True)
class Part:
    """A page of a list.

    Attributes:
        items: the items of this page.
        next: the cursor of the next page; "" on the last page.
    """

    items: Iterable[BaseModel]
    next: str = ""

    @property
    def address(self) -> str:
        """Address of the list's next page: the current request with the cursor ``next``."""
        parameters = [(key, value) for key, value in request.args.items(multi=True) if key != "cursor"]
        return f"{request.script_root}{request.path}?{urlencode([*parameters, ('cursor', self.next)])}"


def part_of(items: Sequence[T], as_model: Callable[[T], BaseModel]) -> Part:
    """Return the page of ``items`` that the query requests. The cursor is the index of the page's first item."""
    query = query_of(Query)
    start = query.cursor or 0
    following = str(start + query.limit) if start + query.limit < len(items) else ""
    return Part(map(as_model, items[start : start + query.limit]), following)


def query_of(model: type[Q]) -> Q:
    """Return the query of the current request. Empty values are left out.

    Raises:
        WrongQuery: a value is not what the model allows.
    """
    values = {
        key: given if key in model.model_fields and model.model_fields[key].annotation == list[str] else given[0]
        for key, given in request.args.lists()
        if given[0]
    }
    try:
        return model.model_validate(values)
    except ValidationError as error:
        [first, *_] = error.errors()
        key = ".".join(map(str, first["loc"]))
        reason = f"{first['msg'][0].lower()}{first['msg'][1:]}"
        raise WrongQuery(f"{key} is {str(first['input'])[:20]!r}: {reason}") from error
