"""The array of jobs on a real Slurm, as docs/evidence/slurm.sh sets it up.

It starts ten processes that import torch, which takes a minute on a quiet machine and five beside other tests. As root,
with slurm-wlm and munge installed: ``LOCKSTEP_TEST_ALL=1 pytest tests/fleet/test_slurm.py``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "slurmd", "munged"))),
    reason="needs root, slurm-wlm and munge",
)
def test_an_array_goes_on_after_a_killed_scheduler_and_a_killed_task():
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "docs/evidence/slurm.sh"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    sections = {title.splitlines()[0]: title for title in done.stdout.split("## ")[1:]}
    whole, scheduler, task = (
        next(text for title, text in sections.items() if part in title)
        for part in ("--launcher slurm", "scheduler is killed", "task is killed")
    )
    merged = "1 result files changed, 0 had everything\nstatus 0\n"
    assert whole.endswith(merged), done.stdout + done.stderr
    assert "killed slurmctld" in scheduler
    assert scheduler.endswith(merged), done.stdout + done.stderr
    assert "ended with status 3" in task
    assert task.endswith(merged), done.stdout + done.stderr
    assert "0 result files changed" in sections["merged again"], done.stdout
