"""Every variant of every grouped operation against its suite's reference; Triton through the interpreter, in fp16.

With LOCKSTEP_TEST_GPU set the same tests run on a GPU.
"""

import dataclasses
import os
from functools import partial

import pytest
import torch

from benchmarks import grouped as suites
from kernels import grouped, grouped_gated, grouped_tma, grouped_ways
from kernels.grouped_products import TMA, TRITON
from lockstep.check import Checker, WrongResult
from lockstep.compiling import compile_in_subprocess
from lockstep.family import Family, load_family
from lockstep.inputs import Draw, map_tensors, tensors_of
from lockstep.suite import Case, bind

SUITES = {suite.op: suite for suite in (suites.LINEAR, suites.LINEAR_TRAIN, suites.MLP, suites.MLP_TRAIN)}
FAMILIES = {op: load_family(suite) for op, suite in SUITES.items()}
VARIANTS = [(op, variant) for op, family in FAMILIES.items() for variant in family.variants]
DEVICE = "cuda" if os.environ.get("LOCKSTEP_TEST_GPU") else "cpu"
LAYOUTS = pytest.mark.parametrize("ragged", [False, True], ids=["even", "ragged"])


def halved(op):
    """The suite with fp16 tensors: bf16 is silently wrong under the interpreter."""

    def in_half(function):
        def drawn(**given):
            value = function(**bind(function, given))
            return map_tensors(value, lambda tensor: tensor.half() if tensor.is_floating_point() else tensor)

        return drawn

    return dataclasses.replace(SUITES[op], inputs=in_half(SUITES[op].inputs), outputs=in_half(SUITES[op].outputs))


def few_multiprocessors(monkeypatch):
    """Each program of a persistent kernel works through several tiles."""
    for module in (grouped_tma, grouped_gated):
        monkeypatch.setattr(module, "sm_count", lambda device: 3)


def shape(op, B, G, K, width, ragged):
    return Case(B=B, G=G, K=K, **{"N" if op.startswith("linear") else "H": width}, ragged=ragged)


def arguments(op, ragged=False):
    return halved(op).inputs(draw=Draw(DEVICE, 0), **shape(op, 8, 2, 32, 48, ragged))


@pytest.mark.parametrize(("op", "variant"), VARIANTS)
@LAYOUTS
@pytest.mark.parametrize(("B", "G", "K", "width"), [(37, 3, 40, 88), (140, 1, 72, 136)])
def test_variant_matches_the_reference(op, variant, ragged, B, G, K, width):
    checker = Checker.draw(halved(op), shape(op, B, G, K, width, ragged), DEVICE, seed=1)
    if (ragged and variant == "bmm") or variant == "tma":
        with pytest.raises(NotImplementedError, match=r"equal size|multiple of"):
            checker.error(FAMILIES[op], variant)
    else:
        assert checker.error(FAMILIES[op], variant) < 2e-3


@pytest.mark.parametrize("op", FAMILIES)
@LAYOUTS
@pytest.mark.parametrize(("B", "G"), [(70, 2), (140, 1)])
def test_tma_matches_the_reference(op, ragged, B, G, monkeypatch):
    # Few multiprocessors, so that each program works through several tiles.
    few_multiprocessors(monkeypatch)
    checker = Checker.draw(halved(op), shape(op, B, G, 256, 256, ragged), DEVICE, seed=1)
    assert checker.error(FAMILIES[op], "tma") < 2e-3


@pytest.mark.parametrize("op", FAMILIES)
@pytest.mark.parametrize("variant", ["loop", "bmm", "best"])
@LAYOUTS
def test_quick_cases_run_on_a_cpu_in_bf16(op, variant, ragged):
    [case] = [case for case in SUITES[op].quick if case["ragged"] == ragged]
    if not (ragged and variant == "bmm"):
        assert Checker.draw(SUITES[op], case, "cpu", seed=2).error(FAMILIES[op], variant) < SUITES[op].tolerance


@pytest.mark.parametrize(("op", "variant"), VARIANTS)
def test_variant_writes_where_it_is_told(op, variant, monkeypatch):
    few_multiprocessors(monkeypatch)
    width = 256 if variant == "tma" else 32
    inputs = halved(op).inputs(draw=Draw(DEVICE, 0), **shape(op, 8, 1, width, width, False))
    given = FAMILIES[op].arguments(variant, inputs)
    function = FAMILIES[op].variants[variant]
    fresh = function(**given)
    buffers = map_tensors(fresh, torch.empty_like)
    written = tensors_of(function(**given, out=buffers))
    for expected, buffer, result in zip(tensors_of(fresh), tensors_of(buffers), written, strict=True):
        assert result.data_ptr() == buffer.data_ptr()
        assert torch.equal(result, expected)


