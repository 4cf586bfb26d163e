"""Collect the facts about the machine and the toolchain that are stored with every result."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

from lockstep.gpu.clock_lock import clock_state
from lockstep.gpu.clock_verification import ClockState
from lockstep.gpu.nvml import find_gpu
from lockstep.gpu.triton_assembler import assembler_version
from lockstep.processes.end_with_parent import end_with_parent, run
from lockstep.processes.exit_status import Unusable
from lockstep.processes.git import Git
from lockstep.processes.import_torch import load_torch


def host_facts() -> dict[str, str]:
    """Return GPU, driver, toolchain and torch's math flags by name; "device" is "cpu" without a GPU. Imports torch."""
    import torch

    facts = {
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_name(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "cuda": torch.version.cuda or "",
        "device": "cpu",
        "tf32_matmul": str(torch.backends.cuda.matmul.allow_tf32),
        "bf16_reduced_precision_reduction": str(torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        "fp16_reduced_precision_reduction": str(torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        facts |= {
            "device": "cuda",
            "gpu": properties.name,
            "gpu_uuid": f"GPU-{properties.uuid}",
            "capability": f"{properties.major}.{properties.minor}",
            "sm_count": str(properties.multi_processor_count),
            "l2_bytes": str(properties.L2_cache_size),
            "ptxas": assembler_version(10 * properties.major + properties.minor),
        }
        gpu = find_gpu(facts["gpu_uuid"])
        if gpu is not None:
            facts |= {
                "driver": gpu.driver or "",
                "cuda_driver": gpu.cuda_driver or "",
                "vbios": gpu.vbios or "",
                "power_limit_w": f"{gpu.power_limit_w:g}" if gpu.power_limit_w else "",
            }
    return facts


@dataclass(frozen=True)
class Host:
    """What records and machine names say about the machine on which a run measures.

    Attributes:
        clock_label: the clock state for people, such as ``locked@1500``; "cpu" without a GPU.
        clock_slug: the clock state for machine names, such as ``locked-1500``.
    """

    facts: dict[str, str]
    clock_label: str
    clock_slug: str


def with_clocks(facts: Mapping[str, str]) -> Host:
    """Return these facts with the clock state of the machine. A lock of the GPU's clocks is verified under load."""
    if facts["device"] == "cpu":
        return Host(dict(facts), "cpu", "cpu")
    gpu = find_gpu(facts["gpu_uuid"])
    state = clock_state(gpu) if gpu is not None else ClockState(reason="no NVML")
    return Host(dict(facts), state.label, state.slug)


def ask_host() -> Host:
    """Return the facts about this machine without importing torch or creating a CUDA context in this process.

    Another process reads the facts. If torch is built without GPU support, no GPU is usable. Then torch is not imported
    at all, and the facts that it would give are missing.

    Raises:
        Unusable: torch cannot be imported; the message ends with torch's error.
    """
    if _built_for_cpu():
        return Host({"device": "cpu"}, "cpu", "cpu")
    done = run([sys.executable, "-m", "lockstep.record.provenance"], text=True)
    if done.returncode:
        raise Unusable(f"torch cannot be imported:\n{done.stderr.strip()}")
    return Host(**json.loads(done.stdout.strip().splitlines()[-1]))


def _built_for_cpu() -> bool:
    """Return whether the installed torch is built without GPU support; False without torch."""
    torch = find_spec("torch")
    version_file = Path(torch.origin).with_name("version.py") if torch and torch.origin else Path()
    if not version_file.is_file():
        return False
    built_for = run_path(str(version_file))
    return all(built_for.get(kind, "unknown") is None for kind in ("cuda", "hip"))


def harness_commit(folder: Path, results: Path) -> str:
    """Return the current commit of the repository with the benchmark definitions; "" outside a repository.

    If there are uncommitted changes, the commit ends with "+dirty".

    Args:
        results: folder of the results, whose files do not count as changes because a run writes them.
    """
    git = Git(folder)
    commit = git.try_line("rev-parse", "HEAD")
    if not commit:
        return ""
    root, results_folder = Path(git.try_line("rev-parse", "--show-toplevel")).resolve(), results.resolve()
    # Exclude the results only if they are inside the repository, because git refuses to exclude a path outside it.
    # Without ":(top)", git would read the path relative to ``folder``.
    inside = results_folder != root and results_folder.is_relative_to(root)
    without = ["--", f":(top,exclude,literal){results_folder.relative_to(root)}"] if inside else []
    changed = git.try_lines("status", "--porcelain", *without)
    return f"{commit}+dirty" if changed else commit


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _main() -> None:
    end_with_parent()
    try:
        load_torch()
    except ModuleNotFoundError as error:
        sys.exit(str(error))
    print(json.dumps(asdict(with_clocks(host_facts()))))


if __name__ == "__main__":
    _main()
