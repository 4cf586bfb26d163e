"""Read a dashboard as many people at once, over HTTP; prints a line a callback, errors, and the server's memory:

    python tests/bench/read_pages.py FOLDER [--readers 20] [--seconds 30]

It starts ``lockstep dashboard`` on the folder as anybody would, waits until the results are analysed, and then each
reader opens one page after the other (overview, families, series, commits, compare, machines, alerts, API, feed), and
looks at each for a while (``--pause`` seconds on average; 0 is a load that no people make). Times are of whole answers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

START = "from lockstep.commands.cli import main; main()"


@dataclass
class Seen:
    """What readers have seen: seconds by page, and errors."""

    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Reader:
    """One reader; asks callbacks as a browser does."""

    def __init__(self, base: str, seen: Seen, seed: int, pause: float = 0.0) -> None:
        self.base = base
        self.pause = pause
        self.seen = seen
        self.draw = random.Random(seed)
        self.callbacks = json.loads(self.get("/_dash-dependencies"))

    def get(self, path: str) -> bytes:
        """An answer."""
        with urllib.request.urlopen(self.base + path, timeout=60) as answer:
            body: bytes = answer.read()
        return body

    def post(self, path: str, data: bytes) -> bytes:
        """An answer to JSON."""
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            body: bytes = answer.read()
        return body

    def ask(self, output: str, values: dict[str, Any]) -> Any:
        """What the callback of ``output`` answers to these values (by ``id.property``; others are null)."""
        [entry] = [one for one in self.callbacks if output in one["output"] and not one.get("clientside_function")]
        outputs = [
            dict(zip(("id", "property"), name.split(".", 1), strict=True))
            for name in entry["output"].strip(".").split("...")
        ]

        def given(part: str) -> list[dict[str, Any]]:
            return [{**one, "value": values.get(f"{one['id']}.{one['property']}")} for one in entry[part]]

        body = {
            "output": entry["output"],
            "outputs": outputs if len(outputs) > 1 else outputs[0],
            "inputs": given("inputs"),
            "state": given("state"),
            "changedPropIds": [next(iter(values))],
        }
        return json.loads(self.post("/_dash-update-component", json.dumps(body).encode()) or b"null")

    def timed(self, page: str, output: str, values: dict[str, Any]) -> Any:
        """``ask``, with its time kept."""
        return self.clocked(page, lambda: self.ask(output, values))

    def clocked(self, page: str, do: Callable[[], Any]) -> Any:
        """Do something after a pause, with its time kept."""
        if self.pause:
            time.sleep(self.draw.expovariate(1 / self.pause))
        began = time.perf_counter()
        try:
            return do()
        except (urllib.error.URLError, OSError, ValueError) as error:
            with self.seen.lock:
                self.seen.errors.append(f"{page}: {error}")
            return None
        finally:
            with self.seen.lock:
                self.seen.times[page].append(time.perf_counter() - began)

    def read(self, until: float, machines: list[str]) -> None:
        """Go from page to page."""
        while time.monotonic() < until:
            machine = self.draw.choice(machines)
            self.timed("layout", "page.children", {"url.pathname": "/", "url.search": f"?machine={machine}"})
            chosen = {"machine": machine, "l2": "all", "since": "7d", "quantity": "time"}
            overview = {f"overview-{name}.value": value for name, value in chosen.items()}
            self.timed("overview", "overview-cards.children", overview)
            told = self.timed("overview rows", "overview-grid.rowData", overview)
            if not told:
                continue
            rows = told["response"]["overview-grid"]["rowData"]
            for row in self.draw.sample(rows, min(2, len(rows))):
                address = {"machine": machine, "suite": row["family"], "variant": row["variant"], "case": row["case"]}
                kept = {**address, "l2": row["l2"] or "", "quantity": "", "zoom": []}
                light = {"colours.data": "light", "series-axis.value": "order", "family-axis.value": "order"}
                shown = {"series-quantity.value": "latency", "series-address.data": kept, **light}
                self.timed("series", "series-facts.children", shown)
                family = {
                    "family-machine.value": machine,
                    "family-cases.value": [row["case"]],
                    "family-l2.value": row["l2"] or "",
                    "family-quantities.value": ["latency"],
                    "family-variants.value": [row["variant"]],
                    "family-suite.data": row["family"],
                    **light,
                }
                self.timed("family", "family-trend.children", family)
            hashes = [one["hash"] for one in json.loads(self.get(f"/api/v1/commits/{quote(machine)}"))]
            at = {"commit": self.draw.choice(hashes), "machine": machine}
            self.timed("commit", "commit-families.children", {"commit-address.data": at})
            self.timed("commit rows", "commit-series.children", {"commit-address.data": at})
            sides = {"compare-bm.value": machine, "compare-hm.value": machine, "compare-quantity.value": "latency"}
            sides |= {"compare-bc.value": self.draw.choice(hashes), "compare-hc.value": hashes[-1]}
            self.timed("compare", "compare-body.children", {**sides, "colours.data": "light"})
            self.page("machines")
            self.timed("machines body", "machines-body.children", {"colours.data": "light"})
            self.alerts()
            self.clocked("api alerts", lambda: self.get("/api/v1/alerts"))
            self.clocked("feed", lambda: self.get("/feed.atom"))

    def page(self, name: str) -> Any:
        """The layout of a page."""
        return self.timed(name, "page.children", {"url.pathname": f"/{name}", "url.search": ""})

    def alerts(self) -> None:
        """The alerts page, a search, another order, and a poll."""
        self.page("alerts")
        for chosen in ({}, {"search": f"v{self.draw.randrange(9)}"}, {"sort": "largest"}):
            values = {f"alerts-{name}.value": value for name, value in ({"state": "open"} | chosen).items()}
            self.timed("alerts list", "alerts-list.children", values)
        self.clocked("poll", lambda: self.get("/_live"))


@contextmanager
def dashboard(folder: Path, cache: Path, state: Path | None = None) -> Iterator[tuple[str, int]]:
    """Serve a folder; gives the address and the process that was started."""
    with tempfile.TemporaryDirectory() as empty:
        options = [
            "--results",
            folder,
            "--cache",
            cache,
            "--state",
            state or Path(empty) / "alerts.sqlite",
            "--port",
            0,
        ]
        command = [sys.executable, "-c", START, "dashboard", *map(str, options)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=empty)
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+?(?=/ )", server.stdout.readline())
            if found is None:
                raise SystemExit("the dashboard did not start")
            yield found[0], server.pid
        finally:
            server.terminate()
            server.wait(30)


def workers_of(pid: int) -> list[int]:
    """The processes that serve pages: the server's children; an analysis is a child of theirs."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def memory(pid: int) -> str:
    """Return the resident memory of a process in MB: now, of it anonymous and shared with others, and at most."""
    lines = [*Path(f"/proc/{pid}/status").read_text().splitlines()]
    lines += Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    told = dict(line.split(":", 1) for line in lines)
    now, most, own, clean, dirty = (
        int(told[name].split()[0]) >> 10 for name in ("VmRSS", "VmHWM", "Anonymous", "Shared_Clean", "Shared_Dirty")
    )
    return f"{now} MB in a worker ({own} MB anonymous, {clean + dirty} MB shared), {most} MB at most"


