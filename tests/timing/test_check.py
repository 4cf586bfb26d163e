"""The check before timing: what is wrong is not timed."""

import math

import pytest
import torch
from made_suites import make_suite as suite_of

from lockstep import Case, Cost, Suite, grid
from lockstep.suite.definition import SuiteError
from lockstep.suite.missing_files import TREE_PREFIX
from lockstep.suite.variants import Family
from lockstep.timing.checks.baseline_as_reference import take_as_standard
from lockstep.timing.checks.check import Checker, WrongResult, brief
from lockstep.timing.rules.rule import Disqualified, Rule


def make_suite(**changes):
    parts = {
        "cases": grid(M=8, N=4),
        "quick": grid(M=8, N=4),
        "draw": lambda new, M, N: {"x": new.normal(M, N, dtype="float32")},
        "buffers": lambda new, M, N: new.empty(M, N, dtype="float32"),
        "reference": lambda x: 2 * x.double(),
        "cost": lambda M, N: Cost(M * N, 8 * M * N),
        "tolerance": 1e-3,
    }
    return suite_of(**{**parts, **changes})


def error(variant, prepare=None, **changes):
    checker = Checker.draw(make_suite(**changes), Case(M=8, N=4), "cpu", seed=1)
    return checker.accuracy(Family({"it": variant}, {"it": prepare} if prepare else {}), "it").norm


def test_a_file_that_a_commits_tree_lacks_is_explained(tmp_path):
    """The code of a commit runs in a folder that holds its packages and nothing beside them."""
    tree = tmp_path / f"{TREE_PREFIX}x"
    with pytest.raises(FileNotFoundError) as missing:
        (tree / "n.txt").read_text()
    assert "; only the tracked files of a commit's packages are unpacked" in brief(missing.value)
    with pytest.raises(FileNotFoundError) as elsewhere:
        (tmp_path / "n.txt").read_text()
    assert brief(elsewhere.value).endswith("n.txt'")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8])
def test_an_exact_result_in_a_narrower_dtype_than_the_buffers_or_inputs_is_wrong(dtype):
    reference = {"reference": lambda x: x.double().sign()}
    for buffers in ({}, {"buffers": lambda new: None}):
        with pytest.raises(WrongResult, match=f"of {dtype}, narrower than torch.float32"):
            error(lambda x: x.sign().to(dtype), **reference, **buffers)
        assert error(lambda x: x.double().sign(), **reference, **buffers) == 0.0


def test_a_dtype_that_the_reference_or_the_buffers_have_is_asked_for():
    assert error(lambda x: x.signbit(), buffers=lambda new: None, reference=lambda x: x.signbit()) == 0.0
    half = {"buffers": lambda new, M, N: new.empty(M, N, dtype="float16"), "reference": lambda x: x.double().sign()}
    assert error(lambda x: x.half().sign(), **half) == 0.0


def test_the_error_is_relative_to_the_references_norm():
    assert error(lambda x: 2 * x) == 0.0
    assert error(lambda x: 2.0005 * x) == pytest.approx(0.00025, rel=1e-3)
    small = {"reference": lambda x: 2e-6 * x.double()}
    assert error(lambda x: 2.0005e-6 * x, **small) == pytest.approx(0.00025, rel=1e-2)
    assert error(lambda x: 2 * x, tolerance=0.0) == 0.0


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0)])
def test_a_loss_and_an_empty_output_are_outputs_like_any_other(shape):
    def loss(x):
        return (x.double().sum() * torch.ones(shape, dtype=torch.float64)).float()

    parts = {"buffers": lambda new: new.empty(*shape, dtype="float32"), "reference": loss, "tolerance": 1e-6}
    assert error(loss, **parts) == 0.0
    assert error(lambda x, *, out: out.copy_(loss(x)), **parts) == 0.0
    if shape in ((), (1,)):
        with pytest.raises(WrongResult, match=r"output 0 is off by 0\.01 of its norm"):
            error(lambda x: 1.01 * loss(x), **parts)
        with pytest.raises(WrongResult, match="output 0 is NaN or infinite in 1 elements"):
            error(lambda x, *, out: out, **parts)


