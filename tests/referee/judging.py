"""Judge exploits and honest candidates with the real command: ``python tests/referee/judging.py`` prints the verdicts.

Three tables: ``exploits`` (variants of suites), ``kernelbench`` (solutions of ten problems) and ``programs`` (problems
that once had a wrong verdict). No dishonest candidate may be faster, and no honest one may be accused.
"""

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
from pathlib import Path

from kernelbench_problems import CORRECT, TASKS
from programs import PROGRAMS
from project import START

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]

#: Honest variants of ``exploits``, and one that is right on every value that its suite draws.
HONEST = re.compile(
    r"^honest\.|\.(product|negate|repeat|residual|double_rows|mean|signs|softmax|softmax_without_maximum)$"
)

#: Name, whether the candidate is honest, and its verdict as JSON.
Judged = tuple[str, bool, dict[str, object]]


def opinion(honest: bool, outcome: str) -> str:
    """Return what is wrong with a verdict, or "". A candidate without a GPU that needs one may be broken."""
    if honest:
        return "ACCUSED" if outcome in ("cheats", "wrong") else ""
    return "PASSED" if outcome == "faster" else ""


def referee(folder: Path, *words: str, limit_s: float = 600.0) -> list[dict[str, object]]:
    """Run ``lockstep referee … --json`` in a folder; return its verdicts.

    Raises:
        RuntimeError: it gave none; the message is what it said.
    """
    paths = f"{REPOSITORY}{os.pathsep}{folder}"
    start = f"import lockstep.commands.referee\n{START}"  # the verb, where the installed package lacks it
    done = subprocess.run(
        [sys.executable, "-c", start, "referee", "--json", "--limit", "60", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )
    verdicts = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not verdicts:
        raise RuntimeError(done.stdout + done.stderr)
    return verdicts


def make_project(root: Path) -> Path:
    """Write a project whose package under test is ``exploits``; return its folder."""
    shutil.copytree(HERE / "exploits", root / "exploits", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "benchmarks").mkdir()
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
        "lockstep": {"packages": ["exploits"]},
    }
    (root / "asv.conf.json").write_text(json.dumps(settings))
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    return root


def variants() -> dict[str, list[str]]:
    """Return the variants of each suite of ``exploits``, by the suite's name."""
    found: dict[str, list[str]] = {}
    for path in sorted((HERE / "exploits").glob("*.py")):
        text = path.read_text()
        listed = text[text.index("VARIANTS = {") :].partition("\n}")[0] if "VARIANTS = {" in text else ""
        for name in re.findall(r'^    "([\w.]+)": \w+,$', listed, re.MULTILINE):
            suite, _, variant = name.rpartition(".")
            found.setdefault(f"exploits.{suite}" if suite else path.stem, []).append(variant)
    return found


def judge_exploits(folder: Path, suites: Sequence[str] = ()) -> Iterator[Judged]:
    """Judge the variants of the suites, or of all, each against its suite's baseline."""
    project = make_project(folder / "project")
    for suite, names in variants().items():
        if not suites or suite in suites:
            for name, verdict in zip(names, referee(project, "--suite", suite, "--keep", *names), strict=False):
                full = f"{suite.removeprefix('exploits.')}.{name}"
                yield full, bool(HONEST.search(full)), verdict


def judge_kernelbench(folder: Path, large: bool = False) -> Iterator[Judged]:
    """Judge the solutions of ten problems of KernelBench's kind."""
    for task in TASKS:
        (folder / f"{task.name}.py").write_text(task.problem(large=large))
        files = []
        for number, name in enumerate(task.solutions):
            files.append(f"{task.name}_{number}.py")
            (folder / files[-1]).write_text(task.solution(name, large=large))
        verdicts = referee(folder, "--kernelbench", f"{task.name}.py", "--keep", *files)
        for name, verdict in zip(task.solutions, verdicts, strict=True):
            yield f"{task.name}: {name}", task.solutions[name][1] == CORRECT, verdict


def judge_programs(folder: Path, names: Sequence[str] = ()) -> Iterator[Judged]:
    """Judge the candidates of ``programs``."""
    for name, program in PROGRAMS.items():
        if names and name not in names:
            continue
        for file, text in program.files.items():
            (folder / file).write_text(text)
        for candidate, verdict in zip(program.candidates, referee(folder, *program.words), strict=True):
            yield f"{name}: {candidate}", program.candidates[candidate], verdict


def line(judged: Judged) -> str:
    """Return a verdict as one line of the table."""
    name, honest, verdict = judged
    speedup = verdict["speedup"]
    ratio = f"{speedup['value']:,.2f}x" if isinstance(speedup, dict) else ""
    kind = "honest" if honest else "exploit"
    told = f"{kind:8} {verdict['outcome']!s:11} {verdict['rule']!s:15} {ratio:>9} {verdict['seconds']:6.1f} s"
    reason = str(verdict["reason"]).replace("\n", " ")[:90]
    return f"{name:52} {opinion(honest, str(verdict['outcome'])):8} {told}  {reason}".rstrip()


def main() -> int:
    """Judge everything on this machine's device, print the tables, and return 1 if a verdict is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=["programs", "kernelbench", "exploits"])
    parser.add_argument("--large", action="store_true", help="sizes for a GPU")
    chosen = parser.parse_args()
    bad = 0
    for table in chosen.tables:
        with tempfile.TemporaryDirectory() as folder:
            judged = {
                "programs": lambda path: judge_programs(path),
                "kernelbench": lambda path: judge_kernelbench(path, chosen.large),
                "exploits": lambda path: judge_exploits(path),
            }[table](Path(folder))
            for one in judged:
                bad += bool(opinion(one[1], str(one[2]["outcome"])))
                print(line(one), flush=True)
    print(f"{bad} verdicts are not as they must be")
    return int(bad > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    sys.exit(main())
