"""Show the progress of all shards: a bar for each on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lockstep.fleet.launchers.launcher import News
from lockstep.fleet.shard import Shard

#: A line with the progress of ``lockstep run`` (``lockstep.asv.progress_display``).
_CASE = re.compile(
    r"(?P<commit>[0-9a-f]{8})(?: \((?P<nth>\d+) of (?P<commits>\d+)\))? \[ *(?P<done>\d+)/(?P<total>\d+)\]"
)


class FleetProgress(Progress):
    """Shows one line for each shard on a terminal; elsewhere prints the lines of progress with the shard's number."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console, disable=not console.is_terminal)
        self._bars: dict[Shard, TaskID] = {}

    def show(self, news: News) -> None:
        """Show a line or the end of a job."""
        shard = news.job.shard
        if shard not in self._bars:
            self._bars[shard] = self.add_task(f"shard {shard.place}", total=None)
        case = _CASE.search(news.line)
        if case:
            done, total = int(case["done"]), int(case["total"])
            before = (int(case["nth"] or 1) - 1) * total
            self.update(
                self._bars[shard],
                description=f"shard {shard.place} {case['commit']}",
                completed=before + done,
                total=int(case["commits"] or 1) * total,
            )
        important = news.line.lstrip().startswith(("failed:", "Interrupted", "Marked"))
        if news.status is not None:
            self._print(shard, f"ended with status {news.status}" if news.status else "done")
        elif important or (case and not self.console.is_terminal):
            self._print(shard, news.line.strip())

    def _print(self, shard: Shard, text: str) -> None:
        self.console.print(f"shard {shard.place}: {text}", markup=False, highlight=False, soft_wrap=True)