def test_a_variant_that_can_write_allocates_where_the_suite_has_no_outputs():
    assert error(lambda x, *, out=None: 2 * x if out is None else out, buffers=lambda new: None) == 0.0


def test_a_reason_is_the_first_line_of_an_error():
    assert brief(RuntimeError("\nno room\nfor it")) == "RuntimeError: no room"
    assert brief(KeyError()) == "KeyError"


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton finds the GPU")
def test_a_triton_kernel_without_a_gpu_is_not_available():
    triton = pytest.importorskip("triton")

    def launch(x):
        return triton.runtime.driver.active.get_current_device()

    with pytest.raises(NotImplementedError, match="Triton finds no GPU here"):
        error(launch)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds the GPU")
def test_a_variant_that_asks_torch_for_a_gpu_is_not_available_without_one():
    """An autotuner does, to measure its configurations."""

    def launch(x):
        torch.cuda.synchronize()
        return 2 * x

    with pytest.raises(NotImplementedError, match="torch finds no GPU here"):
        error(launch)


def test_an_operator_that_has_no_code_for_a_cpu_is_not_available_there():
    library = torch.library.Library("toycheck", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: 2 * x, "CUDA")
    with pytest.raises(NotImplementedError, match="an operator finds no GPU here"):
        error(lambda x: torch.ops.toycheck.double(x.cpu()))


@pytest.mark.parametrize(
    "said",
    [
        RuntimeError("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"),
        RuntimeError("No CUDA GPUs are available"),
    ],
)
def test_torch_with_cuda_says_it_in_other_words(said):
    def launch(x):
        raise said

    with pytest.raises(NotImplementedError, match="torch finds no GPU here"):
        error(launch)


def test_another_assertion_is_an_error():
    def launch(x):
        raise AssertionError("K must be even")

    with pytest.raises(AssertionError, match="K must be even"):
        error(launch)


@pytest.mark.parametrize("part", ["draw", "buffers", "reference"])
def test_an_error_of_the_suite_is_not_the_variants(part):
    def broken(*drawn, **given):
        raise KeyError("rows")

    with pytest.raises(SuiteError, match=f"^{part} of suite thing failed: KeyError: 'rows'"):
        error(lambda x: 2 * x, **{part: broken})


def test_an_error_above_the_tolerance_is_told_with_its_size():
    with pytest.raises(WrongResult, match=r"^it output 0 is off by 0\.005 of its norm at M=8,N=4, accepted is 0\.001$"):
        error(lambda x: 2.01 * x)


def test_what_nobody_wrote_shows_even_if_it_was_right_before():
    checker = Checker.draw(make_suite(), Case(M=8, N=4), "cpu", seed=1)

    def right(x, *, out):
        return torch.mul(x, 2, out=out)

    def leaves_a_row(x, *, out):
        torch.mul(x[1:], 2, out=out[1:])
        return out

    family = Family({"right": right, "lazy": leaves_a_row, "idle": lambda x, *, out: out}, {})
    assert checker.accuracy(family, "right").norm == 0.0
    for name in ("lazy", "idle"):
        with pytest.raises(WrongResult, match=r"is NaN or infinite in (4|32) elements"):
            checker.accuracy(family, name)


def test_integers_nobody_wrote_show_as_well():
    integers = {
        "draw": lambda new, M, N: {"x": new.integers(M, N, low=0, high=9)},
        "buffers": lambda new, M, N: new.empty(M, N, dtype="int32"),
    }
    assert error(lambda x, *, out: torch.mul(x, 2, out=out), **integers) == 0.0
    with pytest.raises(WrongResult, match="off by"):
        error(lambda x, *, out: out, **integers)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_single_bad_element_is_wrong(value):
    def variant(x):
        result = 2 * x
        result[3, 1] = value
        return result

    with pytest.raises(WrongResult, match="output 0 is NaN or infinite in 1 elements at M=8,N=4, unlike the reference"):
        error(variant)


