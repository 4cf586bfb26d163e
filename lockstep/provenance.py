"""Facts about the machine and toolchain, told once a process and stored with every result."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def host_facts() -> dict[str, str]:
    """GPU, driver, toolchain and torch's math flags as strings. Imports torch; the CPU stands in for a GPU."""
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
        }
    return facts


def ask_host_facts() -> dict[str, str]:
    """``host_facts`` from a process of its own, so that this one needs no torch and no CUDA context.

    Raises:
        RuntimeError: torch cannot be imported there; the message ends with its error.
    """
    done = subprocess.run([sys.executable, "-m", "lockstep.provenance"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"torch does not work here:\n{done.stderr.strip()}")
    facts: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return facts


def harness_commit(folder: Path) -> str:
    """Commit of the ruler and harness, "+dirty" with uncommitted changes; "" outside a repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return ""
    # Results are written into the tree while measuring: they are no change of the ruler.
    changed = _git(folder, "status", "--porcelain", "--", ":(exclude)results")
    return f"{commit}+dirty" if changed else commit


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


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


if __name__ == "__main__":
    print(json.dumps(host_facts()))
