"""What packages of strangers have: a folder of benchmarks of their own, and variants of every kind."""

import pytest
from project import json_rows, make_project

PACKAGE = """
    import torch

    try:
        import a_package_that_nobody_has
    except ImportError:
        a_package_that_nobody_has = None

    import torch.distributed as dist
    from torch.distributed import ProcessGroup


    @torch.compiler.disable
    def double(x):
        return 2 * x


    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.factor = 2.0
            return x * x

        @staticmethod
        def backward(ctx, upstream):
            (x,) = ctx.saved_tensors
            return ctx.factor * x * upstream


    def quantised(x):
        return x.to(torch.float8_e4m3fn)


    def largest(x):
        return x.argmax(-1)


    def add_(x, y):
        return x.add_(y)
"""

SUITES = """
    from lockstep import Cost, Suite, grid, variant


    class _Base(Suite):
        baseline = "eager"
        quick = cases = grid(M=4, K=64)

        def draw(self, new, M, K):
            return {"x": new.normal(M, K, dtype="float32"), "y": new.normal(M, K, dtype="float32")}

        def cost(self, M, K):
            return Cost(M * K, 8 * M * K)


    class Doubles(_Base):
        op = "disabled"

        def reference(self, x):
            return 2 * x.double()

        @variant
        def eager(self, x):
            return x + x

        @variant
        def theirs(self, x):
            from toy.ops import double

            return double(x)


    class Backward(_Base):
        op = "backward"

        def reference(self, x, y):
            return 2 * x.double() * y.double()

        @variant
        def eager(self, x, y):
            return 2 * x * y

        @variant
        def theirs(self, x, y):
            import torch
            from toy.ops import Square

            x = x.detach().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(Square.apply(x), x, y)


    class Quantised(_Base):
        op = "quantised"

        def buffers(self, new, M, K):
            return new.empty(M, K, dtype="float8_e4m3fn")

        def reference(self, x):
            return x.double()

        @variant
        def eager(self, x):
            import torch

            return x.to(torch.float8_e4m3fn)

        @variant
        def theirs(self, x):
            from toy.ops import quantised

            return quantised(x)


    class Largest(_Base):
        op = "largest"

        def reference(self, x):
            return x.double().argmax(-1)

        @variant
        def eager(self, x):
            return x.max(-1).indices

        @variant
        def theirs(self, x):
            from toy.ops import largest

            return largest(x)


    class Unchecked(_Base):
        op = "unchecked"
        baseline = "theirs"

        @variant
        def theirs(self, x):
            from toy.ops import double

            return double(x)

        @variant
        def other(self, x):
            return x + x

        @variant
        def wrong(self, x):
            return x + 2


    class InPlace(_Base):
        op = "in_place"
        inout = ("x",)
        baseline = "theirs"

        @variant
        def theirs(self, x, y):
            from toy.ops import add_

            add_(x, y)


    class Step(Suite):
        # The reference works on a copy of the state.

        family = "ops"
        op = "step"
        inout = ("state",)
        baseline = "theirs"
        cases = quick = grid(N=[64])

        def draw(self, new, N):
            return {"x": new.normal(N, dtype="float32"), "state": new.normal(N, dtype="float32")}

        def reference(self, x, state):
            return x.double() + state.double()

        def cost(self, N):
            return Cost(N, 12 * N)

        @variant
        def theirs(self, x, state):
            result = x + state
            state.mul_(0.5)
            return result

        @variant
        def drops(self, x, state):
            return x + state
"""


@pytest.fixture
def project(tmp_path):
    project = make_project(tmp_path / "project")
    project.write("toy/ops.py", PACKAGE)
    project.write("benchmarks/ops.py", SUITES)
    # A folder that held benchmarks before has modules which are not suites, and which do not import everywhere.
    project.write("benchmarks/benchmark_training.py", "import a_package_that_nobody_has\n")
    project.write("benchmarks/plot.py", "raise SystemExit('run me as a script')\n")
    (project.root / "benchmarks/product.py").unlink()
    project.commit("Add operations")
    return project


def test_every_kind_of_variant_is_measured(project):
    done = project.lockstep("measure", "ops", "--quick", "--json")
    rows = {(row["suite"], row["variant"]): row for row in json_rows(done.stdout)}
    assert {key: row["reason"] for key, row in rows.items() if row["state"] != "ok"} == {
        key: rows[key]["reason"] for key in (("ops.unchecked", "wrong"), ("ops.step", "drops"))
    }, done.stdout
    assert len(rows) == 14
    assert "drops did not write its input state, which is off by " in rows["ops.step", "drops"]["reason"]
    assert "what it leaves in state is not checked" in rows["ops.step", "theirs"]["note"]
    assert "wrong output 0 is off by" in rows["ops.unchecked", "wrong"]["reason"]
    note = "not checked: the suite has no reference"
    assert [key for key, row in rows.items() if note in row["note"]] == [
        ("ops.unchecked", "theirs"),
        ("ops.in_place", "theirs"),
    ]
    assert rows["ops.unchecked", "other"]["note"].startswith("checked against the baseline's output")


def test_the_gate_checks_head_against_base_where_there_is_no_reference(project):
    ops = project.root / "toy/ops.py"
    text = ops.read_text()
    ops.write_text(text.replace("return 2 * x", "return 2.5 * x"))
    done = project.lockstep("gate", "--quick", "--family", "ops.unchecked", "--variant", "theirs", "--plain")
    assert done.returncode == 2, done.stdout
    assert "off by" in done.stdout
    ops.write_text(text.replace("x.add_(y)", "x.add_(y, alpha=2)"))
    done = project.lockstep("gate", "--quick", "--family", "ops.in_place", "--plain")
    assert done.returncode == 2, done.stdout
    assert "off by" in done.stdout
