"""The time to compile, by the real compiler for a GPU that this machine lacks."""

from pathlib import Path

import pytest

from lockstep.asv.record_compile_times import CompileCosts
from lockstep.asv.worker_client import WorkerSpec
from lockstep.machine_code.compile_time import REPEATS
from lockstep.record.model import CostEstimate, Estimate, Record

ROOT = Path(__file__).parents[2]
SUITE, CASE = "linear", "M=1,K=4096,N=2048"
HOST = {"device": "cuda", "gpu": "NVIDIA H200", "capability": "9.0", "sm_count": "132"}


def records(*variants, suite=SUITE, case=CASE, state="ok"):
    return [Record(suite, one, case, "cold", state, "v1", latency=Estimate(1e-5, 1e-5, 1e-5)) for one in variants]


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    made = CompileCosts(WorkerSpec(ROOT, ("kernels",), ROOT / "benchmarks"))
    with pytest.MonkeyPatch.context() as patch:
        # Whatever a user's cache holds.
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield made
    made.close()


def test_a_variant_costs_what_its_kernels_take_with_an_empty_cache(costs):
    measured = [*records("torch", "gemv"), *records("stream", state="failed")]
    first, again = (costs.added(HOST, SUITE, CASE, measured) for _ in range(2))
    for torch, gemv, failed in (first, again):
        assert torch.costs == failed.costs == {}
        assert gemv.costs["compile"].epochs == REPEATS
        # A kernel from a cache takes some milliseconds.
        assert gemv.costs["compile"].value > 0.05
        assert gemv.note == ""


def test_what_was_measured_before_stays(costs):
    [before] = records("gemv")
    host = CostEstimate(1e-5, 1e-5, 1e-5, 5)
    [after] = costs.added({"device": "cpu"}, SUITE, CASE, [Record(**{**vars(before), "costs": {"host": host}})])
    assert (after.costs, after.note) == ({"host": host}, "no compile: no GPU here to compile for")


def test_a_variant_that_cannot_be_followed_says_why(costs):
    suite, case = "w4a16", "M=16,K=8192,N=8192,group=128"
    library, unseen = costs.added(HOST, suite, case, records("fp16", "int4pack", suite=suite, case=case))
    assert (library.costs, library.note) == ({}, "")  # it launches no Triton kernel
    assert unseen.costs == {}
    assert unseen.note.startswith("no compile: cannot be followed without a GPU")


def test_a_tree_that_cannot_be_traced_says_why(tmp_path):
    lost = CompileCosts(WorkerSpec(tmp_path, ("kernels",), tmp_path / "benchmarks"))
    [record] = lost.added(HOST, SUITE, CASE, records("gemv"))
    assert record.note.startswith("no compile: tracing this commit failed: ")
    lost.close()
