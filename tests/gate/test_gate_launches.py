"""What really launches is held against the proof that base and head do the same."""

import random
from dataclasses import asdict

import pytest
import torch
from made_suites import make_suite
from project import make_project

from lockstep import grid
from lockstep.gate.case_verdict import SeriesKey
from lockstep.gate.launches import Launched, Observation, contradiction, observation_from, observe
from lockstep.gate.plan import sample
from lockstep.gate.proof import Proof, confirm
from lockstep.gate.worker_client import GateWorker, Setup
from lockstep.machine_code import CaseCode, KernelCode, MachineCode
from lockstep.suite.variants import Family

#: Recorded of RMSNorm's backward in Liger-Kernel on an H200: the grid is the number of multiprocessors.
FORWARD, BACKWARD = Launched("_forward", (2048,), "6b1d"), Launched("_backward", (132,), "90aa")


def traced(*launches, fingerprint=""):
    kernels = [
        KernelCode(
            one.name, "i", "f:1", {}, MachineCode(fingerprint, 8, 0, 0, loaded=fingerprint) if fingerprint else None
        )
        for one in launches
    ]
    return CaseCode(tuple(kernels), ("given", *(f"launch [{'×'.join(map(str, one.grid))}] ()" for one in launches)))


def ran(*launches, **more):
    return Observation(launches, **more)


TRACE = traced(FORWARD, BACKWARD)
EIGHTH = Launched("_backward", (16,), "90aa")


@pytest.mark.parametrize(
    ("base", "head", "traces", "said"),
    [
        (ran(FORWARD, BACKWARD), ran(FORWARD, BACKWARD), (None, None), ""),
        (ran(FORWARD, BACKWARD), ran(FORWARD, BACKWARD), (TRACE, TRACE), ""),
        (
            ran(FORWARD, BACKWARD),
            ran(FORWARD, EIGHTH),
            (None, None),
            "base launches _backward[132], head _backward[16]",
        ),
        (
            ran(FORWARD, EIGHTH),
            ran(FORWARD, EIGHTH),
            (TRACE, TRACE),
            "base launched _forward[2048], _backward[16]; its",
        ),
        (ran(FORWARD, BACKWARD), ran(FORWARD), (None, None), "base launches 2 kernels, head 1"),
        (
            ran(BACKWARD),
            ran(Launched("_backward", (132,), "77ff")),
            (None, None),
            r"_backward has other machine code in head (90aa → 77ff)",
        ),
        (
            ran(BACKWARD),
            ran(BACKWARD),
            (traced(BACKWARD), traced(BACKWARD, fingerprint="77ff")),
            "head loaded other machine code of _backward",
        ),
        (ran(calls=("aten.mm",)), ran(calls=("aten.mm", "aten.add")), (None, None), "base calls 1 operators"),
        (ran(calls=("aten.mm",)), ran(calls=("aten.bmm",)), (None, None), "base calls aten.mm, head aten.bmm"),
        (ran(error="OutOfMemoryError"), ran(error="OutOfMemoryError"), (None, None), ""),
        (ran(FORWARD), ran(error="RuntimeError: broken"), (None, None), "head fails: RuntimeError: broken"),
        (ran(), ran(), (TRACE, TRACE), "base launched nothing; its trace has _forward[2048], _backward[132]"),
    ],
)
def test_a_difference_contradicts(base, head, traces, said):
    found = contradiction(base, head, traces)
    assert found.startswith(said) if said else found == ""


def test_a_kernel_that_tunes_itself_launches_one_of_its_configurations():
    wide, narrow = Launched("tuned", (4,), "a"), Launched("tuned", (8,), "b")
    trace = traced(FORWARD, wide, narrow, BACKWARD)
    assert contradiction(ran(FORWARD, narrow, BACKWARD), ran(FORWARD, narrow, BACKWARD), (trace, trace)) == ""
    assert contradiction(ran(FORWARD, BACKWARD), ran(FORWARD, BACKWARD), (trace, trace)) != ""
    other = Launched("tuned", (16,), "c")
    assert contradiction(ran(FORWARD, other, BACKWARD), ran(FORWARD, other, BACKWARD), (trace, trace)) != ""


def test_what_ran_travels_between_processes():
    one = ran(FORWARD, BACKWARD, calls=("aten.mm",), error="")
    assert observation_from(asdict(one)) == one


def test_every_variant_is_in_the_sample_and_traces_come_first():
    keys = [SeriesKey("a", variant, f"M={n}", l2) for variant in "xyz" for n in range(9) for l2 in ("cold", "warm")]
    picked = sample(keys, lambda key: key.variant == "y", random.Random(1))
    assert sorted(key.variant for key in picked) == ["x", "y", "z"]
    assert picked[0].variant == "y"
    assert picked == sample(keys, lambda key: key.variant == "y", random.Random(1))
    assert picked != sample(keys, lambda key: key.variant == "y", random.Random(2))