@pytest.mark.parametrize("products", [None, TRITON, TMA], ids=["best", "triton", "tma"])
@pytest.mark.parametrize("host_offsets", [(0, 0, 5, 5, 8), (0, 8, 8, 8, 8)])
def test_groups_without_rows(products, host_offsets, monkeypatch):
    few_multiprocessors(monkeypatch)
    width = 256 if products is TMA else 24
    x, weight, grad = (torch.randn(*shape).half().to(DEVICE) for shape in ((8, width), (4, width, width), (8, width)))
    offsets = torch.tensor(host_offsets, dtype=torch.int32, device=DEVICE)
    got = grouped.linear_train(x, weight, grad, offsets, host_offsets, products=products)
    want = suites.linear_train_reference(x, weight, grad, host_offsets)
    for result, expected in zip(got, want, strict=True):
        torch.testing.assert_close(result.float(), expected, rtol=2e-3, atol=2e-2)


def test_ragged_sizes_share_out_every_row():
    for B, G in ((2560, 12), (1024, 4), (256, 12), (32, 4)):
        sizes = suites.sizes(B, G)
        assert sum(sizes) == B * G
        assert len(set(sizes)) == G
        assert min(sizes) > 0


@pytest.mark.parametrize(("op", "index"), [("linear_train", 2), ("mlp_train", 3)])
def test_a_gradient_that_nobody_writes_is_found(op, index):
    def forgets(*, out, **given):
        fresh = list(FAMILIES[op].variants["bmm"](**given))
        fresh[index] = out[index]
        return fresh

    planted = Family({"forgets": forgets}, {})
    with pytest.raises(WrongResult, match=f"output {index}"):
        Checker.draw(halved(op), shape(op, 8, 2, 32, 48, False), DEVICE, seed=3).error(planted, "forgets")


@pytest.mark.parametrize(
    ("op", "name", "change"),
    [
        ("linear", "x", lambda x: x[:-1]),
        ("linear", "x", lambda x: x.t().contiguous().t()),
        ("linear", "weight", lambda weight: weight.transpose(1, 2)),
        ("linear", "weight", torch.Tensor.float),
        ("linear_train", "grad_out", lambda grad: grad[:, 1:]),
        ("mlp", "w_up", lambda weight: weight[:-1]),
        ("mlp", "w_down", lambda weight: weight.transpose(1, 2)),
        ("mlp_train", "grad_out", torch.Tensor.float),
    ],
)
@pytest.mark.parametrize("variant", ["loop", "best"])
def test_a_wrong_argument_is_named(op, name, change, variant):
    given = arguments(op)
    given[name] = change(given[name])
    with pytest.raises(ValueError, match=f"^{name} must"):
        FAMILIES[op].variants[variant](**given)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("offsets", torch.tensor([0, 3, 16]), "^offsets must be int32"),
        ("offsets", torch.tensor([0, 16], dtype=torch.int32), "^offsets must have shape"),
        ("host_offsets", (0, 3, 15), "^host_offsets must be 3 numbers that end at 16"),
        ("host_offsets", None, "^host_offsets must be given"),
        ("out", torch.empty(3), r"^out must have shape \[16, 48\]"),
    ],
)
def test_wrong_offsets_and_out_are_named(name, value, message):
    given = arguments("linear", ragged=True) | {name: value}
    with pytest.raises(ValueError, match=message):
        FAMILIES["linear"].variants["loop"](**given)


def test_a_packed_weight_of_another_shape_is_named():
    given = arguments("mlp")
    with pytest.raises(ValueError, match=r"^w_gate_up must have shape \[2, 32, 96\]"):
        grouped.mlp(**given, w_gate_up=given["w_gate"])


@LAYOUTS
@pytest.mark.parametrize("op", FAMILIES)
def test_what_tma_refuses_goes_to_another_way_unless_it_was_asked_for(op, ragged, monkeypatch):
    checker = Checker.draw(halved(op), shape(op, 37, 3, 40, 88, ragged), DEVICE, seed=1)
    with pytest.raises(NotImplementedError, match="multiple of"):
        checker.error(FAMILIES[op], "tma")
    asked = Family({"best": partial(FAMILIES[op].variants["best"], config="tma")}, FAMILIES[op].prepare)
    with pytest.raises(NotImplementedError):
        checker.error(asked, "best")
    monkeypatch.setattr(grouped_ways, "_best", lambda *_: "tma")
    assert checker.error(FAMILIES[op], "best") < 2e-3


def test_triton_kernels_fit_a_hopper_gpu():
    kernels = compile_in_subprocess(
        "from benchmarks.grouped import LINEAR, MLP, MLP_TRAIN\n"
        "from lockstep.family import load_family\n"
        "from lockstep.inputs import Draw\n"
        "for suite in (MLP_TRAIN, MLP):\n"
        "    for case in suite.cases[2:4] + suite.cases[-1:]:\n"
        "        inputs = suite.inputs(Draw('meta', 0), **case)\n"
        "        family = load_family(suite)\n"
        "        for variant in ('triton', 'tma') if case['K'] == 1024 else ('triton',):\n"
        "            family.variants[variant](**family.arguments(variant, inputs))\n"
    )
    assert {kernel.name for kernel in kernels} >= {"_product", "_grad_weight", "_gated", "_gated_grad"}
    for kernel in kernels:
        assert kernel.stack_bytes == 0, kernel
        assert kernel.shared_bytes <= 227 * 1024, kernel