def wait_for_analysis(reader: Reader, machine: str) -> float:
    """Seconds until pages show what was found."""
    began = time.perf_counter()
    chosen = {"overview-machine.value": machine, "overview-l2.value": "all", "overview-since.value": "7d"}
    while time.perf_counter() - began < 900:
        told = reader.ask("overview-said.children", {**chosen, "overview-quantity.value": "time"})
        if "Looking for changes" not in json.dumps(told["response"]["overview-said"]):
            return time.perf_counter() - began
        time.sleep(1)
    raise SystemExit("the results were not analysed within 15 minutes")


def cpu(pid: int) -> float:
    """Seconds of CPU of a process so far."""
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def p95(times: list[float]) -> float:
    """95th percentile."""
    return sorted(times)[min(len(times) - 1, int(0.95 * len(times)))]


def main() -> None:
    """Serve, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, help="keep the store's cache here")
    parser.add_argument("--state", type=Path, help="keep the alerts here (default: begin with none)")
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds on a page (default: %(default)s)")
    args = parser.parse_args()
    machines = sorted(path.parent.name for path in args.folder.glob("*/machine.json"))
    with (
        tempfile.TemporaryDirectory() as scratch,
        dashboard(args.folder, args.cache or Path(scratch), args.state) as (base, pid),
    ):
        seen = Seen()
        first = Reader(base, seen, 0)
        print(f"analysed {wait_for_analysis(first, machines[0]):.1f} s after the first question", flush=True)
        readers = [Reader(base, seen, seed, args.pause) for seed in range(1, args.readers + 1)]
        before = sum(map(cpu, workers_of(pid)))
        until = time.monotonic() + args.seconds
        threads = [threading.Thread(target=one.read, args=(until, machines)) for one in readers]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        every = [took for times in seen.times.values() for took in times]
        for page, times in (*sorted(seen.times.items()), ("all", every)):
            median, most = (1e3 * one for one in (sorted(times)[len(times) // 2], p95(times)))
            print(f"{page:13} {len(times):5} answers, median {median:.0f} ms, p95 {most:.0f} ms")
        used = sum(map(cpu, workers_of(pid))) - before
        print(f"load          {os.getloadavg()[0]:.1f} processes in the last minute, readers and workers among them")
        print(f"CPU           {used:.1f} s of all workers, {1e3 * used / len(every):.0f} ms an answer")
        print(f"errors        {len(seen.errors)} {'; '.join(seen.errors[:3])}")
        for worker in workers_of(pid):
            print(f"memory        {memory(worker)}")


if __name__ == "__main__":
    main()
