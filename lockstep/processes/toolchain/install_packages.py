"""Install packages once into a folder of the user's cache.

pip writes into a folder with a temporary name, which is renamed at the end, so a folder with the final name is
complete. If two processes need the same folder, one installs the packages and the other waits.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lockstep.processes.cache_folder import cache_folder
from lockstep.processes.end_with_parent import run
from lockstep.processes.exit_status import Unusable
from lockstep.processes.only_one import only_one
from lockstep.processes.started_process import HOME

#: Seconds after which an unused folder is deleted; Triton takes 0.6 to 1 GB.
RETENTION_S = 60 * 24 * 3600


class ToolchainError(Unusable):
    """A toolchain cannot be installed or used; the message says why and what to do."""


def overlay(packages: Sequence[str], say: Callable[[str], None]) -> Path:
    """Return a folder with these packages but without their dependencies; install the packages at first use.

    Packages are "name==version" or paths of wheels. pip's own settings apply (``PIP_INDEX_URL``, ``PIP_NO_INDEX``,
    ``PIP_FIND_LINKS``, pip.conf …). ``say`` is called before an installation. Raise ``ToolchainError`` if this Python
    has no pip, or pip cannot install a package.
    """
    home = cache_folder() / "toolchains"
    folder = home / _key(packages)
    if not folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock")
        with contextlib.ExitStack() as stack:
            if not stack.enter_context(only_one(lock, wait=False)):
                say(f"another process installs {', '.join(packages)}")
                stack.enter_context(only_one(lock, wait=True))
            if not folder.is_dir():
                say(f"installing {', '.join(packages)} into {folder}")
                _install(packages, folder)
    # The modification time records the last use. A read-only cache can still be used.
    with contextlib.suppress(OSError):
        os.utime(folder)
        _delete_unused(home)
    return folder


def _key(packages: Sequence[str]) -> str:
    parts = [platform.python_implementation(), platform.python_version(), sysconfig.get_platform()]
    for package in sorted(packages):
        content = hashlib.sha256(Path(package).read_bytes()).hexdigest() if package.endswith(".whl") else ""
        parts.append(f"{Path(package).name if content else package} {content}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _install(packages: Sequence[str], folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ToolchainError(f"{sys.executable} has no pip: run {sys.executable} -m ensurepip")
    partial = folder.with_suffix(".partial")
    if partial.exists():
        shutil.rmtree(partial)  # an installation was interrupted
    options = ["--target", str(partial), "--no-deps", "--only-binary", ":all:", "--no-input"]
    options += ["--disable-pip-version-check", "--quiet"]
    path = os.pathsep.join(part for part in (str(HOME), os.environ.get("PYTHONPATH", "")) if part)
    done = run(
        [sys.executable, "-m", "lockstep.processes.toolchain.pip_process", "install", *options, *packages],
        text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
    )
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR: ")] or lines[-1:]
        raise ToolchainError(f"pip does not install {', '.join(packages)}: {'; '.join(errors) or done.returncode}")
    partial.rename(folder)


def _delete_unused(home: Path) -> None:
    for folder in home.iterdir():
        if folder.is_dir() and time.time() - folder.stat().st_mtime > RETENTION_S:
            shutil.rmtree(folder)
