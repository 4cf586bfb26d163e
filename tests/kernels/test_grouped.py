"""Every variant of every grouped operation against its suite's reference; Triton through the interpreter, in fp16.

With LOCKSTEP_TEST_GPU set the same tests run on a GPU.
"""

import os
from functools import partial

import pytest
import torch
from compiling import compile_in_subprocess
from made_suites import changed_suite

from benchmarks import grouped as suites
from kernels import grouped
from kernels.common import warp_specialized_product as specialized
from kernels.grouped import dispatch, launch_plan
from kernels.grouped import gated_kernels as grouped_gated
from kernels.grouped import tma_kernels as grouped_tma
from kernels.grouped.backends import TMA, TRITON
from kernels.grouped.group_layouts import Groups
from kernels.grouped.packed import mlp_train_packed
from lockstep.suite.case import Case
from lockstep.suite.evaluate import bind
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.suite.variants import Family, load_family
from lockstep.timing.checks.check import Checker, WrongResult

SUITES = {suite.op: suite for suite in (suites.Linear(), suites.LinearTrain(), suites.Mlp(), suites.MlpTrain())}
FAMILIES = {op: load_family(suite) for op, suite in SUITES.items()}
VARIANTS = [(op, variant) for op, family in FAMILIES.items() for variant in family.variants]
DEVICE = "cuda" if os.environ.get("LOCKSTEP_TEST_GPU") else "cpu"
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="Gluon has no interpreter")
LAYOUTS = pytest.mark.parametrize("ragged", [False, True], ids=["even", "ragged"])


def halved(op):
    """The suite with fp16 tensors: bf16 is silently wrong under the interpreter."""

    def in_half(method):
        def drawn(new, **axes):
            value = method(new, **bind(method, axes, leading=1))
            return map_tensors(value, lambda tensor: tensor.half() if tensor.is_floating_point() else tensor)

        return drawn

    return changed_suite(SUITES[op], draw=in_half(SUITES[op].draw), buffers=in_half(SUITES[op].buffers))


def few_multiprocessors(monkeypatch):
    """Each program of a persistent kernel works through several tiles."""
    for module in (grouped_tma, grouped_gated, specialized):
        monkeypatch.setattr(module, "sm_count", lambda device: 3)


def shape(op, B, G, K, width, ragged):
    return Case(B=B, G=G, K=K, **{"N" if op.startswith("linear") else "H": width}, ragged=ragged)


def arguments(op, ragged=False):
    return halved(op).draw(Draw(DEVICE, 0), **shape(op, 8, 2, 32, 48, ragged))


@pytest.mark.parametrize(("op", "variant"), VARIANTS)
@LAYOUTS
@pytest.mark.parametrize(("B", "G", "K", "width"), [(37, 3, 40, 88), (140, 1, 72, 136)])
def test_variant_matches_the_reference(op, variant, ragged, B, G, K, width):
    checker = Checker.draw(halved(op), shape(op, B, G, K, width, ragged), DEVICE, seed=1)
    even_only, ragged_only = variant == "bmm", variant == "grouped_mm"
    if (even_only if ragged else ragged_only) or variant in ("tma", "warp_specialized"):
        with pytest.raises(NotImplementedError, match=r"equal size|multiple of|Hopper GPU|rows of a group together"):
            checker.accuracy(FAMILIES[op], variant)
    else:
        assert checker.accuracy(FAMILIES[op], variant).norm < 2e-3


@pytest.mark.parametrize("op", FAMILIES)
@LAYOUTS
@pytest.mark.parametrize(("B", "G"), [(70, 2), (140, 1)])
def test_tma_matches_the_reference(op, ragged, B, G, monkeypatch):
    # Few multiprocessors, so that each program works through several tiles.
    few_multiprocessors(monkeypatch)
    checker = Checker.draw(halved(op), shape(op, B, G, 256, 256, ragged), DEVICE, seed=1)
    assert checker.accuracy(FAMILIES[op], "tma").norm < 2e-3