def test_a_reference_of_zeros_asks_for_zeros():
    zeros = {"reference": lambda x: 0 * x.double()}
    assert error(lambda x: 0 * x, **zeros) == 0.0
    with pytest.raises(WrongResult):
        error(lambda x: 0 * x + 1, **zeros)


def test_an_output_of_another_shape_is_wrong():
    with pytest.raises(WrongResult, match=r"it output 0 has shape \[4, 8\], expected \[8, 4\]"):
        error(lambda x: (2 * x).t())


@pytest.mark.parametrize(("variant", "count"), [(lambda x: None, 0), (lambda x: (2 * x, x), 2)])
def test_another_number_of_outputs_is_wrong(variant, count):
    with pytest.raises(WrongResult, match=f"it returned {count} tensors, the reference has 1"):
        error(variant)


def test_each_of_several_outputs_counts():
    two = {"reference": lambda x: (x.double(), 2 * x.double())}
    assert error(lambda x: (x.clone(), 2.0005 * x), **two) == pytest.approx(0.00025, rel=1e-3)
    with pytest.raises(WrongResult, match=r"output 1 is off by 0\.005"):
        error(lambda x: (x, 2.01 * x), **two)
    with pytest.raises(WrongResult, match="output 0 is off"):
        error(lambda x: (2 * x, x), **two)


def test_rows_beyond_one_chunk_are_compared_too():
    tall = {"draw": lambda new: {"x": new.normal(9000, 2, dtype="float32")}, "buffers": lambda new: None}

    def variant(x):
        result = 2 * x
        result[8999] += 10
        return result

    with pytest.raises(WrongResult):
        error(variant, **tall)


def test_the_reference_gets_axes_and_inputs_and_variants_what_they_name():
    both = {"reference": lambda M, x: M * x.double()}
    assert error(lambda x, half: 16 * half, lambda x: {"half": x / 2}, **both) == 0.0


def test_not_supported_is_not_wrong():
    def variant(x):
        raise NotImplementedError("needs Blackwell")

    with pytest.raises(NotImplementedError, match="needs Blackwell"):
        error(variant)


def test_inputs_are_random_and_repeat_with_the_seed():
    draw = [Checker.draw(make_suite(), Case(M=8, N=4), "cpu", seed).inputs["x"] for seed in (1, 1, 2)]
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])
    assert draw[0].unique().numel() == 32


def test_paths_of_a_commits_tree_are_told_relative_to_it():
    error = ImportError("cannot import name 'gone' from 'toy' (/tmp/lockstep-tree-a1b2c3/toy/__init__.py)")
    assert brief(error) == "ImportError: cannot import name 'gone' from 'toy' (toy/__init__.py)"
    assert brief(ValueError("'/var/x/lockstep-tree-ab/toy/a.txt' is empty")) == "ValueError: 'toy/a.txt' is empty"


def by_default(variant, **changes):
    return error(variant, tolerance=None, **changes)


def test_by_default_a_result_is_as_exact_as_the_dtype_that_the_suite_asks_for():
    """A variant does not choose the dtype, neither with buffers nor without."""
    assert by_default(lambda x: 2 * x) == 0.0
    for buffers in (lambda new, M, N: new.empty(M, N, dtype="float32"), lambda new: None):
        for coarse in (lambda x: 2 * x.bfloat16(), lambda x: 2 * x.bfloat16().float()):
            with pytest.raises(WrongResult, match=r"is off by 0\.00\d+ of its norm .*, accepted is 3\.07e-05"):
                by_default(coarse, buffers=buffers)
    halves = {"buffers": lambda new, M, N: new.empty(M, N)}
    assert 0 < by_default(lambda x: 2 * x.bfloat16(), **halves) < 1e-2
    with pytest.raises(WrongResult, match=r"accepted is 0\.0101"):
        by_default(lambda x: 2 * x.to(torch.float8_e4m3fn).bfloat16(), **halves)


