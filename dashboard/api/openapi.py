"""Describe the routes of the API as an OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from dashboard.api import schema

_REFERENCE = "#/components/schemas/{model}"


@dataclass(frozen=True)
class Operation:
    """A route that only reads.

    Attributes:
        path: as Flask writes it, below ``/api/v1``.
        content_of: returns the answer. Its docstring becomes the summary.
        answer: the model of the answer, or of its items.
        query: the model of the query; ``None`` for that of a list, or for an answer that takes no query.
        many: whether the answer is a list.
    """

    path: str
    content_of: Callable[..., Any]
    answer: type[BaseModel]
    query: type[BaseModel] | None = None
    many: bool = False


def document(operations: Sequence[Operation], root: str) -> dict[str, Any]:
    """Return the OpenAPI document of these routes. ``root`` is the path below which browsers reach the server."""
    models: dict[type[BaseModel], None] = dict.fromkeys((*(operation.answer for operation in operations), schema.Error))
    serialized: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "serialization") for model in models]
    _, definitions = models_json_schema(serialized, ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lockstep",
            "version": "1",
            "description": "Times are in seconds, intervals 95 % (asv's own: 99 %). Unknown values are null.",
        },
        "servers": [{"url": f"{root}/api/v1"}],
        "paths": {
            re.sub(r"<(?:int:)?(\w+)>", r"{\1}", operation.path): {"get": _get(operation)} for operation in operations
        },
        "components": {"schemas": definitions["$defs"]},
    }


def _get(operation: Operation) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if kind else "string"}}
        for kind, name in re.findall(r"<(int:)?(\w+)>", operation.path)
    ]
    summary = str(operation.content_of.__doc__).removeprefix("Return ").removesuffix(".")
    query = operation.query or (schema.Query if operation.many else None)
    properties = query.model_json_schema()["properties"] if query else {}
    parameters += [{"name": name, "in": "query", "schema": content} for name, content in properties.items()]
    content = {"$ref": _REFERENCE.format(model=operation.answer.__name__)}
    answers = {"200": {"type": "array", "items": content} if operation.many else content}
    answers["default"] = {"$ref": _REFERENCE.format(model="Error")}
    return {
        "summary": f"{summary[:1].upper()}{summary[1:]}",
        "parameters": parameters,
        "responses": {
            status: {
                "description": "the answer" if status == "200" else "an error",
                "content": {"application/json": {"schema": shape}},
            }
            for status, shape in answers.items()
        },
    }
