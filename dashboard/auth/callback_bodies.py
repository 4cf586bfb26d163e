"""Refuse callback requests that no page sends, before they reach Dash and the callbacks.

The types of a callback's parameters are what is checked, so a callback names each parameter with its type.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_type_hints

from dash import Dash
from flask import request
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json
from werkzeug.exceptions import BadRequest

#: Path to which Dash's renderer sends the values of a page.
PATH = "/_dash-update-component"

_UNDECLARED = "The request's inputs, state or outputs are not those of this callback: load the page again."


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
        if request.path == PATH and request.method == "POST":
            try:
                # This parser refuses texts that cannot be encoded (lone surrogates), and deep nesting.
                content = from_json(request.get_data())
            except ValueError:
                content = None
            if not isinstance(content, dict) or _has_large_number(content):
                raise BadRequest("The body of a callback request must be one JSON object.")
            # Dash fills this map at the first page. Until then no request is refused as unknown.
            known = getattr(app, "callback_map", {})
            callback = known.get(content["output"]) if isinstance(content.get("output"), str) else None
            if callback is None and known:
                raise BadRequest("This server has no callback with these outputs: load the page again.")
            if callback is not None:
                _check(content, callback)

    app.server.before_request(check)


def _check(content: dict[str, Any], callback: Mapping[str, Any]) -> None:
    try:
        body = _Body.model_validate(content, strict=True)
    except ValidationError as error:
        raise BadRequest(_UNDECLARED) from error
    values = [*_declared(body.inputs, callback["inputs"]), *_declared(body.state, callback["state"])]
    for part, kind in zip(values, _kinds(inspect.unwrap(callback["callback"])), strict=False):
        try:
            kind.validate_python(part.value)
        except ValidationError as error:
            raise BadRequest(f"The value of {part.id}.{part.property} has the wrong type.") from error


def _declared(parts: Sequence[_Value], declared: Sequence[Mapping[str, Any]]) -> Sequence[_Value]:
    """Return the request's inputs or its state.

    Raises:
        BadRequest: the names differ from those that the callback declares in ``declared``.
    """
    if [(part.id, part.property) for part in parts] != [(one["id"], one["property"]) for one in declared]:
        raise BadRequest(_UNDECLARED)
    return parts


@cache
def _kinds(function: Any) -> tuple[TypeAdapter[Any], ...]:
    """Return the types of a callback's positional parameters. The type of ``*args`` stands for 64 parameters."""
    hints = get_type_hints(function)
    kinds: list[TypeAdapter[Any]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = TypeAdapter(hints.get(name, Any), config=ConfigDict(strict=True))
        kinds += [kind] * (64 if parameter.kind is parameter.VAR_POSITIONAL else 1)
    return tuple(kinds)


def _has_large_number(value: Any) -> bool:
    """Return whether a JSON value holds an integer that databases and NumPy cannot store."""
    if isinstance(value, dict | list):
        return any(map(_has_large_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= 1 << 63
