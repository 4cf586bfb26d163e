"""Run git commands in a repository and return their output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lockstep.processes.end_with_parent import run
from lockstep.processes.trouble import reason_of


class GitError(RuntimeError):
    """Git cannot be run, refuses the command, or takes too long. ``stderr`` is git's output, or ""."""

    def __init__(self, message: str, stderr: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr


@dataclass(frozen=True)
class Git:
    """Runs git commands in one folder.

    Attributes:
        timeout_s: seconds for one command; ``None`` waits without limit.
        fetch: whether a partial clone may fetch missing objects over the network.
    """

    folder: Path
    timeout_s: float | None = None
    fetch: bool = True

    def output(self, *command: str, given: Iterable[str] = ()) -> bytes:
        """Return what a git command prints, with the lines ``given`` as its standard input.

        Raise ``GitError`` if git cannot be run, ends with a status other than 0, or takes too long.
        """
        environment = None if self.fetch else {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
        text = "".join(f"{line}\n" for line in given).encode()
        arguments = ["git", "-C", str(self.folder), *command]
        try:
            done = run(arguments, given=text or None, timeout=self.timeout_s, env=environment)
        except OSError as error:
            raise GitError(f"git cannot be run: {reason_of(error)}") from error
        except subprocess.TimeoutExpired as error:
            raise GitError(f"git {command[0]} took longer than {self.timeout_s:g} s") from error
        if done.returncode:
            stderr = done.stderr.decode("utf-8", "replace").strip()
            raise GitError(f"git {command[0]} failed: {stderr or f'exit status {done.returncode}'}", stderr)
        printed: bytes = done.stdout
        return printed

    def lines(self, *command: str, given: Iterable[str] = ()) -> list[str]:
        """Return the lines that a git command prints. The arguments and errors are the same as for ``output``."""
        text = self.output(*command, given=given).decode("utf-8", "replace").removesuffix("\n")
        # Not splitlines(): the subject of a commit may hold a form feed or U+2028.
        return text.split("\n") if text else []

    def try_lines(self, *command: str, given: Iterable[str] = ()) -> list[str] | None:
        """Return the lines that a git command prints, or ``None`` if ``output`` would raise GitError."""
        try:
            return self.lines(*command, given=given)
        except GitError:
            return None

    def try_line(self, *command: str) -> str:
        """Return the first line that a git command prints; "" if the command prints nothing or fails."""
        return next(iter(self.try_lines(*command) or ()), "")
