"""Launch the shards as an array of Slurm jobs. sbatch takes partition, GPUs and limits from its own variables
(SBATCH_PARTITION, SBATCH_GPUS=1, SBATCH_TIMELIMIT). The folder of the project must be on a disk that the nodes share.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lockstep.fleet.launchers.launcher import Job, News
from lockstep.processes.end_with_parent import run
from lockstep.processes.exit_status import BROKEN

#: One task of the array: its line of the file of commands. A restarted task goes on, because jobs resume.
_SCRIPT = """#!/bin/bash
eval "$(sed -n "${SLURM_ARRAY_TASK_ID}p" {commands})"
"""

#: Seconds between two looks at the tasks, and seconds that an interrupted task may take to save what it has measured.
_LOOK_S, _SAVING_S = 1.0, 60.0


class Slurm:
    """A launcher that submits one array. The tasks go on if this process or the scheduler ends."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._array = ""

    def start(self, jobs: Sequence[Job]) -> None:
        """Submit the array.

        Raises:
            OSError: sbatch is missing or refuses the array.
        """
        self._jobs = list(jobs)
        folder = jobs[0].log.parent.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        commands, script = folder / "slurm-commands.sh", folder / "slurm.sh"
        commands.write_text("".join(map(_line, jobs)), encoding="utf-8")
        script.write_text(_SCRIPT.replace("{commands}", shlex.quote(str(commands))), encoding="utf-8")
        for job in jobs:
            _status_file(job).unlink(missing_ok=True)
            job.log.unlink(missing_ok=True)
        options = ["--parsable", "--job-name=lockstep", "--output=/dev/null", f"--array=1-{len(jobs)}"]
        done = run(["sbatch", *options, str(script)], text=True)
        if done.returncode:
            raise OSError(f"sbatch refuses the array: {done.stderr.strip()}")
        self._array = done.stdout.strip().partition(";")[0]

    def watch(self) -> Iterator[News]:
        """Yield what the tasks print, until all have ended."""
        yield News(self._jobs[0], f"Slurm array {self._array}")
        read = dict.fromkeys(self._jobs, 0)
        while read:
            listed = self._listed()
            for job in list(read):
                status = _status(job)
                if status is None and listed is not None and self._jobs.index(job) + 1 not in listed:
                    # It may have ended between the two looks.
                    status = BROKEN if (late := _status(job)) is None else late
                lines, read[job] = _lines(job.log, read[job])
                yield from (News(job, line) for line in lines)
                if status is not None:
                    del read[job]
                    yield News(job, status=status)
            if read:
                time.sleep(_LOOK_S)

    def stop(self) -> None:
        """Interrupt the tasks, and wait until they have saved what they measured."""
        run(["scancel", "--signal=INT", "--full", self._array])
        until = time.monotonic() + _SAVING_S
        while time.monotonic() < until and self._listed():
            time.sleep(_LOOK_S)
        run(["scancel", self._array])

    def _listed(self) -> set[int] | None:
        """Return the numbers of the tasks that wait or run; ``None`` while the scheduler does not answer."""
        command = ["squeue", "--noheader", "--array", "--format=%K", f"--jobs={self._array}"]
        done = run(command, text=True)
        if done.returncode:
            return set() if "Invalid job id" in done.stderr else None
        return {int(word) for word in done.stdout.split()}


def _line(job: Job) -> str:
    """Return the shell command of a task: it writes the log and, at its end, the status."""
    log, status = shlex.quote(str(job.log.absolute())), shlex.quote(str(_status_file(job).absolute()))
    command = shlex.join([sys.executable, "-u", "-m", "lockstep", *job.words])
    return f"{command} >> {log} 2>&1; echo $? > {status}.part; mv {status}.part {status}\n"


def _status_file(job: Job) -> Path:
    return job.log.with_suffix(".status")


def _status(job: Job) -> int | None:
    path = _status_file(job)
    return int(path.read_text(encoding="utf-8")) if path.exists() else None


def _lines(log: Path, start: int) -> tuple[list[str], int]:
    """Return the whole lines of a file from a position on, and the position after them."""
    if not log.exists():
        return [], start
    with log.open("rb") as file:
        file.seek(start)
        whole = file.read().rpartition(b"\n")[0]
    lines = whole.decode(errors="replace").splitlines() if whole else []
    return lines, start + len(whole) + (1 if whole else 0)
