"""The gate asks its worker about the work of each case, and goes on where a variant refuses, fails or kills it."""

import os
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from project import make_project

from lockstep.gate.coordinator import Coordinator
from lockstep.gate.plan import Selection
from lockstep.gate.unchanged import Unchanged
from lockstep.gate.worker_client import Setup
from lockstep.machine_code import CaseKey
from lockstep.suite.discovery import load_suites

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
def test_each_case_gets_an_answer_and_none_that_cannot_be_captured_is_the_same(tmp_path, monkeypatch):
    for name in ("base", "head"):
        make_project(tmp_path / name).write("toy/product.py", KERNELS)
    monkeypatch.syspath_prepend(tmp_path / "head")
    # Another test of this process may have imported this repository's own suites.
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    suites = load_suites(tmp_path / "head" / "benchmarks")
    setup = Setup(
        tmp_path / "base", tmp_path / "head", ("toy",), tmp_path / "head/benchmarks", ("product",), 1, quick=True
    )
    request = SimpleNamespace(budget_s=60.0, silence_s=60.0)
    coordinator = Coordinator(setup, request, lambda line: None, SimpleNamespace(close=lambda: None))
    selection = Selection(suites, {"product": ["M=2,K=1024,N=512"]}, ("cold", "warm"))
    try:
        coordinator.start()
        coordinator.machine = {**coordinator.machine, "device": "cuda"}
        found = coordinator.observe(selection, Unchanged(), time.monotonic() + 100)
        coordinator.machine = {**coordinator.machine, "device": "cpu"}
        assert coordinator.observe(selection, Unchanged(), time.monotonic() + 100) == Unchanged()
    finally:
        coordinator.close()
    said = {key.variant: text for key, text in found.observed.items()}
    assert said == {
        "plain": said["plain"],  # torch's words for want of CUDA
        "refuses": "",
        "broken": "base cannot be captured: RuntimeError: no such kernel",
    }
    assert said["plain"].startswith("base cannot be captured: ")
    assert found.refused == {CaseKey("product", "refuses", "M=2,K=1024,N=512"): "not for this device"}
    [first, *_] = selection.keys(coordinator.imported)
    assert {variant: found.same(replace(first, variant=variant)) for variant in ("plain", "refuses", "dies")} == {
        "plain": False, "refuses": True, "dies": False,
    }  # fmt: skip
