"""Print JSON that every program can read."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json


def json_text(content: Any, indent: int | None = None) -> str:
    """Return content as JSON: dataclasses, dicts, lists, texts, numbers. NaN and infinity, which JSON lacks, are null.

    ``json.dumps`` would write ``NaN`` and ``Infinity``, which jq and JavaScript refuse.
    """
    return to_json(content, indent=indent, inf_nan_mode="null").decode()


def print_json(content: Any, indent: int | None = None) -> None:
    """Print content as JSON to standard output, and flush: a program may wait for the line."""
    print(json_text(content, indent), flush=True)
