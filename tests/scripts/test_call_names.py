"""Names of a script's calls: the same whatever the order of the calls, wherever something tells them apart."""

import re

import pytest
from test_scripts import KERNELS, PYTEST_BENCHMARK, found, project

from lockstep.scripts.call_names import CallKey, CallNames, Mark

__all__ = ["project"]  # a fixture

TWO_REPORTS = """
    import torch
    import triton
    from tiny_kernels import norm

    def report(names, sizes, title):
        return triton.testing.perf_report(
            triton.testing.Benchmark(
                x_names=["M"], x_vals=sizes, line_arg="provider", line_vals=names, line_names=names,
                plot_name=title, args={"N": 64},
            )
        )

    @report(["torch", "triton"], [8, 16], "rms")
    def rms_norm(M, N, provider, dtype=None, fn=None):
        return triton.testing.do_bench(lambda: norm(torch.randn(M, N)))

    @report(["torch", "liger"], [16, 32], "layer")
    def layer_norm(M, N, provider):
        return triton.testing.do_bench(lambda: torch.randn(M, N) + 1)

"""


def both_orders(project, lines, script, name="bench", **files):
    """Return the calls of a script, which are the same with ``lines`` in place of "LINES" in the other order."""
    calls = []
    indent = re.search(r"^ *(?=LINES)", script, re.MULTILINE)[0]
    for order in (lines, lines[::-1]):
        text = script.replace(f"{indent}LINES", "\n".join(indent + line for line in order))
        outcome = found(project({"tiny_kernels/__init__": KERNELS, **files, name: text}), f"{name}.py")
        assert not outcome.errors, outcome.errors
        assert not outcome.refused.get("head")
        calls.append(outcome.calls)
    assert sorted(calls[0]) == sorted(calls[1])
    return calls[0]


def test_reports_with_equal_providers_are_named_by_their_functions(project):
    """They were ``torch`` and ``torch #2``: to swap two lines of the script looked like a change of 3.14 times."""
    assert both_orders(project, ["rms_norm.run()", "layer_norm.run()"], f"{TWO_REPORTS}\n    LINES\n") == [
        ("M=8,N=64", "rms_norm torch"),
        ("M=8,N=64", "rms_norm triton"),
        ("M=16,N=64", "rms_norm torch"),
        ("M=16,N=64", "rms_norm triton"),
        ("M=16,N=64", "layer_norm torch"),
        ("M=16,N=64", "layer_norm liger"),
        ("M=32,N=64", "layer_norm torch"),
        ("M=32,N=64", "layer_norm liger"),
    ]


def test_reports_of_one_function_name_are_named_by_their_titles(project):
    script = TWO_REPORTS.replace(
        '    @report(["torch", "liger"]', '    rms = rms_norm\n\n    @report(["torch", "liger"]'
    )
    script = script.replace("def layer_norm", "def rms_norm")
    calls = both_orders(project, ["rms.run()", "rms_norm.run()"], f"{script}\n    LINES\n")
    assert {variant for _, variant in calls} == {"rms torch", "rms triton", "layer torch", "layer liger"}


def test_runs_of_one_report_are_named_by_their_arguments_and_loops(project):
    runs = ["rms_norm.run(dtype=torch.float16)", "rms_norm.run(dtype=torch.float32)", "rms_norm.run(fn=norm)"]
    calls = both_orders(project, runs, f"{TWO_REPORTS}\n    for size in (3, 5):\n        LINES\n")
    assert [case for case, variant in calls if case.endswith("M=8,N=64") and variant == "torch"] == [
        "dtype=float16,size=3,M=8,N=64",
        "dtype=float32,size=3,M=8,N=64",
        "size=3,M=8,N=64",
        "dtype=float16,size=5,M=8,N=64",
        "dtype=float32,size=5,M=8,N=64",
        "size=5,M=8,N=64",
    ]


SITES = """
    import torch
    from functools import partial
    from tiny_kernels import norm
    from torch.utils.benchmark import Timer
    from triton.testing import do_bench

    x = torch.ones(4, 4)

    def bench(fn):
        return do_bench(lambda: fn(x))

    def rms_norm():
        bench(lambda: norm(x))

    def layer_norm():
        bench(lambda: norm(x))

    class Forward:
        def run(self):
            do_bench(lambda: x + 1)

    class Backward:
        def run(self):
            do_bench(lambda: x + 2)

    def main():
        LINES

    main()
"""


@pytest.mark.parametrize(
    ("lines", "variants"),
    [
        (["do_bench(lambda: norm(x))", "do_bench(lambda: torch.exp(x))"], ["main norm", "main exp"]),
        (["do_bench(partial(norm, x))", "do_bench(x.exp)"], ["main norm", "main exp"]),
        (["bench(norm)", "bench(torch.exp)"], ["bench norm", "bench exp"]),
        (["rms_norm()", "layer_norm()"], ["rms_norm bench", "layer_norm bench"]),
        (["for fn in (norm, torch.exp): bench(fn)"], ["bench norm", "bench exp"]),
        (["Forward().run()", "Backward().run()"], ["Forward run", "Backward run"]),
        (
            ["Timer('norm(x)', globals=globals()).timeit()", "Timer('x + 1', globals=globals()).timeit()"],
            ["main norm(x)", "main x + 1"],
        ),
        (
            [f"Timer('{one}', globals=globals(), label='op').timeit()" for one in ("norm(x)", "x + 1")],
            ["op norm(x)", "op x + 1"],
        ),
        (["do_bench(lambda: x + 1)", "do_bench(lambda: x + 2)"], ["main", "main #2"]),
        (["do_bench(lambda: norm(x))", "bench(norm)"], ["main", "bench"]),
    ],
)
def test_calls_of_one_name_are_told_apart_by_what_the_script_says(project, lines, variants):
    assert both_orders(project, lines, SITES) == [("-", variant) for variant in variants]


def test_tests_of_one_name_are_named_by_their_classes_and_parameters(project, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    script = """
        import pytest
        import torch
        from tiny_kernels import norm

        @pytest.fixture
        def benchmark(request):
            from pytest_benchmark.fixture import BenchmarkFixture
            made = BenchmarkFixture()
            made.param = request.node.callspec.id if hasattr(request.node, "callspec") else None
            return made

        class TestForward:
            @pytest.mark.parametrize("fn", [norm, torch.exp])
            def test_op(self, benchmark, fn):
                benchmark(fn, torch.ones(2, 4))

        class TestBackward:
            def test_op(self, benchmark):
                benchmark(norm, torch.ones(2, 4))
    """
    files = {"pytest_benchmark/__init__": "", "pytest_benchmark/fixture": PYTEST_BENCHMARK}
    outcome = found(project({"tiny_kernels/__init__": KERNELS, "test_ops": script, **files}), "test_ops.py")
    variants = ["TestForward test_op norm", "TestForward test_op exp", "TestBackward test_op"]
    assert outcome.calls == [("-", variant) for variant in variants]


def test_a_mark_that_tells_nothing_is_in_no_name():
    keys = [
        CallKey("", "bench", (Mark("class", "Same"), Mark("given 0 0", name, "after"), Mark("caller 1", f"of_{name}")))
        for name in ("norm", "exp")
    ]
    names = CallNames(keys)
    assert [names.labels(key) for key in keys] == [("-", "bench norm"), ("-", "bench exp")]
    assert CallNames(keys[:1]).labels(keys[0]) == ("-", "bench")
