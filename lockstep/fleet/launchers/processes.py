"""Launch the shards as processes of this host, one for each GPU. Busy neighbours change ratios by less than .1 %."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

from lockstep.fleet.launchers.launcher import Job, News
from lockstep.processes.end_with_parent import kill_group, start, tied

#: Seconds that an interrupted shard may take to save what it has measured.
_SAVING_S = 60.0


class Processes:
    """A launcher that starts a process for each job. ``lockstep run --shard`` chooses its GPU by the UUID."""

    def __init__(self) -> None:
        self._running: dict[Job, subprocess.Popen[bytes]] = {}
        self._news: queue.Queue[News] = queue.Queue()

    def start(self, jobs: Sequence[Job]) -> None:
        """Start all jobs. They end with this process."""
        for job in jobs:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            command = tied([sys.executable, "-u", "-m", "lockstep", *job.words])
            process = start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self._running[job] = process
            threading.Thread(target=self._read, args=(job, process), daemon=True).start()

    def watch(self) -> Iterator[News]:
        """Yield what the jobs print, until all have ended. The whole output is in the jobs' logs."""
        while self._running:
            news = self._news.get()
            if news.status is not None:
                del self._running[news.job]
            yield news

    def stop(self) -> None:
        """Interrupt the jobs, and wait until they have saved what they measured."""
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        for process in self._running.values():
            try:
                process.wait(_SAVING_S)
            except subprocess.TimeoutExpired:
                kill_group(process)

    def _read(self, job: Job, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with job.log.open("wb") as log, process.stdout:
            for line in process.stdout:
                log.write(line)
                log.flush()
                self._news.put(News(job, line.decode(errors="replace").rstrip()))
        self._news.put(News(job, status=process.wait()))