def ways_of(op):
    """What may be tuned of the variant "warp_specialized"."""
    return grouped.CANDIDATES[f"{op}.warp_specialized"](70, 2, 256, 256).configs


@needs_gpu
@pytest.mark.parametrize(
    ("op", "config", "ragged"),
    [
        (op, config, ragged)
        for op in FAMILIES
        for config in ways_of(op)
        for ragged in ([False, True] if op.startswith("linear") else [False])
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
@pytest.mark.parametrize(("B", "G"), [(70, 2), (140, 1), (2560, 3)])
def test_warp_specialized_matches_the_reference(op, config, B, G, ragged, monkeypatch):
    few_multiprocessors(monkeypatch)
    checker = Checker.draw(SUITES[op], shape(op, B, G, 256, 512, ragged), DEVICE, seed=1)
    asked = partial(FAMILIES[op].variants["warp_specialized"], config=config)
    rival = Family({"warp_specialized": asked}, FAMILIES[op].prepare)
    assert checker.accuracy(rival, "warp_specialized").norm < 1e-2


@needs_gpu
@pytest.mark.parametrize("sizes", [[0, 1, 63, 64, 65, 127, 128, 129], [5], [0, 0, 700, 0], [64, 192, 320]])
@pytest.mark.parametrize("config", specialized.TILE_CONFIGS)
def test_a_ragged_tile_stores_the_rows_of_its_own_group_alone(config, sizes):
    # Most programs of a GPU have no tile here.
    ends = torch.tensor([0, *sizes]).cumsum(0)
    new = Draw(DEVICE, 0)
    x, weight = new.normal(int(ends[-1]), 256), new.normal(len(sizes), 256, 512, scale=1 / 16)
    out = torch.full((len(x) + 64, 512), 7.0, dtype=x.dtype, device=DEVICE)
    groups = Groups(len(x), len(sizes), ends.int().to(DEVICE), None)
    launch_plan.product(config, x, weight, groups, out[: len(x)])
    exact = torch.cat([part.float() @ own.float() for part, own in zip(x.split(sizes), weight, strict=True)])
    assert (out[: len(x)].float() - exact).norm() < 4e-3 * exact.norm()
    assert (out[len(x) :] == 7).all()


@needs_gpu
def test_warp_specialized_may_follow_itself_at_once():
    # Launches that do not read what the one ahead writes begin early: results must not depend on when.
    case = Checker.draw(SUITES["mlp_train"], shape("mlp_train", 512, 4, 1024, 1024, False), DEVICE, seed=1)
    given = FAMILIES["mlp_train"].arguments("warp_specialized", case.inputs)
    for config in ways_of("mlp_train"):
        first = mlp_train_packed(**given, config=config)
        for _ in range(10):
            for one, again in zip(first, mlp_train_packed(**given, config=config), strict=True):
                assert torch.equal(one, again), config


@needs_gpu
def test_the_activation_is_as_exact_as_it_says():
    # Weights that pass one column of x on as gate, and another, of ones, as up.
    gate = torch.linspace(-16, 16, 4096, device=DEVICE).half()
    x = torch.zeros(4096, 256, device=DEVICE, dtype=torch.half)
    x[:, 0], x[:, 1] = gate, 1
    w_gate, w_up = (torch.zeros(1, 256, 256, device=DEVICE, dtype=torch.half) for _ in range(2))
    w_gate[0, 0], w_up[0, 1] = 1, 1
    hidden = torch.empty_like(x)
    packed = grouped.pack_gate_up(w_gate, w_up)["w_gate_up"]
    launch_plan.gated("k64s3b4", x, packed, Groups(4096, 1, None, None), hidden)
    exact = torch.nn.functional.silu(gate.double())[:, None]
    # A sigmoid that is off by 2^-12, and the result rounded to 11 bits.
    allowed = gate.double().abs()[:, None] * 2**-12 + exact.abs() * 2**-11 + 2**-24
    assert ((hidden.double() - exact).abs() <= allowed).all()


def test_what_warp_specialized_refuses_is_named():
    groups = Groups(8, 2, None, None)
    x, weight = torch.zeros(8, 256).half(), torch.zeros(2, 256, 256).half()
    ragged = Groups(8, 2, torch.tensor([0, 3, 8], dtype=torch.int32), None)
    with pytest.raises(NotImplementedError, match="16-bit"):
        launch_plan.product("k32s7b3", x.float(), weight.float(), groups, x.float())
    with pytest.raises(NotImplementedError, match="groups of equal size"):
        launch_plan.gated("k32s7b3", x, weight, ragged, x)
    with pytest.raises(NotImplementedError, match="without rows"):
        launch_plan.product("k32s7b3", x[:0], weight, Groups(0, 2, None, None), x[:0])
    with pytest.raises(NotImplementedError, match="begin at a multiple of 16 bytes"):
        specialized.described(torch.zeros(257).half()[1:].view(1, 256), (1, 256), (64, 64))
    with pytest.raises(ValueError, match="the backend 'k16' cannot compute this launch: choose tma, k64s3b4"):
        launch_plan.product("k16", x, weight, groups, x)
    with pytest.raises(ValueError, match="the backend 'bmm' cannot compute this launch"):
        launch_plan.gated("bmm", x, weight, groups, x)
    kernels = compile_in_subprocess(
        "from kernels.grouped import launch_plan as parts\n"
        "from kernels.grouped.group_layouts import Groups\n"
        "groups = Groups(8, 2, None, None)\n"
        "def refusal(part, function, *shapes):\n"
        "    given = [torch.empty(shape, device='meta', dtype=torch.half) for shape in shapes]\n"
        "    try: function(part, *given[:2], groups, *given[2:])\n"
        "    except NotImplementedError as error: return str(error)\n"
        "assert 'N to be a multiple of 256, got 128' in refusal("
        "'k64s4b2', parts.product, (8, 256), (2, 256, 128), (8, 128))\n"
        "assert 'K to be a multiple of 64, got 32' in refusal("
        "'k64s4b2', parts.product, (8, 32), (2, 32, 256), (8, 256))\n"
        "assert 'sums of more than 64 terms for this config, got 64' in refusal("
        "'k64s4b2', parts.product, (8, 64), (2, 64, 256), (8, 256))\n"
        "assert 'K to be a multiple of 128, got 64' in refusal("
        "'k64s4b2', parts.grad_weight, (8, 64), (8, 256), (2, 64, 256))\n"
        "assert 'an even number of buffers, got 3' in refusal("
        "'k32s7b3', lambda part, a, b, groups, c, d: parts.gated_grad(part, a, b, c, groups, d), "
        "(8, 256), (2, 256, 256), (8, 512), (8, 512))\n"
    )
    assert kernels == []


@pytest.mark.parametrize("op", FAMILIES)
@pytest.mark.parametrize("variant", ["loop", "bmm", "best"])
@LAYOUTS
def test_quick_cases_run_on_a_cpu_in_bf16(op, variant, ragged):
    [case] = [case for case in SUITES[op].quick if case["ragged"] == ragged]
    if variant != ("bmm" if ragged else "grouped_mm"):
        assert Checker.draw(SUITES[op], case, "cpu", seed=2).accuracy(FAMILIES[op], variant).norm < 1e-2


@pytest.mark.parametrize(("op", "variant"), VARIANTS)
def test_variant_writes_where_it_is_told(op, variant, monkeypatch):
    few_multiprocessors(monkeypatch)
    if variant == "warp_specialized" and DEVICE == "cpu":
        pytest.skip("Gluon has no interpreter")
    if variant == "grouped_mm":
        pytest.skip("torch._grouped_mm allocates its result")
    width = 256 if variant in ("tma", "warp_specialized") else 32
    inputs = halved(op).draw(Draw(DEVICE, 0), **shape(op, 8, 1, width, width, False))
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
    want = suites.LinearTrain().reference(x, weight, grad, host_offsets)
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
        Checker.draw(halved(op), shape(op, 8, 2, 32, 48, False), DEVICE, seed=3).accuracy(planted, "forgets")


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
@pytest.mark.parametrize("way", ["tma", "warp_specialized"])
def test_what_a_way_refuses_goes_to_another_unless_it_was_asked_for(way, op, ragged, monkeypatch):
    checker = Checker.draw(halved(op), shape(op, 37, 3, 40, 88, ragged), DEVICE, seed=1)
    with pytest.raises(NotImplementedError, match=r"multiple of|groups of equal size|Hopper GPU"):
        checker.accuracy(FAMILIES[op], way)
    asked = Family({"best": partial(FAMILIES[op].variants["best"], config=way)}, FAMILIES[op].prepare)
    with pytest.raises(NotImplementedError):
        checker.accuracy(asked, "best")
    monkeypatch.setattr(dispatch, "_best", lambda *_: way)
    assert checker.accuracy(FAMILIES[op], "best").norm < 2e-3


@pytest.mark.parametrize("op", FAMILIES)
def test_no_rows_at_all_are_no_work(op, monkeypatch):
    monkeypatch.setattr(dispatch, "_best", lambda *_: "warp_specialized")
    checker = Checker.draw(halved(op), shape(op, 1, 2, 256, 256, False), DEVICE, seed=1)
    given = FAMILIES[op].arguments("best", checker.inputs)
    empty = {name: value[:0] if name in ("x", "grad_out") else value for name, value in given.items()}
    results = tensors_of(FAMILIES[op].variants["best"](**empty))
    assert results[0].shape[0] == 0
    # Gradients of weights are sums over rows.
    assert all((result == 0).all() for result in results)


def test_triton_kernels_fit_a_hopper_gpu():
    kernels = compile_in_subprocess(
        "from benchmarks.grouped import Mlp, MlpTrain\n"
        "from lockstep.suite.variants import load_family\n"
        "from lockstep.suite.inputs import Draw\n"
        "for suite in (MlpTrain(), Mlp()):\n"
        "    for case in suite.cases[2:4] + suite.cases[-1:]:\n"
        "        inputs = suite.draw(Draw('meta', 0), **case)\n"
        "        family = load_family(suite)\n"
        "        for variant in ('triton', 'tma') if case['K'] == 1024 else ('triton',):\n"
        "            family.variants[variant](**family.arguments(variant, inputs))\n"
    )
    assert {kernel.name for kernel in kernels} >= {"_product", "_grad_weight", "_gated", "_gated_grad"}
    for kernel in kernels:
        assert kernel.stack_bytes == 0, kernel
        assert kernel.shared_bytes <= 227 * 1024, kernel


def test_warp_specialized_kernels_fit_a_hopper_gpu():
    kernels = compile_in_subprocess(
        "from benchmarks.grouped import LinearTrain, Mlp, MlpTrain\n"
        "from kernels.grouped import CANDIDATES\n"
        "from lockstep.suite.variants import load_family\n"
        "from lockstep.suite.inputs import Draw\n"
        "for suite in (LinearTrain(), Mlp(), MlpTrain()):\n"
        "    for case in suite.cases:\n"
        "        if case['K'] == 1024 and (not case['ragged'] or suite.op == 'linear_train'):\n"
        "            inputs = suite.draw(Draw('meta', 0), **case)\n"
        "            family = load_family(suite)\n"
        "            for variant in ('warp_specialized', 'best'):\n"
        "                family.variants[variant](**family.arguments(variant, inputs))\n"
    )
    ours = [kernel for kernel in kernels if kernel.name == "_specialized"]
    # linear_train: three products by two cuts; mlp and mlp_train: gated, kept and what the table's parts need.
    assert len(ours) >= 14
    for kernel in ours:
        assert kernel.stack_bytes == 0, kernel
        assert 192 * 1024 < kernel.shared_bytes <= 227 * 1024, kernel
