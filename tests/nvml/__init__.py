"""A stand-in libnvidia-ml, for tests on machines without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

#: Statements of a script that locks: waits are short, and ``load`` keeps a GPU busy as far as the stand-in can see.
PREAMBLE = """
import contextlib, json, os, signal, sys, time
from pathlib import Path
from lockstep.gpu import clock_lock as clocks, clock_verification as clock_state, nvml
clock_state.SETTLE_S, clock_state.HOLD_S = 0.0, 0.05
stand_in = Path(os.environ["STAND_IN"])
def load(index=0):
    (stand_in / f"busy-{index}").touch()
    time.sleep(0.005)
def rest():
    (stand_in / "busy-0").unlink()
"""


def build(folder: Path) -> Path:
    """Compile the library into ``folder``, which is what to put into ``LD_LIBRARY_PATH``."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in libnvidia-ml")
    source = Path(__file__).parent / "stand_in.c"
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder
