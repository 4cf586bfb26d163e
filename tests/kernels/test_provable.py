"""A trace of the kernels proves what they do: nothing that they ask of their environment makes a case unknown."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("family", "variant", "case"),
    [
        ("norm_linear", "overlapped", "M=1,K=4096,N=2048"),
        ("w4a16", "best", "M=16,K=8192,N=8192,group=128"),
        ("grouped", "best", "B=256,G=12,K=1024,N=3072"),
    ],
)
def test_a_case_is_known(family, variant, case):
    command = [sys.executable, "-m", "lockstep", "code", "show", "--json", "--target", "sm_90"]
    command += ["--family", family, "--variant", variant, "--case", case]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert shown
    assert {one["unknown"] for one in shown} == {""}
