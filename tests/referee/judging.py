"""Measure exploits with the real command and print what became of each: ``python tests/referee/judging.py``."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from expected_rules import HARMLESS_ON_CUDA, IN_PROCESS, ISOLATED, MISSED, ON_CUDA, RACES, UNSURE

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]

#: Families whose variants change the whole process: each variant is measured in a process of its own.
ALONE = ("clock", "tamper", "on_import")

#: Families that share one process.
TOGETHER = "exploits"

#: A record as ``lockstep measure --json`` prints it.
Record = dict[str, Any]


def make_project(root: Path) -> Path:
    """Write a project whose package under test is ``exploits``; return its folder."""
    shutil.copytree(HERE / "exploits", root / "exploits", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("benchmarks", "home", "scratch"):
        (root / folder).mkdir()
    (root / "benchmarks" / "__init__.py").touch()
    shutil.copy(HERE / "exploit_suites.py", root / "benchmarks" / "exploits.py")
    settings = {
        "version": 1,
        "project": "exploits",
        "repo": ".",
        "branches": ["main"],
        "environment_type": "lockstep",
        "plugins": [".lockstep.asv"],
        "benchmark_dir": "benchmarks",
        "env_dir": ".asv/env",
        "default_benchmark_timeout": 60,
        "lockstep": {"packages": ["exploits"]},
    }
    (root / "asv.conf.json").write_text(json.dumps(settings))
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    return root


def measure(root: Path, family: str, variants: Sequence[str] = (), *options: str) -> tuple[list[Record], str]:
    """Run ``lockstep measure FAMILY --quick --json`` in a project; return its records and its other output.

    Raises:
        TimeoutExpired: it did not end within five minutes.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(REPOSITORY), "HOME": str(root / "home"), "TMPDIR": str(root / "scratch")}
    # Threads that wait for each other make times on a busy machine worthless; one exploit leaves one of two threads.
    environment["OMP_NUM_THREADS"] = "2" if family == "clock" else "1"
    done = subprocess.run(
        [sys.executable, "-m", "lockstep", "measure", family, "--quick", "--json", *options]
        + (["--variants", *variants] if variants else []),
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = done.stdout.splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return records, "\n".join([*(line for line in lines if not line.startswith("{")), done.stderr])


def names(family: str) -> list[str]:
    """Return the exploits of a family that is measured one by one."""
    return [name for name in re.findall(r'^    "(\w+)": \w+,$', _source(family), re.MULTILINE) if name != "product"]


def exploits() -> list[str]:
    """Return the names of all exploits: what ``VARIANTS`` of the package list, less baselines and honest variants."""
    honest = {"honest_kernel", "product", "negate", "repeat", "residual", "double_rows", "mean", "signs", "softmax"}
    found = [f"{family}.{name}" for family in ALONE for name in names(family)]
    for path in sorted((HERE / "exploits").glob("*.py")):
        found += re.findall(r'^    "(\w+\.\w+)": \w+,$', _source(path.stem), re.MULTILINE)
    return [name for name in found if not name.startswith("honest.") and name.partition(".")[2] not in honest]


def _source(module: str) -> str:
    """Return the part of a module that begins with its ``VARIANTS``."""
    text = (HERE / "exploits" / f"{module}.py").read_text()
    return text[text.index("VARIANTS = {") :].partition("\n}")[0] if "VARIANTS = {" in text else ""


def name_of(record: Record) -> str:
    """Return ``task.variant``, as the expected rules have it."""
    return f"{record['suite'].removeprefix(TOGETHER + '.')}.{record['variant']}"


def opinion(record: Record, isolated: bool = False, cuda: bool = False) -> str:
    """Return whether a record is as expected: "", or what is wrong with it.

    Args:
        record: of one variant.
        isolated: it was measured with ``--isolated``.
        cuda: on a GPU.
    """
    name, state, rule = name_of(record), record["state"], record["rule"]
    elsewhere = "reads values on the host" if cuda else "needs CUDA"
    if elsewhere in record["reason"] or (isolated and name in UNSURE):
        return ""
    if name in RACES and state == "ok" and not cuda and not isolated:
        return ""
    if cuda and name in HARMLESS_ON_CUDA and state == "ok":
        return "" if not record["speedup"] or record["speedup"]["low"] <= 1 else "PASSED"
    rules: Sequence[str] | None = {**IN_PROCESS, **(ISOLATED if isolated else {})}.get(name)
    rules = ON_CUDA.get(name, rules) if cuda else rules
    if rules is None:
        known = "CAUGHT" if name in MISSED else "ACCUSED"
        return known if state == "failed" else ""
    if state != "failed" and not (isolated and rule):  # a withheld speedup has a rule as well
        return "PASSED"
    return "" if rule in rules else "ANOTHER RULE"


def judge(root: Path, parallel: int = 1, *options: str) -> Iterator[Record]:
    """Measure every exploit and honest variant in a project; yield their records.

    Args:
        root: the project.
        parallel: processes at once, of those that measure one exploit each.
        options: further options of ``lockstep measure``.
    """
    yield from measure(root, TOGETHER, (), *options)[0]

    def alone(named: tuple[str, str]) -> Record:
        family, name = named
        records, said = measure(root, family, [name], *options)
        lost = {"suite": family, "variant": name, "state": "failed", "rule": "", "reason": said[-200:]}
        return next((record for record in records if record["variant"] == name), lost)

    with ThreadPoolExecutor(parallel) as pool:
        yield from pool.map(alone, [(family, name) for family in ALONE for name in names(family)])


def line(record: Record, isolated: bool = False, cuda: bool = False) -> str:
    """Return name, opinion, state, rule, speedup and reason of a record in one line."""
    speedup = (record.get("speedup") or {}).get("value")
    ratio = f"{speedup:,.2f}x" if speedup else ""
    reason = record["reason"].replace("\n", " ")[:120]
    verdict = f"{opinion(record, isolated, cuda):13} {record['state']:7} {record['rule']:16}"
    return f"{name_of(record):36} {verdict} {ratio:>12}  {reason}".rstrip()


def main() -> int:
    """Judge everything on this machine's device, print the table, and return 1 if a verdict is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parallel", type=int, default=1, help="processes at once, of those with one exploit each")
    parser.add_argument("options", nargs="*", help="further options of lockstep measure, after --")
    chosen = parser.parse_args()
    wrong, how = 0, ("--isolated" in chosen.options, torch.cuda.is_available())
    with tempfile.TemporaryDirectory() as folder:
        for record in judge(make_project(Path(folder) / "project"), chosen.parallel, *chosen.options):
            wrong += bool(opinion(record, *how))
            print(line(record, *how), flush=True)
    print(f"{wrong} verdicts are not as expected")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
