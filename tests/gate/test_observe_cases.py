"""The gate asks its worker about the work of each case, and goes on where a variant refuses, fails or kills it."""

import os
import time
from dataclasses import replace

import pytest
from project import make_project

from lockstep.gate.model import Group, SeriesKey
from lockstep.gate.observers import Observers
from lockstep.gate.unchanged import Unchanged
from lockstep.gate.worker_client import Setup
from lockstep.machine_code.model import CaseKey

KERNELS = """
    import os
    import signal

    import torch


    def plain(x, weight, *, out=None):
        return torch.mm(x, weight, out=out)


    def refuses(x, weight):
        raise NotImplementedError("not for this device")


    def dies(x, weight):
        os.kill(os.getpid(), signal.SIGSEGV)


    def broken(x, weight):
        raise RuntimeError("no such kernel")


    VARIANTS = {"plain": plain, "refuses": refuses, "dies": dies, "broken": broken}
"""


@pytest.mark.skipif(bool(os.environ.get("LOCKSTEP_TEST_GPU")), reason="tests a machine without a GPU")
def test_each_case_gets_an_answer_and_none_that_cannot_be_captured_is_the_same(tmp_path):
    for name in ("base", "head"):
        make_project(tmp_path / name).write("toy/product.py", KERNELS)
    setup = Setup(
        tmp_path / "base", tmp_path / "head", ("toy",), tmp_path / "head/benchmarks", ("product",), 1, quick=True
    )
    case = "M=2,K=1024,N=512"
    groups = [Group("product", case, "", ("plain", "refuses", "dies", "broken"))]
    observers = Observers(setup, 60.0, 2)
    try:
        found = observers.observe(groups, time.monotonic() + 100)
    finally:
        observers.close()
    found = Unchanged(observed=found)
    said = {key.variant: seen.difference for key, seen in found.observed.items()}
    assert said == {
        "plain": said["plain"],  # torch's words for want of CUDA
        "refuses": "",
        "broken": "base cannot be captured: RuntimeError: no such kernel",
    }
    assert said["plain"].startswith("base cannot be captured: ")
    refused = {key: seen.refusal for key, seen in found.observed.items() if seen.refusal}
    assert refused == {CaseKey("product", "refuses", "M=2,K=1024,N=512"): "not for this device"}
    first = SeriesKey("product", "plain", case, "cold")
    assert {variant: found.same(replace(first, variant=variant)) for variant in ("plain", "refuses", "dies")} == {
        "plain": False, "refuses": True, "dies": False,
    }  # fmt: skip
