"""Compile a commit's kernels in parallel before anything is measured.

A Triton kernel takes 0.5 to 3.5 s to compile; one after another in the measuring process that would
cost more than measuring. Each process here takes some (suite, variant) pairs, calls them on meta
tensors for every case, and leaves the kernels in Triton's disk cache, where the worker finds them.
What cannot be compiled this way (a variant that reads its data on the host) compiles at first use.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: Processes; more than this and importing torch costs more than it saves.
MOST_PROCESSES = 12


def precompile(benchmark_dir: Path, checkout: Path, packages: Sequence[str], arch: int, timeout: float = 300.0) -> bool:
    """Compile for ``sm_<arch>``; False if the same sources were compiled before (nothing is started then).

    Processes that are not done after ``timeout`` seconds are ended: the worker compiles the rest.
    """
    done = _stamp(checkout, packages, arch)
    if done.exists():
        return False
    count = max(1, min(MOST_PROCESSES, len(os.sched_getaffinity(0)) - 1))
    common = ["--benchmarks", str(benchmark_dir), "--checkout", str(checkout), "--arch", str(arch), "--of", str(count)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "lockstep.precompile", *common, "--share", str(share), "--packages", *packages],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # No CUDA context: these processes must not take memory on the GPU.
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
        for share in range(count)
    ]
    complete = True
    for process in running:
        try:
            complete &= process.wait(timeout=timeout) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            complete = False
    if complete:
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()
    return True


def _stamp(checkout: Path, packages: Sequence[str], arch: int) -> Path:
    """A file in Triton's cache that stands for these sources, this target and this Triton."""
    import importlib.metadata

    digest = hashlib.sha256(f"{arch} {importlib.metadata.version('triton')}".encode())
    for package in packages:
        for path in sorted((checkout / package).rglob("*")):
            if path.suffix in {".py", ".toml"}:  # code, and tables of what was tuned
                digest.update(path.read_bytes())
    cache = Path(os.environ.get("TRITON_CACHE_DIR", Path.home() / ".triton" / "cache"))
    return cache / f"lockstep-{digest.hexdigest()[:24]}"


def _main() -> int:
    parser = argparse.ArgumentParser(prog="lockstep precompile")
    parser.add_argument("--benchmarks", type=Path, required=True)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--packages", nargs="+", required=True)
    parser.add_argument("--arch", type=int, required=True)
    parser.add_argument("--share", type=int, required=True)
    parser.add_argument("--of", type=int, required=True)
    options = parser.parse_args()

    from lockstep.checkout import import_from
    from lockstep.suites import load_suites

    suites = load_suites(options.benchmarks)
    import_from(options.checkout, options.packages)

    from lockstep.compiling import intercept
    from lockstep.family import load_family, takes_out
    from lockstep.inputs import Draw
    from lockstep.suite import SuiteError, bind

    pairs = [(suite, variant) for suite in suites.values() for variant in suite.variants()]
    with intercept(options.arch):
        for suite, variant in pairs[options.share :: options.of]:
            try:
                family = load_family(suite)
            except (ImportError, SuiteError):
                continue  # an old commit without this family: nothing to compile
            if variant not in family.variants:
                continue
            for case in suite.cases:
                draw = Draw("meta", 0)
                axes = dict(case)
                try:
                    inputs = suite.inputs(**bind(suite.inputs, {"draw": draw, **axes}))
                    arguments = family.arguments(variant, inputs)
                    if suite.outputs is not None and takes_out(family.variants[variant]):
                        arguments["out"] = suite.outputs(**bind(suite.outputs, {"draw": draw, **axes}))
                    family.variants[variant](**arguments)
                except Exception as error:  # whatever it is, the worker meets it again and reports it
                    print(f"{suite.name} {variant} {case.label}: {type(error).__name__}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
