"""Operators that a package registers from Python are traced through: what they launch and call are the steps."""

import textwrap

import pytest
from rooms import room_of

from lockstep.machine_code.compiled_tree import codes_of
from lockstep.machine_code.differences.compare import compare
from lockstep.machine_code.model import CaseKey
from lockstep.machine_code.targets import Target
from lockstep.suite.commit_sources import Tree
from lockstep.suite.discovery import load_suites

SM90 = Target.parse("sm_90")

SUITE = """
    from lockstep import Cost, Suite, grid, variant


    class Registered(Suite):
        baseline = "eager"
        cases = quick = grid(M=[4096])

        def draw(self, new, M):
            return {"x": new.normal(M, dtype="float32")}

        def cost(self, M):
            return Cost(M, 8 * M)

        @variant
        def eager(self, x):
            return x * 2

        @variant
        def triton_op(self, x):
            from toy.ops import by_triton_op

            return by_triton_op(x)

        @variant
        def custom_op(self, x):
            from toy.ops import by_custom_op

            return by_custom_op(x)

        @variant
        def library(self, x):
            import torch
            import toy.ops

            return torch.ops.toyops.by_library(x)
"""

OPS = """
    import torch
    import triton
    import triton.language as tl
    from torch.library import triton_op, wrap_triton


    @triton.jit
    def double_kernel(x, out, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, at < count) * 2, at < count)


    def launch(kernel, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


    @triton_op("toyops::by_triton_op", mutates_args={})
    def by_triton_op(x: torch.Tensor) -> torch.Tensor:
        return launch(wrap_triton(double_kernel), x)


    @torch.library.custom_op("toyops::by_custom_op", mutates_args=(), device_types="cuda")
    def by_custom_op(x: torch.Tensor) -> torch.Tensor:
        return launch(double_kernel, x)


    library = torch.library.Library("toyops", "FRAGMENT")
    library.define("by_library(Tensor x) -> Tensor")
    library.impl("by_library", torch.empty_like, "Meta")
    library.impl("by_library", lambda x: launch(double_kernel, x), "CUDA")
"""


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    with room_of(tmp_path_factory.mktemp("operators"), "operator_suites", registered=SUITE) as room:
        yield room


@pytest.fixture(scope="module")
def suite(room):
    return load_suites(room / "operator_suites")["registered"]


def lay_out(root, text=OPS):
    (root / "toy").mkdir(parents=True)
    (root / "toy/__init__.py").write_text("")
    (root / "toy/ops.py").write_text(textwrap.dedent(text))
    return Tree(root.name, root, ("toy",))


@pytest.fixture(scope="module")
def base(room):
    return lay_out(room / "base")


@pytest.mark.parametrize("variant", ["triton_op", "custom_op", "library"])
def test_an_operator_of_python_is_its_launches(variant, base, suite):
    code = codes_of(base, [suite], SM90)[CaseKey("registered", variant, "M=4096")]
    assert (code.unknown, [kernel.name for kernel in code.kernels]) == ("", ["double_kernel"])


def test_a_change_in_an_operator_is_found(base, room, suite):
    head = lay_out(room / "head", OPS.replace("at < count) * 2", "at < count) * 3"))
    comparison = compare(base, head, [suite], SM90)
    [change] = [change for change in comparison.changes if change.kind == "kernel"]
    assert change.kernel == "double_kernel"