def test_the_length_of_the_sums_decides_in_float32():
    off = {"reference": lambda x: 2 * x.double() * (1 + 1e-5)}
    assert by_default(lambda x: 2 * x, **off) == pytest.approx(1e-5, rel=1e-2)
    with pytest.raises(WrongResult, match=r"is off by 1e-05 of its norm .*, accepted is 1\.11e-06"):
        by_default(lambda x: 2 * x, summands=lambda M, N: 8 * M, **off)
    for wrong in (0, 1.5, None):
        with pytest.raises(SuiteError, match=rf"summands\(\) returned {wrong!r} at M=8,N=4; it must return"):
            by_default(lambda x: 2 * x, summands=lambda wrong=wrong: wrong)


def test_integers_and_booleans_are_exact_by_default():
    whole = {
        "draw": lambda new, M, N: {"x": new.integers(M, N, low=0, high=9)},
        "reference": lambda x: (x.argsort(dim=1), x > 4),
    }

    def almost(x):
        indices = x.argsort(dim=1)
        indices[3, 0] += 1
        return indices, x > 4

    def both(new, M, N):
        return new.empty(M, N, dtype="int64"), new.empty(M, N, dtype="bool")

    for buffers in (lambda new: None, both):
        assert by_default(lambda x: (x.argsort(dim=1), x > 4), **whole, buffers=buffers) == 0.0
        with pytest.raises(WrongResult, match=r"output 0 is off by .*, accepted is 0$"):
            by_default(almost, **whole, buffers=buffers)
        with pytest.raises(WrongResult, match=r"output 1 is off by .*, accepted is 0$"):
            by_default(lambda x: (x.argsort(dim=1), x > 5), **whole, buffers=buffers)


def test_one_buffer_for_several_outputs_gives_them_its_dtype():
    two = {"reference": lambda x: (x.double(), 2 * x.double()), "buffers": lambda new: new.empty(64)}
    assert 0 < by_default(lambda x: (x.bfloat16(), 2 * x.bfloat16()), **two) < 1e-2


def test_a_wrong_column_and_a_constant_are_wrong_at_a_loose_tolerance():
    wide = {
        "draw": lambda new: {"x": new.normal(16, 12000, dtype="float32")},
        "buffers": lambda new: new.empty(16, 12000, dtype="float32"),
        "tolerance": 5e-2,
    }

    def lacks_a_column(x):
        result = 2 * x
        result[:, -1] = 0
        return result

    with pytest.raises(WrongResult, match=r"is off by 0\.\d+ of a column's norm at M=8,N=4, accepted is 0\.251"):
        error(lacks_a_column, **wide)
    offset = {**wide, "reference": lambda x: 200 + 2 * x.double()}
    assert error(lambda x: 200 + 2 * x, **offset) < 1e-6
    with pytest.raises(WrongResult, match=r"is off by 1 of its norm around its mean at M=8,N=4, accepted is 0\.5"):
        error(lambda x: torch.full_like(x, 200), **offset)


def test_the_same_bits_twice_are_deterministic():
    calls = []

    def drifts(x):
        calls.append(x)
        return 2 * x + 1e-7 * len(calls)

    def plus_or_minus_zero(x):
        calls.append(x)
        return x * 0 if len(calls) % 2 else x * -0.0

    def steady(x, *, out):
        return torch.mul(x, 2, out=out)

    for factor, variant, same in ((2, steady, True), (2, drifts, False), (0, plus_or_minus_zero, False)):
        suite = make_suite(reference=lambda x, factor=factor: factor * x.double())
        checker = Checker.draw(suite, Case(M=8, N=4), "cpu", seed=1)
        assert checker.check(Family({"it": variant}, {}), "it").deterministic is same


