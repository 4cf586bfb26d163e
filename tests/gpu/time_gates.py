"""Time the gate on planted changes of this repository: ``python -m tests.gpu.time_gates [KIND …]`` prints JSON.

Each kind compares a commit with a working tree that differs in one way, in a new process and with empty caches.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HOME = Path(__file__).parents[2]


def _comment(text: str) -> str:
    return "# Words.\n" + text


def _refactor(text: str) -> str:
    return text.replace("program_id(0)\n", "program_id(0) + 0\n").replace("accumulator", "total")


def _kernel(text: str) -> str:
    return text.replace("num_warps=4", "num_warps=8").replace("num_warps=2", "num_warps=4")


def _stage(text: str) -> str:
    return text.replace("num_stages=tile.stages", "num_stages=tile.stages - 1")


#: By kind: the files that change, the change, the families to judge, and seconds for measuring.
KINDS = {
    "comment": ("kernels/linear/*.py", _comment, ["linear"], 20.0),
    "stage": ("kernels/w4a16/planes_kernel.py", _stage, ["w4a16"], 36.0),
    "kernel": ("kernels/linear/*.py", _kernel, ["linear"], 38.0),
    "refactor": ("kernels/linear/*.py", _refactor, ["linear"], 38.0),
    "unchanged": ("", str, None, 150.0),
}


def judged(kind: str, folder: Path) -> dict[str, object]:
    """Run the gate on one kind of change, and return figures."""
    from lockstep.gate.request import Request
    from lockstep.gate.run import run
    from lockstep.suite.discovery import load_suites
    from lockstep.suite.thresholds import read_thresholds

    files, edit, families, budget_s = KINDS[kind]
    place = folder / kind
    for name in ("kernels", "benchmarks"):
        shutil.copytree(HOME / name, place / name)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "base"]):
        subprocess.run([*git, *command], cwd=place, check=True, capture_output=True)
    for path in place.glob(files) if files else ():
        path.write_text(edit(path.read_text()))
    sys.path.insert(0, str(place))
    suites = {
        name: suite
        for name, suite in load_suites(place / "benchmarks").items()
        if families is None or suite.family in families
    }
    cases = dict.fromkeys(suites)
    if kind == "unchanged":  # a case of the middle of each suite
        cases = {name: [suite.cases[len(suite.cases) // 2].label] for name, suite in suites.items()}
    request = Request(
        repository=place, benchmark_dir=place / "benchmarks", packages=("kernels",), base="HEAD", head=".",
        suites=suites, cases=cases, variants=(), l2="both", thresholds=read_thresholds(HOME / "thresholds.toml"),
        min_effect=0.001 if kind == "unchanged" else None, about=(), budget_s=budget_s, silence_s=60.0, seed=1,
        measure_all=kind == "unchanged",
    )  # fmt: skip
    started, words = time.monotonic(), []

    def say(line: str) -> None:
        words.append((round(time.monotonic() - started, 1), line))

    report = run(request, say)
    changed = [one for one in report.cases if not one.unchanged and one.outcome != "na"]
    slower = [one for one in changed if one.outcome == "slower"]
    excluded = sorted(one.excluded for one in changed if one.excluded is not None)
    estimates = [one.change.value for one in report.cases if one.change]
    found: dict[str, object] = {
        "headline": json.loads(report.to_json())["headline"],
        "seconds": round(report.wall_s, 1),
        "first_words_s": words[0][0],
        "compared_s": round(report.compared_s, 1),
        "counts": report.counts(),
        "changed": len(changed),
        "looked_at": sum(one.epochs > 0 for one in changed),
        "slower": len(slower),
        "slower_by": sorted(round(one.change.value, 4) for one in slower if one.change),
        "look_slower_by_3_percent_undecided": sum(
            one.outcome == "unsure" and one.change is not None and one.change.value > 0.03 for one in changed
        ),
        "excluded_median_worst": [statistics.median(excluded), excluded[-1]] if excluded else [],
        "excluded_unknown": len(changed) - len(excluded),
        "epochs": sum(one.epochs for one in changed),
        "wall_in_cases_s": round(sum(one.wall_s for one in changed), 1),
        "reasons": Counter(f"{one.outcome}: {one.reason}"[:100] for one in report.cases).most_common(12),
        "code": Counter(text[:160] for one in changed for text in one.code).most_common(6),
        "notes": report.notes,
        "aa": [one.change.value for one in report.meter if one.change],
        "words": [*words[:12], *words[-3:]],
        "machine": report.machine.get("gpu", ""),
    }
    if kind == "unchanged":
        found["within_.05_percent"] = sum(abs(one) < 5e-4 for one in estimates) / max(1, len(estimates))
        found["worst"] = max(map(abs, estimates), default=0.0)
    return found


def profile_of_observing(folder: Path) -> str:
    """Return the functions in which observing spends its time once kernels are compiled, and milliseconds a case."""
    import cProfile
    import io
    import pstats

    from lockstep.gate.measuring.comparer import Comparer
    from lockstep.gate.measuring.pairing import QUICK
    from lockstep.gate.namespaces import Sides
    from lockstep.suite.discovery import load_suites
    from lockstep.timing.device import open_device

    roots = {side: folder / side for side in ("base", "head")}
    for root in roots.values():
        shutil.copytree(HOME / "kernels", root / "kernels")
    sides = Sides(("kernels",), **roots)
    comparer = Comparer(sides, open_device(), QUICK, 1, lambda *_: None)
    suite = load_suites(HOME / "benchmarks")["linear"]
    variants = list([comparer.families.load(suite, side) for side in ("base", "head")][1].variants)
    cases = [case.label for case in suite.cases[:6]]
    for label in cases:
        list(comparer.observe(suite, label, variants))
    profile, started = cProfile.Profile(), time.monotonic()
    for label in cases:
        list(comparer.observe(suite, label, variants))
    plain_s = (time.monotonic() - started) / len(cases) / len(variants)
    profile.enable()
    for label in cases:
        list(comparer.observe(suite, label, variants))
    profile.disable()
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text)
    stats.sort_stats("tottime").print_stats(30)
    stats.sort_stats("cumulative").print_stats(40)
    return f"{1e3 * plain_s:.2f} ms a case\n{text.getvalue()}"


def main() -> None:
    """Judge each kind in a process of its own, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--here", action="store_true", help="judge the one kind in this process")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.here and options.kinds == ["profile"]:
            print(profile_of_observing(Path(folder)))
            return
        if options.here:
            print(json.dumps(judged(options.kinds[0], Path(folder)), indent=1))
            return
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "TRITON_CACHE_DIR": cache}
            command = [sys.executable, "-m", "tests.gpu.time_gates", "--here", kind]
            print(f"=== {kind}", flush=True)
            started = time.monotonic()
            done = subprocess.run(command, env=environment, stderr=subprocess.STDOUT, timeout=200, check=False)
            print(f"=== {kind}: exit {done.returncode}, {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
