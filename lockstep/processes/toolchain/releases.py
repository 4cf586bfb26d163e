"""List the releases of a package between two versions."""

from __future__ import annotations

import re
import subprocess
import sys

from lockstep.processes.end_with_parent import run
from lockstep.processes.toolchain.install_packages import ToolchainError
from lockstep.processes.toolchain.parse_toolchain import UnknownToolchain

_RANGE = re.compile(r"(?P<package>[A-Za-z0-9][\w.-]*)==(?P<low>\d[\w.!+-]*?)\.\.(?P<high>\d[\w.!+-]*)")


def ends(text: str) -> tuple[str, str, str]:
    """Return package, lowest and highest version of a range; ``UnknownToolchain`` if the text is not one."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise UnknownToolchain(f"{text!r} is not a range of releases: write triton==3.5.1..3.7.0")
    return found["package"], found["low"], found["high"]


def releases(text: str) -> list[str]:
    """Return each release of a range, the oldest first: ``triton==3.5.1..3.7.0`` is triton==3.5.1, triton==3.6.0 ….

    pip names the releases that this Python can install; its own settings apply. Raise ``UnknownToolchain`` if the text
    is not a range. Raise ``ToolchainError`` if pip does not know the package, or an end.
    """
    package, low, high = ends(text)
    command = [sys.executable, "-m", "pip", "index", "versions", package, "--disable-pip-version-check", "--no-input"]
    try:
        done = run(command, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"pip cannot list the releases of {package}: {error}") from error
    listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if listed is None:
        raise ToolchainError(f"pip knows no releases of {package}: {done.stderr.strip().rpartition(chr(10))[2]}")
    known = listed[1].split(", ")[::-1]
    if missing := [end for end in (low, high) if end not in known]:
        raise ToolchainError(f"{package} has no release {' and '.join(missing)}; it has {', '.join(known[-8:])}")
    chosen = known[known.index(low) : known.index(high) + 1]
    if len(chosen) < 2:
        raise UnknownToolchain(f"{text}: {low} must be older than {high}")
    return [f"{package}=={version}" for version in chosen]
