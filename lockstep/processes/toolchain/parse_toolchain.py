"""Parse the user's text for a toolchain: packages, an environment, or "installed"."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lockstep.processes.end_with_parent import run
from lockstep.processes.exit_status import UsageError
from lockstep.processes.toolchain.install_packages import ToolchainError, overlay
from lockstep.processes.toolchain.model import INSTALLED, Toolchain
from lockstep.processes.trouble import reason_of

_PINNED = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+")

#: Prints Python's version, the folders from which it imports packages, and the folder that holds Triton.
_ASK = """
import importlib.util, json, sys, sysconfig
own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
own |= {place + "/lib-dynload" for place in own}
triton = importlib.util.find_spec("triton")
places = [place + "/.." for place in triton.submodule_search_locations or ()] if triton else []
print(json.dumps([list(sys.version_info[:2]), [p for p in sys.path if p not in own and p[-4:] != ".zip"], places]))
"""


class UnknownToolchain(UsageError):
    """The user's text does not describe a toolchain; the message says what to write."""


def toolchain_of(text: str, *, say: Callable[[str], None] = lambda line: None) -> Toolchain:
    """Return the toolchain that a text describes, and install it if necessary.

    Args:
        text: "triton==3.6.0", several of these or paths of wheels joined by commas, the folder of a Python environment,
            or "installed".
        say: called with a line before a long step.

    Raises:
        UnknownToolchain: the text contains no exact version, no wheel and no environment of this Python version.
        ToolchainError: pip cannot install the packages.
    """
    if text == INSTALLED.name:
        return INSTALLED
    if (python := _python(Path(text))) is not None:
        return Toolchain(text, _folders(python))
    packages = [_package(part.strip()) for part in text.split(",")]
    return Toolchain(text, (overlay(packages, say),))


def _package(part: str) -> str:
    if part.endswith(".whl") and Path(part).is_file():
        return str(Path(part).resolve())
    if _PINNED.fullmatch(part):
        return part
    raise UnknownToolchain(
        f"{part!r} is not a toolchain: write one exact version (triton==3.6.0), the path of a wheel, several of these "
        f'joined by commas, the folder of a Python environment, or "{INSTALLED.name}"'
    )


def _python(path: Path) -> Path | None:
    """Return the interpreter of an environment; ``None`` if the path is not an environment."""
    return next(
        (file for file in (path / "bin" / "python", path) if file.is_file() and file.stem.startswith("python")), None
    )


def _folders(python: Path) -> tuple[Path, ...]:
    # The absolute path keeps its links: the resolved path would be the Python from which the environment was made.
    command = [str(python.absolute()), "-I", "-c", _ASK]
    try:
        version, path, triton = json.loads(run(command, text=True, timeout=60).stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise UnknownToolchain(f"{python} does not run as Python: {reason_of(error)}") from error
    if tuple(version) != sys.version_info[:2]:
        their_version, own_version = (".".join(map(str, numbers)) for numbers in (version, sys.version_info[:2]))
        raise UnknownToolchain(
            f"{python} is Python {their_version}, and this is Python {own_version}: packages are shared, so "
            f"make the environment with Python {own_version}"
        )
    # An editable Triton may be found by a hook of its environment alone; so its folder is named.
    return tuple(dict.fromkeys(Path(place).resolve() for place in [*path, *triton]))


__all__ = ["ToolchainError", "UnknownToolchain", "toolchain_of"]