def test_torchs_operators_are_seen_where_they_really_run(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # torch sets it with the first mode that it enters
    suite = make_suite(cases=grid(M=2), quick=grid(M=2), draw=lambda new, M: {"x": new.normal(M, M)})

    def backward(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(x * x, x, torch.ones_like(x))

    family = Family(
        {"plain": lambda x: x @ x, "other": lambda x: x + x, "fails": lambda x: x.nope, "train": backward}, {}
    )
    plain, other, fails, train = (
        observe(suite, suite.cases[0], family, name, "cpu", 1, calls=True) for name in family.variants
    )
    assert [call.partition("(")[0] for call in plain.calls] == ["aten.mm.default"]
    assert contradiction(plain, plain) == ""
    assert "aten.add" in contradiction(plain, other)
    assert "head fails: AttributeError" in contradiction(plain, fails)
    assert sum("aten.mul" in call for call in train.calls) == 3


ADAPTER = """
    import torch


    def train(function, leaves, *grads):
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        outputs = (function(*leaves),)
        grads = torch.autograd.grad(outputs, leaves, grads or None)
        return tuple(one.detach().reshape(one.shape or (1,)) for one in outputs) + grads


    class Normalized(torch.autograd.Function):
        @staticmethod
        def forward(context, x, weight):
            scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            context.save_for_backward(x, weight, scale)
            return x * scale * weight

        @staticmethod
        def backward(context, dy):
            x, weight, scale = context.saved_tensors
            unit, along = x * scale, dy * weight
            return scale * (along - unit * (along * unit).mean(-1, keepdim=True)), (dy * unit).sum(0)


    def plain(x, weight):
        return train(lambda x, weight: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight, (x, weight), x)


    def fused(x, weight):
        return train(Normalized.apply, (x, weight), x)


    def broken(x, weight):
        raise RuntimeError("no such kernel")


    def unsupported(x, weight):
        raise NotImplementedError("not for this device")


    VARIANTS = {"plain": plain, "fused": fused, "broken": broken, "unsupported": unsupported}
    """

SUITE = """
    from lockstep import Cost, Suite, grid


    class Norm(Suite):
        module = "toy.norm"
        baseline = "plain"
        cases = quick = grid(T=4, H=8)

        def draw(self, new, T, H):
            return {"x": new.normal(T, H, dtype="float32"), "weight": new.normal(H, dtype="float32")}

        def reference(self, x, weight):
            import torch

            x, weight = (one.double().detach().requires_grad_() for one in (x, weight))
            y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
            return (y.detach(), *torch.autograd.grad(y, (x, weight), x.detach()))

        def cost(self, T, H):
            return Cost(T * H, T * H)
    """


@pytest.fixture
def setup(tmp_path):
    for name in ("base", "head"):
        project = make_project(tmp_path / name)
        project.write("toy/norm.py", ADAPTER)
        project.write("benchmarks/norm.py", SUITE)
    base, head = tmp_path / "base", tmp_path / "head"
    return Setup(base, head, ("toy",), head / "benchmarks", ("norm",), seed=1, quick=True)


def test_a_worker_calls_forward_and_backward_of_both_sides(setup):
    worker = GateWorker(setup, 60.0)
    try:
        found = {
            variant: worker.observe(SeriesKey("norm", variant, "T=4,H=8", "warm"), calls=True)
            for variant in ("plain", "fused", "broken", "unsupported")
        }
    finally:
        worker.close(patience_s=1.0)
    for variant in ("plain", "fused"):
        base, head = found[variant]
        assert (base.error, head.error) == ("", "")
        assert base == head
        assert any("aten.rsqrt" in call for call in base.calls)
    assert found["plain"] != found["fused"]
    assert [one.error for one in found["broken"]] == ["RuntimeError: no such kernel"] * 2
    assert [(one.error, one.refused) for one in found["unsupported"]] == [
        ("NotImplementedError: not for this device", True)
    ] * 2


KEYS = [SeriesKey("a", variant, "M=1", "cold") for variant in ("x", "y", "z")]
ALL = Proof(frozenset({"a"}))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "proofs checked on this GPU: 3 of 3 proved cases called, all launch the same"),
        ({"y": (ran(FORWARD), ran(BACKWARD))}, "a proof was wrong: a y M=1: base launches _forward[2048]"),
        (
            {"y": (ran(error="OutOfMemoryError: no room"),) * 2},
            "a y M=1 could not be called: OutOfMemoryError: no room",
        ),
        ({"y": (ran(error="NotImplementedError: no", refused=True),) * 2}, "3 of 3 proved cases called"),
    ],
)
def test_a_sample_that_is_not_confirmed_confirms_no_proof(answers, said):
    def call(key, calls):
        return answers.get(key.variant, (ran(FORWARD), ran(FORWARD)))

    proof, note = confirm(ALL, KEYS, KEYS, call, random.Random(1), float("inf"))
    assert said in note
    confirmed = "could not" not in said and "wrong" not in said
    assert [proof.same(key) for key in KEYS] == [confirmed] * 3
    assert note.endswith("and all are measured") is not confirmed


@pytest.mark.parametrize(("held", "until"), [([], float("inf")), (KEYS, 0.0)])
def test_no_called_case_confirms_no_proof(held, until):
    def call(key, calls):
        raise AssertionError("no case may be called")

    proof, note = confirm(ALL, KEYS, held, call, random.Random(1), until)
    assert "no proved case was called" in note
    assert not any(map(proof.same, KEYS))
