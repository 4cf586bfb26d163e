"""A planned call launches, returns and raises what the ordinary call does (``kernels.call_plans``).

The checks run in one process with Triton's real compiler and launcher on a stand-in for NVIDIA's driver library.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton

from kernels import linear

HERE = Path(__file__).parent / "call_plans"
CHECKS = re.findall(r"^def (check_\w+)", (HERE / "checks.py").read_text(encoding="utf-8"), re.MULTILINE)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What each check printed, by its name."""
    folder = tmp_path_factory.mktemp("libcuda")
    library = folder / "libcuda.so.1"
    include = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    compile_it = ["gcc", "-shared", "-fPIC", f"-I{include}", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run([*compile_it, str(HERE / "libcuda_stand_in.c")], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_LIBCUDA_PATH": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(HERE / "checks.py"), str(library)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^(check_\w+) ", done.stdout, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("name", CHECKS)
def test_planned(name, outcomes):
    assert outcomes.get(name, "did not run").strip() == "ok"


def test_nothing_but_kernels_knows_of_plans():
    """They are an optimisation behind one decorator: only functions of a family name it, and nothing else of it."""
    known = ROOT / "kernels" / "call_plans"
    for path in [*(ROOT / "kernels").rglob("*.py"), *(ROOT / "lockstep").rglob("*.py"), *ROOT.glob("benchmarks/*.py")]:
        text = path.read_text(encoding="utf-8")
        if known not in path.parents and "call_plans" in text:
            assert text.count("call_plans") == text.count("from kernels.call_plans import planned\n") == 1, path
            assert path.is_relative_to(ROOT / "kernels"), path


def test_a_caller_is_compiled_as_one_graph():
    """What decides whether a call is planned is nothing that torch.compile could trace."""
    x, weight = torch.randn(2, 16), torch.randn(4, 16)
    compiled = torch.compile(lambda x, weight: linear.linear(x, weight) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, weight), linear.linear(x, weight) + 1)
