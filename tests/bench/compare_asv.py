"""asv's own site beside the dashboard, on the same results; prints a line a figure:

    python tests/bench/compare_asv.py FOLDER [--most 600]

``FOLDER`` is a results tree as ``make_tree.py`` writes it. asv needs a repository with its commits: one with as many
is made, and the tree is copied under their hashes. asv's figures are of ``asv publish``, which is given ``--most``
seconds, and of what a browser must load; the dashboard's are of its start, its analysis, and the same questions.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from read_pages import Reader, Seen, dashboard, wait_for_analysis


def main() -> None:
    """Copy, publish, serve, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=float, default=600.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        files = copy_tree(args.folder, here)
        print(f"tree       {files} files, {size_of(here / 'results') >> 20} MB", flush=True)
        asv(here, args.most)
        ours(here)


def copy_tree(source: Path, here: Path) -> int:
    """The tree under the hashes of a repository that is made for it; gives the number of result files."""
    machines = sorted(path.parent for path in source.glob("*/machine.json"))
    found = {path: json.loads(path.read_bytes()) for path in machines[0].glob("*.json") if path.name != "machine.json"}
    dates = {content["commit_hash"]: content["date"] for content in found.values()}
    order = sorted(dates, key=lambda commit: dates[commit])
    hashes = dict(zip(order, make_commits(here / "repo", [dates[commit] for commit in order]), strict=True))
    (here / "results").mkdir()
    (here / "results/benchmarks.json").write_bytes((source / "benchmarks.json").read_bytes())
    count = 0
    for machine in machines:
        to = here / "results" / machine.name
        to.mkdir()
        for path in machine.glob("*.json"):
            text = path.read_text()
            name = path.name
            if name != "machine.json":
                [old] = re.findall(r'"commit_hash": "([0-9a-f]{40})"', text)
                text, name = text.replace(old, hashes[old]), name.replace(old[:8], hashes[old][:8])
                count += 1
            (to / name).write_text(text)
    return count


def make_commits(repo: Path, dates: list[int]) -> list[str]:
    """A repository with a commit at each date (ms since 1970); their hashes."""
    repo.mkdir()
    stream = [
        f"commit refs/heads/main\ncommitter T <t@example.org> {date // 1000} +0000\ndata 1\nc\n"
        f"M 644 inline n\ndata {len(str(date))}\n{date}\n"
        for date in dates
    ]
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=repo, check=True)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repo, input="\n".join(stream), text=True, check=True)
    listed = ["git", "rev-list", "--reverse", "main"]
    return subprocess.run(listed, cwd=repo, check=True, capture_output=True, text=True).stdout.split()


def asv(here: Path, most: float) -> None:
    """Print what asv's site takes."""
    config = {"version": 1, "project": "bench", "repo": str(here / "repo"), "branches": ["main"]}
    config |= {"results_dir": "results", "html_dir": "html", "env_dir": "env", "benchmark_dir": "benchmarks"}
    (here / "asv.conf.json").write_text(json.dumps(config))
    began = time.perf_counter()
    try:
        subprocess.run(
            [sys.executable, "-m", "asv", "publish"], cwd=here, check=True, capture_output=True, timeout=most
        )
    except subprocess.TimeoutExpired:
        print(f"asv        did not publish within {most:.0f} s; {size_of(here / 'html') >> 20} MB so far", flush=True)
        return
    html = here / "html"
    files = [path for path in html.rglob("*") if path.is_file()]
    print(f"asv        published in {time.perf_counter() - began:.0f} s: {len(files)} files, {size_of(html) >> 20} MB")
    graphs = sorted(path for path in (html / "graphs").rglob("*.json") if "summary" not in path.parts)
    first = [html / name for name in ("index.html", "index.json", "info.json")]
    first += [*html.glob("*.js"), *html.glob("*.css")]
    told("first page", [path for path in first if path.exists()])
    told("one graph", graphs[:1])
    regressions = html / "regressions.json"
    if regressions.exists():
        told("regressions", [regressions])


def told(what: str, files: list[Path]) -> None:
    """Print the bytes of what a browser must load, and compressed."""
    content = [path.read_bytes() for path in files]
    packed = sum(len(gzip.compress(one)) for one in content)
    print(f"           {what}: {len(files)} files, {sum(map(len, content)):,} bytes, {packed:,} with gzip", flush=True)


def ours(here: Path) -> None:
    """Print what the dashboard takes."""
    machine = sorted(path.parent.name for path in here.glob("results/*/machine.json"))[0]
    began = time.perf_counter()
    with dashboard(here / "results", here / "cache") as (base, _):
        reader = Reader(base, Seen(), 0)
        first = ask(reader, "overview-grid.rowData", overview_of(machine))
        print(
            f"dashboard  first page {time.perf_counter() - began:.1f} s after the start, {first[1]:,} bytes", flush=True
        )
        print(f"           analysed {wait_for_analysis(reader, machine):.1f} s later")
        row = json.loads(first[2])["response"]["overview-grid"]["rowData"][0]
        kept = {"machine": machine, "suite": row["family"], "variant": row["variant"], "case": row["case"]}
        kept |= {"l2": row["l2"] or "", "quantity": "", "zoom": []}
        one = {"series-quantity.value": "latency", "colours.data": "light", "series-address.data": kept}
        one["series-axis.value"] = "order"
        for what, output, values in (
            ("first page again", "overview-grid.rowData", overview_of(machine)),
            ("one graph", "series-facts.children", one),
        ):
            seconds, size, _ = min(ask(reader, output, values) for _ in range(5))
            print(f"           {what}: {1e3 * seconds:.0f} ms, {size:,} bytes", flush=True)
        print(f"           cache: {size_of(here / 'cache') >> 20} MB")


def overview_of(machine: str) -> dict[str, str]:
    """What the overview's callback is asked."""
    chosen = {"machine": machine, "l2": "all", "since": "7d", "quantity": "time"}
    return {f"overview-{name}.value": value for name, value in chosen.items()}


def ask(reader: Reader, output: str, values: dict[str, str]) -> tuple[float, int, str]:
    """Seconds, bytes and text of an answer."""
    began = time.perf_counter()
    text = json.dumps(reader.ask(output, values), separators=(",", ":"))
    return time.perf_counter() - began, len(text), text


def size_of(folder: Path) -> int:
    """Bytes in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
