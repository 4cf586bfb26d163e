"""Refuse requests to callbacks that no page of the app sends.

The types of a callback's parameters are what is checked, so a callback names each parameter with its type.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, get_type_hints

from dash import Dash
from flask import request
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from werkzeug.exceptions import BadRequest

#: Path to which Dash's renderer sends the values of a page.
PATH = "/_dash-update-component"


class _Value(BaseModel):
    """A property of a component, and its value."""

    id: Any
    property: str
    value: Any = None


class _Body(BaseModel):
    """What Dash's renderer sends to a callback."""

    output: str
    outputs: dict[str, Any] | list[Any] = []
    inputs: list[_Value] = []
    state: list[_Value] = []
    changedPropIds: list[str] = []  # noqa: N815  # Dash's name


def add_checks(app: Dash) -> None:
    """Answer 400 to a callback request that does not match the form and types of any of the app's callbacks."""

    def check() -> None:
        if request.path == PATH and request.method == "POST" and not _fits(app, request.get_data()):
            raise BadRequest("No page of this server sends such a request: load the page again.")

    app.server.before_request(check)


def _fits(app: Dash, text: bytes) -> bool:
    try:
        # Pydantic's parser refuses texts that cannot be encoded (lone surrogates), and deep nesting.
        body = _Body.model_validate_json(text, strict=True)
        parts = body.inputs + body.state
        # Dash fills this map at the first page. Until then no request is refused as unknown.
        known = getattr(app, "callback_map", {})
        if body.output not in known:
            return not known
        callback = known[body.output]
        declared = [(one["id"], one["property"]) for one in (*callback["inputs"], *callback["state"])]
        if [(part.id, part.property) for part in parts] != declared or _has_large_number([p.value for p in parts]):
            return False
        _kinds(inspect.unwrap(callback["callback"]), len(parts)).validate_python(tuple(part.value for part in parts))
    except ValidationError:
        return False
    return True


@cache
def _kinds(function: Any, count: int) -> TypeAdapter[Any]:
    """Return the types of the first ``count`` arguments of a callback, of which the last may be ``*args``."""
    hints = get_type_hints(function)
    names = [*inspect.signature(function).parameters]
    kinds = tuple(hints.get(name, Any) for name in (names + names[-1:] * count)[:count])
    return TypeAdapter(tuple[kinds], config=ConfigDict(strict=True))  # type: ignore[valid-type]


def _has_large_number(value: Any) -> bool:
    """Return whether a JSON value holds an integer that databases and NumPy cannot store."""
    if isinstance(value, dict | list):
        return any(map(_has_large_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= 1 << 63
