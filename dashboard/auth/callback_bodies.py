"""Refuse callback requests that no page sends, before they reach Dash and the callbacks."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dash import Dash
from flask import request
from werkzeug.exceptions import BadRequest

#: Path to which Dash's renderer sends the values of a page.
PATH = "/_dash-update-component"

_UNDECLARED = "The request's inputs, state or outputs are not those of this callback: load the page again."


def add_checks(app: Dash) -> None:
    """Answer 400 to a callback request that does not match the form and types of any of the app's callbacks."""

    def check() -> None:
        if request.path == PATH and request.method == "POST":
            try:
                body = request.get_json(silent=True)
            except RecursionError:
                body = None
            if not isinstance(body, dict):
                raise BadRequest("The body of a callback request must be one JSON object.")
            # Dash fills this map at the first page. Until then no request is refused as unknown.
            known = getattr(app, "callback_map", {})
            callback = known.get(body["output"]) if isinstance(body.get("output"), str) else None
            if callback is None and known:
                raise BadRequest("This server has no callback with these outputs: load the page again.")
            if callback is not None:
                _check(body, callback)

    app.server.before_request(check)


def fits(value: Any, hint: Any) -> bool:
    """Return whether a JSON value has the type ``hint``. Text that cannot be encoded (lone surrogates) never fits."""
    kind, arguments = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return _encodable(value)
    if kind in (Union, types.UnionType):
        return any(fits(value, option) for option in arguments)
    if kind is Literal:
        return isinstance(value, str | int) and value in arguments
    if hint in (None, type(None)):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    if hint is str:
        return isinstance(value, str) and _encodable(value)
    kind = kind or hint
    if isinstance(kind, type) and issubclass(kind, Mapping):
        key, item = arguments or (Any, Any)
        return isinstance(value, dict) and all(fits(k, key) and fits(v, item) for k, v in value.items())
    if isinstance(kind, type) and issubclass(kind, Sequence):
        [item, *_] = arguments or (Any,)
        return isinstance(value, list) and all(fits(element, item) for element in value)
    return isinstance(value, hint) if isinstance(hint, type) else True


def _check(body: dict[str, Any], callback: Mapping[str, Any]) -> None:
    named_values = [*_parts(body, "inputs", callback["inputs"]), *_parts(body, "state", callback["state"])]
    changed = body.get("changedPropIds", [])
    if not fits(changed, list[str]) or not fits(body.get("outputs", []), dict[str, Any] | list[Any]):
        raise BadRequest(_UNDECLARED)
    function = inspect.unwrap(callback["callback"])
    for (name, value), hint in zip(named_values, _hints(function), strict=False):
        if not fits(value, hint):
            raise BadRequest(f"The value of {name} has the wrong type.")


def _parts(body: dict[str, Any], kind: str, declared: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Return names and values of a request's "inputs" or "state", as ``kind`` says.

    Raises:
        BadRequest: the names differ from those that the callback declares in ``declared``.
    """
    parts = body.get(kind, [])
    if not isinstance(parts, list) or len(parts) != len(declared):
        raise BadRequest(_UNDECLARED)
    named_values = []
    for part, declaration in zip(parts, declared, strict=True):
        if not isinstance(part, dict) or (part.get("id"), part.get("property")) != (
            declaration["id"],
            declaration["property"],
        ):
            raise BadRequest(_UNDECLARED)
        named_values.append((f"{declaration['id']}.{declaration['property']}", part.get("value")))
    return named_values


@cache
def _hints(function: Any) -> tuple[Any, ...]:
    """Return the types of a callback's positional parameters. The type of ``*args`` stands for 64 parameters."""
    hints = get_type_hints(function)
    expanded: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, Any)
        expanded += [hint] * (64 if parameter.kind is parameter.VAR_POSITIONAL else 1)
    return tuple(expanded)


def _encodable(value: Any) -> bool:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    elif isinstance(value, dict):
        return all(_encodable(key) and _encodable(item) for key, item in value.items())
    elif isinstance(value, list):
        return all(map(_encodable, value))
    return True
