"""Compile a commit's kernels in parallel before anything is measured.

A Triton kernel takes 0.2 to 3.5 s to compile. Compiling all kernels in the measuring process, one after another, would
take longer than measuring. They are compiled as in ``lockstep code``, on tensors without content: Triton's disk cache
then has the kernels for the worker, and Lockstep's cache has the facts for the records.

A variant that cannot be compiled this way, because it reads its data on the host, compiles at first use.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep.machine_code.targets import Target
from lockstep.processes.end_with_parent import end_with_parent, reap, start

#: Maximum number of processes; further processes would have no batch of kernels.
MOST_PROCESSES = 12

#: Maximum seconds of compiling ahead.
LIMIT_S = 300.0


def precompile(benchmark_dir: Path, checkout: Path, packages: Sequence[str], host: Mapping[str, str]) -> bool:
    """Compile a checkout's kernels for the GPU in ``host`` (facts from ``host_facts``).

    Return False, without compiling, if the same sources were compiled before. Compiling ends after ``LIMIT_S`` seconds;
    the measuring worker then compiles the remaining kernels when it first launches them.
    """
    target = Target.of_host(host)
    done = _stamp(checkout, packages, target)
    if done.exists():
        return False
    # Kernels that depend on the GPU's name are compiled for this GPU, which that process does not see.
    environment = {**os.environ, "LOCKSTEP_KERNEL_GPU": host["gpu"]}
    arguments = ["--benchmarks", str(benchmark_dir), "--checkout", str(checkout), "--packages", *packages]
    process = start(
        [
            sys.executable,
            "-m",
            "lockstep.machine_code.compiling.precompile",
            "--target",
            target.spell(),
            *arguments,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        complete = reap(process, LIMIT_S) == 0
    except BaseException:
        reap(process, 0.0)
        raise
    if complete:
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()
    return True


def compiler_processes() -> int:
    """Return how many processes compile at once: one less than the number of CPUs that this process may use."""
    return max(1, min(MOST_PROCESSES, len(os.sched_getaffinity(0)) - 1))


def _stamp(checkout: Path, packages: Sequence[str], target: Target) -> Path:
    """Return the file in Triton's cache that marks these sources as compiled, for this target and Triton version."""
    digest = hashlib.sha256(f"{target.spell()} {importlib.metadata.version('triton')}".encode())
    for package in packages:
        for path in sorted((checkout / package).rglob("*")):
            if path.suffix in {".py", ".toml"}:  # code, and tables of tuned choices
                digest.update(path.read_bytes())
    cache = Path(os.environ.get("TRITON_CACHE_DIR", Path.home() / ".triton" / "cache"))
    return cache / f"lockstep-{digest.hexdigest()[:24]}"


def _main() -> int:
    end_with_parent()
    parser = argparse.ArgumentParser(prog="lockstep precompile")
    parser.add_argument("--benchmarks", type=Path, required=True)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--packages", nargs="+", required=True)
    parser.add_argument("--target", type=Target.spelled, required=True)
    options = parser.parse_args()

    # Imported here: torch is slow to import, and only this process needs it.
    from lockstep.machine_code import TracingFailed, Tree, codes_of
    from lockstep.suite.discovery import load_suites

    suites = load_suites(options.benchmarks).values()
    tree = Tree("this commit", options.checkout.resolve(), tuple(options.packages))
    try:
        codes_of(tree, suites, options.target, processes=compiler_processes(), anew=True)
    except TracingFailed as error:  # the worker meets the same error and reports it
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
