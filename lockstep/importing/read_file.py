"""Read a result file of any known format."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.importing.formats import FORMATS, github_action_benchmark, pytorch_hud
from lockstep.importing.model import ForeignRun


class UnreadableFile(Exception):
    """A file cannot be read, or has no known format."""


def read_file(path: Path, format_name: str = "") -> tuple[str, list[ForeignRun]]:
    """Return the name of a file's format, and the runs that the file holds.

    ``format_name`` is a key of ``FORMATS``; "" recognises the format by its content. Raise ``UnreadableFile`` if the
    file cannot be read, or is not of this format.
    """
    try:
        text = path.read_text(encoding="utf-8").removeprefix(github_action_benchmark.PREFIX).strip().removesuffix(";")
        content = _parsed(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}") from error
    name = format_name or next((name for name, module in FORMATS.items() if _is_of(module, content)), "")
    if not name or not _is_of(FORMATS[name], content):
        raise UnreadableFile(f"{path} is not a file of {name or ' or '.join(FORMATS)}")
    try:
        return name, FORMATS[name].read(content, path.parent)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UnreadableFile(f"{path} is not a whole file of {name}: {what}") from error


def _is_of(module: ModuleType, content: Any) -> bool:
    """Return whether content is an object with the keys of a format. A file of PyTorch's HUD is a list of objects."""
    if isinstance(content, list) != (module is pytorch_hud):
        return False
    entries = content if isinstance(content, list) else [content]
    return bool(entries) and all(isinstance(entry, dict) and entry.keys() >= module.KEYS for entry in entries)


def _parsed(text: str) -> Any:
    """Return a JSON file's content; that of several lines of JSON, which PyTorch's HUD also takes, as one list."""
    try:
        return json.loads(text)
    except ValueError:
        if len(rows := [json.loads(line) for line in text.splitlines() if line.strip()]) < 2:
            raise
        return [entry for row in rows for entry in (row if isinstance(row, list) else [row])]
