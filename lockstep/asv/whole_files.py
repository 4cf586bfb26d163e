"""Write asv's JSON files as a whole. asv writes them in place, so a run that is killed leaves a part of the content."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asv import util

from lockstep.record.file import replace_file


def write_json(path: str, data: Any, api_version: int | None = None, compact: bool = False) -> None:
    """Replace a file by JSON in asv's layout. A crash leaves the old file or the new file."""
    replace_file(Path(path), json_text(data, api_version, compact))


def json_text(data: Any, api_version: int | None = None, compact: bool = False) -> str:
    """Return the text of a file that asv writes."""
    content = data if api_version is None else {**data, "version": api_version}
    return json.dumps(content) if compact else json.dumps(content, indent=4, sort_keys=True)


@contextlib.contextmanager
def whole_files(written: bool = True) -> Iterator[None]:
    """Let asv write its files by ``write_json`` within the block, or not at all unless they are to be ``written``."""
    former = util.write_json
    util.write_json = write_json if written else lambda *_, **__: None
    try:
        yield
    finally:
        util.write_json = former
