"""Read a result file of any known format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.importing.formats import DIRECTED, FORMATS, Shape, github_action_benchmark
from lockstep.importing.model import ForeignRun
from lockstep.processes.trouble import reason_of


class UnreadableFile(Exception):
    """A file cannot be read, or has no known format."""


def read_file(path: Path, format_name: str = "") -> tuple[str, list[ForeignRun]]:
    """Return the name of a file's format, and the runs that the file holds.

    ``format_name`` is a key of ``FORMATS``; "" recognises the format by its content. Raise ``UnreadableFile`` if the
    file cannot be read, is not of this format, or is of a format that only its name tells from another.
    """
    try:
        text = path.read_text(encoding="utf-8").removeprefix(github_action_benchmark.PREFIX).strip().removesuffix(";")
        content = _parsed(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} cannot be read: {reason_of(error)}") from error
    name = format_name or next((name for name, known in FORMATS.items() if _has(content, known.SHAPE)), "")
    if not name or not _has(content, FORMATS[name].SHAPE):
        raise UnreadableFile(f"{path} is not a file of {name or ' or '.join(FORMATS)}")
    if not format_name and name in DIRECTED:
        raise UnreadableFile(f"{path} states no better direction: name it with --format {' or '.join(DIRECTED)}")
    try:
        return name, FORMATS[name].read(content, path.parent)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UnreadableFile(f"{path} is not a whole file of {name}: {what}") from error


def _has(content: Any, shape: Shape) -> bool:
    """Return whether content has the shape of a format's files. A list has at least one entry."""
    if isinstance(shape, Sequence):
        return isinstance(content, list) and bool(content) and all(_has(entry, shape[0]) for entry in content)
    if not isinstance(content, dict) or not content.keys() >= set(shape):
        return False
    parts = shape.items() if isinstance(shape, Mapping) else ()
    return all(_has(content[key], part) for key, part in parts)


def _parsed(text: str) -> Any:
    """Return a JSON file's content; that of several lines of JSON, which PyTorch's HUD also takes, as one list."""
    try:
        return json.loads(text)
    except ValueError:
        if len(rows := [json.loads(line) for line in text.splitlines() if line.strip()]) < 2:
            raise
        return [entry for row in rows for entry in (row if isinstance(row, list) else [row])]
