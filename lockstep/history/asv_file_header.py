"""Read the run of an asv result file: the commit, date, machine and environment that all of its points share.

asv's own loader (``asv.results.Results.load`` of asv 0.6.6) requires a few keys and hardly checks their values. This
module accepts every file that asv's loader accepts. If a value has a form that asv itself never writes, the value is
read if possible, and a note names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.history.model import Run
from lockstep.history.validation import LATEST_TIME, Problem, Unreadable, finite, short_name

#: A hash, or the text given to ``asv run --set-commit-hash``. A slash is not allowed, because the text becomes part of
#: page addresses.
_COMMIT = re.compile(r"[0-9A-Za-z][0-9A-Za-z._+-]{0,99}")

FULL_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")

_NOT_NAMED = "the file is not named after its commit, as asv names its files"
_OTHER_FOLDER = "the file lies in a folder that is not named after its machine; the folder's name is shown"
_OTHER_MACHINE = "the file names another machine than the machine.json beside it, so asv itself skips the file"
OLD_FORMAT = "the file is in version 1 of asv's format; it was converted in memory, and `asv update` converts the file"
_SHORT_HASH = "the file has no full hash as commit_hash, so git is not asked about the commit"
_NO_DATE = "the file has no date in milliseconds, so the time of its newest measurement is used"


def updated(data: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a result file of version 1 in version 2 of asv's format.

    Raise ``Unreadable`` if asv cannot convert it.
    """
    from asv.results import Results  # imported here, because it is rarely needed and takes half a second to import

    try:
        content: dict[str, Any] = Results.update_to_2(data)
    except Exception as error:  # asv validates nothing before use
        reason = "the file is in version 1 of asv's format, which asv cannot convert"
        raise Unreadable(f"{reason} ({type(error).__name__}: {error}): run `asv update`", reason) from error
    return content


def read_head(data: Mapping[str, Any], path: Path, folders_machine: str = "") -> tuple[Run, list[Problem]]:
    """Return the run of a file, and a note for each difference from the form that asv writes.

    The run's machine is "", and its date is 0 if the file states none.

    Args:
        folders_machine: the machine that ``machine.json`` in the same folder names; "" if unknown.

    Raises:
        Unreadable: the content does not name the commit or the machine. As in asv, the path does not count.
    """
    commit, parameters = data.get("commit_hash"), data.get("params")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise Unreadable("the file has no commit_hash, or one that is not the hash of a commit")
    if not isinstance(parameters, dict) or not isinstance(parameters.get("machine"), str):
        raise Unreadable("the file does not name its machine (params.machine)")
    machine = short_name(parameters["machine"])
    notes = []
    if not path.name.startswith(f"{commit[:8]}-"):
        notes.append(_NOT_NAMED)
    if folders_machine and folders_machine != parameters["machine"]:
        notes.append(_OTHER_MACHINE)
    elif parameters["machine"] != path.parent.name:
        notes.append(_OTHER_FOLDER)
    if not FULL_HASH.fullmatch(commit):
        notes.append(_SHORT_HASH)
    strings = {key: value for key, value in texts(parameters).items() if key not in ("machine", "python")}
    requirements = texts(data.get("requirements"))
    python = texts({"python": data.get("python")}).get("python", "")
    environment = data.get("env_name")
    environment = short_name(environment) if isinstance(environment, str) else ""
    date = finite(data.get("date"))
    if date is None or not 0 <= date < LATEST_TIME:
        date = 0
        notes.append(_NO_DATE)
    run = Run("", commit, int(date), environment, "", python, requirements, strings, named=machine)
    return run, [Problem(path.name, note, weight="note") for note in notes]


def texts(values: Any) -> dict[str, str]:
    """Return the printable texts and whole numbers of an object, as texts sorted by key.

    Other values are left out, because they cannot be compared as facts.
    """
    if not isinstance(values, dict):
        return {}
    plain = {key: _text(value) for key, value in list(values.items())[:200] if isinstance(value, str | int)}
    return {
        key: value for key, value in sorted(plain.items()) if f"{key}{value}".isprintable() and len(key + value) < 600
    }


def _text(value: str | int) -> str:
    # Python refuses to write integers of more than 4300 digits.
    return value if isinstance(value, str) else str(value) if -(2**63) < value < 2**63 else ""
