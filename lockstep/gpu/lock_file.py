"""Record who locked a GPU's clocks: one small file per GPU, because the lock outlives the process that set it.

The file is in the user's state folder, ``$XDG_STATE_HOME/lockstep`` or ``~/.local/state/lockstep``. The file is written
before the lock is set and removed after the lock is reset. So a lock is known and can be undone even if its owner died.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_path

from lockstep.gpu.nvml import Target


class ClocksHeld(RuntimeError):
    """Another process holds a lock on the GPU. The message names the process and says what to do."""


@dataclass(frozen=True)
class LockRecord:
    """The file that says who locked the clocks of a GPU, to what, and when.

    Attributes:
        uuid: NVML's identifier of the GPU.
        target: the requested clock, MHz or "base".
        persistence: whether persistence mode was on before the lock; ``None`` if unknown.
        kept: whether the lock is meant to outlive its process (``lockstep clocks lock``).
        pid_start: start time of that process in clock ticks since boot, because another process may reuse the pid.
        boot: boot id of the machine; a lock does not survive a boot.
        time: seconds since 1970-01-01 UTC.
    """

    uuid: str
    target: Target
    persistence: bool | None
    kept: bool
    pid: int
    pid_start: int | None
    boot: str
    time: float

    @classmethod
    def of_this_process(cls, uuid: str, target: Target, persistence: bool | None) -> LockRecord:
        """Return a lock record that names this process as the owner. The record is not yet written to its file."""
        pid = os.getpid()
        return cls(uuid, target, persistence, False, pid, _start_of(pid), _boot(), time.time())

    @property
    def owner_alive(self) -> bool:
        """Return whether the process that set the lock still runs."""
        start = _start_of(self.pid)
        return start is not None and start == self.pid_start

    @property
    def left_behind(self) -> bool:
        """Return whether the process that set the lock died without resetting the clocks."""
        return not self.kept and not self.owner_alive

    def describe(self) -> str:
        """Return a phrase that completes "GPU … is": locked to which clock, when, and by which process."""
        clock = "the base clock" if self.target == "base" else f"{self.target} MHz"
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.time))
        if self.kept:
            return f"locked to {clock} on purpose at {when} until `lockstep clocks reset`"
        if self.owner_alive:
            return f"locked to {clock} at {when} by process {self.pid}, which is running"
        return f"locked to {clock} at {when} and left behind by process {self.pid}, which is gone"

    def write(self) -> None:
        """Create the file of the lock record atomically; ``ClocksHeld`` if another process has just written one."""
        path = record_path(self.uuid)
        written = self._write_temporary(path)
        try:
            # link, unlike rename, fails if the file exists: of two processes that lock at once, one wins.
            os.link(written, path)
        except FileExistsError:
            raise ClocksHeld(
                f"another process has just locked GPU {self.uuid} ({path}): try again once it has ended"
            ) from None
        finally:
            written.unlink()

    def keep(self) -> None:
        """Mark the lock in its file as meant to outlive this process."""
        path = record_path(self.uuid)
        dataclasses.replace(self, kept=True)._write_temporary(path).replace(path)

    def _write_temporary(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".lock-", delete=False) as file:
            json.dump(dataclasses.asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
            # Readable by all: root may lock for other users who measure and share the folder.
            os.fchmod(file.fileno(), 0o644)
        return Path(file.name)


def record_path(uuid: str) -> Path:
    """Return the path of the file that records a GPU's clock lock, whether or not the file exists."""
    return user_state_path("lockstep", appauthor=False) / f"clocks-{uuid}.json"


def read_record(uuid: str) -> LockRecord | None:
    """Return this GPU's lock recorded since the last boot, or ``None``; ``ValueError`` if the file is not a record."""
    path = record_path(uuid)
    try:
        record = LockRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a lock record ({error}); `lockstep clocks reset` clears it") from error
    if record.boot != _boot():
        path.unlink(missing_ok=True)
        return None
    return record


def remove_record(uuid: str) -> None:
    """Remove the file that records a GPU's clock lock, if it exists."""
    record_path(uuid).unlink(missing_ok=True)


def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _start_of(pid: int) -> int | None:
    """Return the start time of a process (field 22 of proc(5)'s stat); ``None`` if it ended or is a zombie."""
    try:
        # The command, field 2, is in parentheses and may contain any character.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