def test_a_further_call_says_where_it_differs():
    changes = iter(
        [lambda x: x, lambda x: x, lambda x: x[..., None], lambda x: x.index_fill(1, torch.tensor([3]), 7.0)]
    )

    def it(x):
        return next(changes)(2 * x)

    with torch.no_grad():
        calls = Checker.draw(make_suite(), Case(M=8, N=4), "cpu", seed=1).repeated(Family({"it": it}, {}), "it")
        assert next(calls) == ""
        assert next(calls).endswith(" differ in output 0: torch.float32 [8, 4] and torch.float32 [8, 4, 1]")
        assert next(calls).endswith(" differ in output 0, in 8 of 32 elements, first at [0, 3]")


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int64", "bool", "complex64"])
def test_bits_of_any_output_are_compared(shape, dtype):
    def ones(x):
        return torch.ones(shape).to(getattr(torch, dtype)).conj()

    def buffers(new, M, N):
        return torch.empty(shape, dtype=getattr(torch, dtype))

    suite = make_suite(reference=lambda x: torch.ones(shape), buffers=buffers)
    assert Checker.draw(suite, Case(M=8, N=4), "cpu", seed=1).check(Family({"it": ones}, {}), "it").deterministic


def test_a_preparation_that_writes_into_an_input_is_refused():
    def prepare(x):
        return {"doubled": x.mul_(2)}

    with pytest.raises(Disqualified, match="wrote into its input x") as refused:
        error(lambda doubled: doubled, prepare)
    assert refused.value.rule == Rule.WRITTEN_INPUT


def _steps(**changes):
    """Errors of variants of a suite that adds to its state and returns the double of its input."""
    parts = {
        "inout": ("state",),
        "buffers": lambda new: None,
        "draw": lambda new, M, N: {
            "x": new.normal(M, N, dtype="float32"),
            "state": new.normal(2, M, N, dtype="float32")[:, :, ::2],
        },
    }
    suite = make_suite(**parts | changes)

    def step(x, state):
        state += x[:, ::2]
        return 2 * x

    def forgets(x, state):
        return 2 * x

    def wrong(x, state):
        state[:, 0] += x[0, ::2]
        return 2 * x

    def ignores(x):
        return 2 * x

    family = Family({"plain": step, "step": step, "forgets": forgets, "wrong": wrong, "ignores": ignores}, {})
    take_as_standard(suite, family)
    checker, errors = Checker.draw(suite, Case(M=8, N=4), "cpu", seed=1), {}
    for name in family.variants:
        try:
            errors[name] = str(checker.check(family, name).deterministic)
        except WrongResult as error:
            errors[name] = error.evidence
    return errors


def _writes(x, state):
    state += x[:, ::2]
    return 2 * x.double()


@pytest.mark.parametrize(
    "reference", [_writes, lambda x: 2 * x.double(), Suite.reference], ids=["in-place", "on-a-copy", "none"]
)
def test_what_a_call_leaves_in_an_inout_input_is_checked_although_it_returns_something_else(reference):
    errors = _steps(reference=reference)
    assert (errors["plain"], errors["step"]) == ("True", "True")
    assert errors["forgets"].startswith("forgets did not write its input state, which is off by ")
    assert errors["ignores"].startswith("ignores did not write its input state, which is off by ")
    assert errors["wrong"].startswith("wrong wrote a wrong value into its input state, which is off by ")


def test_a_reference_that_returns_the_input_it_wrote_is_not_compared_with_itself():
    def reference(x, state):
        state += x[:, ::2]
        return state

    suite = make_suite(
        inout=("state",),
        buffers=lambda new: None,
        draw=lambda new, M, N: {"x": new.normal(M, N, dtype="float32"), "state": new.normal(M, 2, dtype="float32")},
        reference=reference,
    )
    checker = Checker.draw(suite, Case(M=8, N=4), "cpu", seed=1)
    assert checker.accuracy(Family({"it": reference}, {}), "it").norm == 0
    with pytest.raises(WrongResult, match=r"output 0 is off by"):
        checker.accuracy(Family({"it": lambda x, state: state}, {}), "it")
