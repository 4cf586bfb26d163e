"""Other projects' benchmark scripts, unchanged, by the verbs of the command line. Times are not judged."""

import json
import re
import subprocess
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from busy import skip_if_unsure
from project import TUNED_PACKAGE
from verb import run_verb

from lockstep.gate.model import UNREACHED, SeriesKey
from lockstep.gate.report.report import headline
from lockstep.gate.report.rows import again
from lockstep.record.file import read_records
from lockstep.scripts.client import Outcome, run_plan
from lockstep.scripts.gate_script import Asked, gate_script
from lockstep.scripts.judge_call import refused
from lockstep.scripts.plan import HEAD, Plan, Side
from lockstep.scripts.project import NoScript, Project

KERNELS = """
    def norm(x):
        return x / x.square().mean(-1, keepdim=True).add(1e-6).sqrt()
"""

PERF_REPORT = """
    import torch
    import triton
    from tiny_kernels import norm

    @triton.testing.perf_report(
        triton.testing.Benchmark(
            x_names=["M"], x_vals=[8, 16, 3], line_arg="provider", line_vals=["ours", "theirs"],
            line_names=["Ours", "Torch"], plot_name="norm", args={"N": 64},
        )
    )
    def bench(M, N, provider):
        if M == 3:
            raise ValueError("3 rows are too few")
        x = torch.randn(M, N)
        fn = norm if provider == "ours" else torch.nn.functional.normalize
        return triton.testing.do_bench(lambda: fn(x), quantiles=[0.5, 0.2, 0.8])

    if __name__ == "__main__":
        bench.run(print_data=True, save_path="pictures")
"""


def git(folder, *words):
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    """Return a function that writes files into a repository and commits them."""
    git(tmp_path, "init", "-q")

    def write(files):
        for name, text in files.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(textwrap.dedent(text))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", "Write")
        return tmp_path

    return write


def found(folder, script, *arguments):
    """Measure a script once, and return what it gave."""
    file = Project.of(folder / script)
    local = {name: str(path) for name, path in file.local.items()}
    side = Side(str(file.root), str(file.file))
    plan = Plan("s", {HEAD: side}, file.packages, local, arguments, budget_s=60, quick=True, version="1")
    outcome = Outcome()
    list(run_plan(plan, print, outcome))
    return outcome


def gated(folder, script, base="HEAD", head=".", apart=False, **settings):
    """Compare two versions by a script, briefly."""
    file = Project.of(folder / script)
    local = {name: str(path) for name, path in file.local.items()}
    plan = Plan(
        "s", {}, file.packages, local, (), budget_s=20, quick=True, measure_all=True, version="1", min_effect=0.9
    )
    return gate_script(Asked(file, base, head, replace(plan, **settings), apart=apart), print)


def test_points_of_a_perf_report_are_cases_and_variants(project):
    folder = project({"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": PERF_REPORT})
    outcome = found(folder, "benchmarks/bench_norm.py")
    assert outcome.calls == [
        ("M=8,N=64", "Ours"), ("M=8,N=64", "Torch"), ("M=16,N=64", "Ours"), ("M=16,N=64", "Torch"),
        ("M=3,N=64", "Ours"), ("M=3,N=64", "Torch"),
    ]  # fmt: skip
    assert {record.state for record in outcome.records.values()} == {"ok"}
    assert all(record.latency.value > 0 for record in outcome.records.values())
    assert len(outcome.records) == 4
    # The point that fails ends alone, and says where.
    assert outcome.refused[HEAD] == dict.fromkeys((4, 5), "bench_norm.py:14: ValueError: 3 rows are too few")
    assert sorted(path.name for path in folder.iterdir() if path.name != ".git") == ["benchmarks", "tiny_kernels"]


def test_a_pattern_that_matches_no_call_is_answered_with_the_calls(project):
    folder = project({"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": PERF_REPORT})
    assert gated(folder, "benchmarks/bench_norm.py", variants=("Mine",)).trouble == (
        "no call matches --case and --variant: its variants are Ours, Torch, its cases M=8,N=64, M=16,N=64, M=3,N=64"
    )


def test_only_points_that_are_measured_are_set_up(project, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "set up"
    noted = PERF_REPORT.replace(
        "x = torch", f"open({str(log)!r}, 'a').write(f'{{M}} {{provider}},')\n        x = torch"
    )
    folder = project({"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": noted})
    report = gated(folder, "benchmarks/bench_norm.py", cases=("M=16",), variants=("Ours",))
    assert [(case.key.case, case.key.variant) for case in report.cases] == [("M=16,N=64", "Ours")]
    assert log.read_text() == "16 ours,16 ours,"  # base and head


def test_a_point_whose_set_up_fails_in_head_alone_fails(project):
    folder = project({"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": PERF_REPORT})
    (folder / "tiny_kernels/__init__.py").write_text(textwrap.dedent(KERNELS) + "\nLIMIT = 8\n")
    script = (folder / "benchmarks/bench_norm.py").read_text()
    limit = "import tiny_kernels\n    if M > getattr(tiny_kernels, 'LIMIT', 99):\n        raise ValueError('many')\n"
    (folder / "benchmarks/bench_norm.py").write_text(script.replace("    if M == 3", f"    {limit}    if M == 3"))
    report = gated(folder, "benchmarks/bench_norm.py")
    outcomes = {(case.key.case, case.key.variant): (case.outcome, case.reason) for case in report.cases}
    assert outcomes["M=16,N=64", "Ours"] == ("failed", "bench_norm.py:15: ValueError: many")
    assert outcomes["M=3,N=64", "Ours"] == ("failed", "bench_norm.py:17: ValueError: 3 rows are too few")
    assert [case.key.case for case in report.cases if case.in_base and case.outcome == "failed"] == ["M=3,N=64"] * 2
    assert outcomes["M=8,N=64", "Ours"][0] in ("same", "unsure", "slower", "faster")
    assert len(report.cases) == 6


COMPILES = """
    import time

    def norm(x, _compiled=[]):
        if not _compiled:
            time.sleep(2.2)
            _compiled.append(True)
        return x + 1
"""


def test_the_first_call_is_judged_although_compiling_takes_longer_than_the_budget(project):
    folder = project({"tiny_kernels/__init__": COMPILES, "benchmarks/bench_norm": PERF_REPORT})
    report = gated(folder, "benchmarks/bench_norm.py", budget_s=2.0, min_effect=0.9)
    first = report.cases[0]
    assert first.key.case == "M=8,N=64"
    assert first.change is not None
    assert first.epochs > 1
    skip_if_unsure(first.outcome)
    assert first.reason == ""


def test_a_call_that_takes_seconds_has_no_verdict_and_does_not_count_as_hung(project, monkeypatch):
    monkeypatch.setattr("lockstep.scripts.client.SILENCE_S", 20.0)
    slow = "import time\n\ndef norm(x):\n    time.sleep(4.1)\n    return x + 1\n"
    folder = project({"tiny_kernels/__init__": slow, "benchmarks/bench_norm": PERF_REPORT})
    (folder / "tiny_kernels/__init__.py").write_text(slow.replace("4.1", "0"))
    report = gated(folder, "benchmarks/bench_norm.py", cases=("M=8",), variants=("Ours",))
    reason = "one call takes 4 s, and a number takes dozens of calls: choose a smaller case"
    assert [(case.outcome, case.reason) for case in report.cases] == [("unsure", reason)]
    assert report.state == "infrastructure"


@pytest.mark.parametrize("own", [False, True])
def test_equal_sources_are_the_same_without_a_measurement(project, own):
    files = {"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": PERF_REPORT}
    script = "benchmarks/bench_norm.py"
    if own:
        files = {"bench": ENDS_EARLY.replace("from tiny_kernels import norm", "norm = abs").rpartition("raise")[0]}
        script = "bench.py"
    folder = project(files)
    changed = folder / ("bench.py" if own else "tiny_kernels/__init__.py")
    changed.write_text(changed.read_text() + "\n# a comment\n")
    report = gated(folder, script, measure_all=False)
    assert report.state == "pass"
    assert {(case.outcome, case.reason, case.unchanged) for case in report.cases} == {
        ("same", "the same sources", True)
    }
    assert len(report.cases) == 6
    changed.write_text(changed.read_text() + "\nlimit = 1\n")
    assert not any(case.unchanged for case in gated(folder, script, measure_all=False, budget_s=0.1).cases)


def test_a_pattern_names_whole_axes_or_a_part_of_any_text():
    labels = [("M=8,N=64", "ours"), ("M=80,N=64", "ours"), ("M=8,N=640", "theirs")]

    def chosen(*cases):
        plan = Plan("s", {}, (), {}, cases=cases)
        return plan.selected(labels)

    assert chosen("M=8") == [0, 2]
    assert chosen("M=8,N=64") == [0]
    assert chosen("N=64*") == [0, 1, 2]
    assert chosen("80", "640") == [1, 2]


ENDS_EARLY = """
    import torch
    from tiny_kernels import norm
    from triton.testing import do_bench

    for rows in (4, 8, 16, 32, 64, 128):
        do_bench(lambda: norm(torch.ones(rows, 4)))
    raise NotImplementedError("needs another device")
"""


@pytest.mark.parametrize("fails", ["both", "head"])
def test_a_script_that_ends_early_in_both_versions_breaks_no_gate(project, fails):
    line = 'raise NotImplementedError("needs another device")'
    text = ENDS_EARLY if fails == "both" else ENDS_EARLY.replace(line, "import tiny_kernels; tiny_kernels.limit")
    folder = project({"tiny_kernels/__init__": f"{KERNELS}\n    limit = 1\n", "benchmarks/bench_norm": text})
    if fails == "head":
        (folder / "tiny_kernels/__init__.py").write_text(textwrap.dedent(KERNELS))
    # The budget is for one call: the comparison does not reach the end.
    report = gated(folder, "benchmarks/bench_norm.py", budget_s=2.0)
    early = [case for case in report.cases if case.key.variant == "(script)"]
    assert [case.outcome for case in early] == (["failed"] if fails == "head" else [])
    told = [*report.notes, *(case.reason for case in report.cases), report.trouble]
    [error] = [text for text in told if "needs another device" in text or "has no attribute 'limit'" in text]
    assert error.startswith({"both": "both scripts ended early, so later", "head": "head's script ends early"}[fails])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import not_installed", "ModuleNotFoundError: No module named 'not_installed'; install what the script needs"),
        pytest.param(
            "torch.ones(1, device='cuda')",
            "there is no GPU here: run the gate on a machine with one",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        ("norm(3)", "bench_norm.py:6: "),
        ("norm(3)", " (at tiny_kernels/__init__.py:"),
    ],
)
def test_a_script_that_ends_before_its_first_call_says_where_and_what_to_do(project, line, words):
    text = ENDS_EARLY.replace("    for rows", f"    {line}\n    for rows")
    folder = project({"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": text})
    report = gated(folder, "benchmarks/bench_norm.py", budget_s=2.0)
    assert words in report.trouble
    assert not report.notes, "the trouble tells it"


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_calls_that_are_judged_early_leave_their_time_to_others(project, apart):
    text = ENDS_EARLY.replace('    raise NotImplementedError("needs another device")\n', "")
    folder = project({"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": text})
    budget_s, least_s = (24.0, 8.0) if apart else (6.0, 2.0)  # at first there is time for three calls
    report = gated(folder, "benchmarks/bench_norm.py", budget_s=budget_s, apart=apart)
    assert len(report.cases) == 6
    if sum(case.wall_s for case in report.cases) > budget_s - least_s:
        pytest.skip("too busy to tell: three calls take the budget")
    assert UNREACHED not in [case.reason for case in report.cases]


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_base_without_a_call_is_no_pass(project, apart):
    text = ENDS_EARLY.replace('    raise NotImplementedError("needs another device")\n', "")
    folder = project({"tiny_kernels/__init__": "import not_installed", "benchmarks/bench_norm": text})
    (folder / "tiny_kernels/__init__.py").write_text(textwrap.dedent(KERNELS))
    report = gated(folder, "benchmarks/bench_norm.py", apart=apart)
    assert json.loads(report.to_json())["exit"] == 3
    assert "the script ended before its first timed call" in headline(report).replace("base's script", "the script")
    assert "No module named 'not_installed'" in headline(report)


@pytest.mark.parametrize("words", [["--script", "gone.py"], ["--script", "benchmarks/bench_norm.py", "--base", "gone"]])
def test_a_mistake_in_the_command_is_told_in_the_markdown_too(project, monkeypatch, words):
    monkeypatch.chdir(project({"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": PERF_REPORT}))
    assert run_verb("gate", *words, "--markdown", "report.md") == 4
    assert re.match(r"Nothing was compared:\n\n    .*gone", Path("report.md").read_text())


def test_every_timer_hands_over_its_closure(project):
    folder = project(
        {
            "tiny_kernels/__init__": KERNELS,
            "flashinfer/testing": """
            def bench_gpu_time(fn, dry_run_iters=None, repeat_iters=None, input_args=(), input_kwargs=None):
                raise AssertionError("the original timer ran")
        """,
            "benchmarks/utils": """
            from dataclasses import dataclass
            import triton
            from tiny_kernels import norm  # helpers belong to one version too

            def in_milliseconds(function, **kwargs):
                return triton.testing.do_bench(function, **kwargs)

            @dataclass
            class SingleBenchmarkRunInput:
                x: int
                kernel_provider: str
                kernel_operation_mode: str = ""
                extra_benchmark_config: dict = None

            def run_benchmarks(bench_test_fn, **kwargs):
                raise AssertionError("the original loop ran")
        """,
            "benchmarks/bench_all": """
            import sys
            from dataclasses import dataclass
            import numpy
            import torch
            import triton.testing
            from flashinfer.testing import bench_gpu_time
            from torch.utils import benchmark
            from triton.testing import do_bench, do_bench_cudagraph
            from utils import in_milliseconds, run_benchmarks
            from tiny_kernels import norm

            x = torch.randn(4, 4)
            assert do_bench(lambda: norm(x)) > 0
            do_bench_cudagraph(lambda: norm(x), quantiles=[0.5])

            @dataclass
            class Config:
                dtype: torch.dtype
                shape: tuple

            def loop(rows, config, tensor):
                assert len(in_milliseconds(lambda: norm(tensor), quantiles=[0.5, 0.2])) == 2

            for rows in (1, 2):
                loop(rows, Config(torch.float32, (4, 4)), x)
            assert numpy.median(bench_gpu_time(norm, input_args=(x,))) > 0
            timer = benchmark.Timer("norm(y)", "y = x", globals={"norm": norm, "x": x}, label="rows", sub_label="4")
            assert timer.blocked_autorange().median > 0
            run_benchmarks(
                bench_test_fn=lambda point: do_bench(lambda: norm(x), grad_to_none=[x]), kernel_name="n",
                metric_name="speed", metric_unit="ms", x_name="T", x_label="", x_values=[7], kernel_providers=["liger"],
                kernel_operation_modes=["forward"], extra_benchmark_configs=[{}], overwrite=False,
            )
            run_benchmarks(
                bench_test_fn=lambda point: 1 / 0, kernel_name="n", metric_name="memory", metric_unit="MB", x_name="T",
                x_label="", x_values=[7], kernel_providers=["liger"],
            )
            sys.exit(0)
        """,
        }
    )
    outcome = found(folder, "benchmarks/bench_all.py")
    assert not outcome.refused[HEAD]
    assert not outcome.errors
    assert outcome.calls == [
        ("-", "script"),
        ("-", "script #2"),
        ("rows=1,dtype=float32,shape=4x4", "loop"),
        ("rows=2,dtype=float32,shape=4x4", "loop"),
        ("-", "script #3"),
        ("sub_label=4", "rows"),
        ("T=7", "liger forward"),
    ]
    assert [record.state for record in outcome.records.values()] == ["ok"] * 7


def test_a_registry_of_ops_is_taken_as_data(project):
    folder = project(
        {
            "tiny_kernels/ops": "def scale(q, factor):\n    return (q * factor,)\n",
            "tiny_kernels/__init__": "",
            "benchmarks/registry": """
            from dataclasses import dataclass, field
            import torch

            @dataclass
            class OpConfig:
                name: str
                import_path: str
                inputs: dict
                func_name: str = None
                extra_kwargs: dict = field(default_factory=dict)
                output_is_tuple: bool = True
                skip_backward: bool = False
                dim_constraints: dict = None
                default_shapes: dict = None

            SHAPE_CONFIGS = {"small": {"B": 1, "T": 8}, "other": {"B": 1, "T": 9}}
            OPS = {"scale": OpConfig("scale", "tiny_kernels.ops", {}, extra_kwargs={"factor": 2.0},
                                     dim_constraints={"T": [8]})}
            list_ops, get_op = (lambda: sorted(OPS)), OPS.get

            def generate_inputs(config, B, T, device):
                return {"q": torch.randn(B, T, device=device, requires_grad=True)}
        """,
        }
    )
    outcome = found(folder, "benchmarks/registry.py")
    assert outcome.calls == [("B=1,T=8", "scale forward"), ("B=1,T=8", "scale forward and backward")]
    assert [record.state for record in outcome.records.values()] == ["ok", "ok"]


def test_the_error_of_a_call_names_the_line_of_the_script_that_led_to_it(project):
    script = """
        import torch
        from tiny_kernels import norm
        from triton.testing import do_bench

        do_bench(lambda: norm(torch.ones(2).view(3)))
    """
    folder = project({"tiny_kernels/__init__": KERNELS, "bench": textwrap.dedent(script)})
    (verdict,) = gated(folder, "bench.py").cases
    assert (verdict.outcome, verdict.in_base) == ("failed", True)
    assert verdict.reason.startswith("bench.py:6: RuntimeError: shape '[3]' is invalid")


def test_a_gate_runs_both_versions_of_the_package_in_one_process(project):
    folder = project({"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": PERF_REPORT})
    report = gated(folder, "benchmarks/bench_norm.py")
    assert report.trouble == ""
    timed = [verdict for verdict in report.cases if verdict.base_s]
    skip_if_unsure(*(verdict.outcome for verdict in report.cases if not verdict.base_s))
    assert len(timed) == 4
    assert all(verdict.shared for verdict in timed)  # both closures use base's buffers
    # Head returns other values: base's output is the reference.
    (folder / "tiny_kernels/__init__.py").write_text("def norm(x):\n    return x * 1.25\n")
    report = gated(folder, "benchmarks/bench_norm.py", variants=("Ours",), cases=("M=8",))
    (verdict,) = report.cases
    skip_if_unsure(verdict.outcome)
    assert (verdict.outcome, verdict.in_base) == ("failed", False)
    assert "base's output is the reference" in verdict.reason
    assert verdict.file.endswith("bench_norm.py")
    assert report.state == "failed"
    command = again(report)
    assert "gate --script benchmarks/bench_norm.py --base" in command
    assert command.endswith("--case M=8,N=64 --variant Ours")


def test_both_versions_draw_the_same_inputs_whatever_an_import_seeds(project):
    script = """
        import torch
        import tiny_kernels
        from triton.testing import do_bench

        torch.rand(3)
        def bench(rows):
            import seeding  # once, in the middle of the script

            x = torch.randn(rows, 8)
            do_bench(lambda: tiny_kernels.norm(x))

        for rows in (2, 3):
            bench(rows)
    """
    seeding = "import torch\nimport tiny_kernels\ntorch.manual_seed(7)\n"
    folder = project({"tiny_kernels/__init__": KERNELS, "bench": script, "seeding": seeding})
    assert "failed" not in [verdict.outcome for verdict in gated(folder, "bench.py", budget_s=60).cases]


def test_operators_that_both_versions_register_are_each_version_s_own(project):
    kernels = """
        import torch

        @torch.library.custom_op("tiny::by_name", mutates_args=())
        def by_name(x: torch.Tensor) -> torch.Tensor:
            return x * FACTOR

        library = torch.library.Library("tiny", "FRAGMENT")
        library.define("by_library(Tensor x) -> Tensor")
        library.impl("by_library", lambda x: x * FACTOR, "CPU")

        @torch.library.register_fake("tiny::by_library")
        def _(x):
            return torch.empty_like(x)
    """
    script = """
        import torch
        import tiny_kernels
        from triton.testing import do_bench

        x = torch.ones(4)
        do_bench(lambda: tiny_kernels.by_name(x))
        do_bench(lambda: torch.ops.tiny.by_name(x))
        do_bench(lambda: torch.ops.tiny.by_library(x))
    """
    folder = project({"tiny_kernels/__init__": kernels.replace("FACTOR", "2"), "bench": script})
    (folder / "tiny_kernels/__init__.py").write_text(textwrap.dedent(kernels.replace("FACTOR", "3")))
    report = gated(folder, "bench.py", budget_s=60)
    assert report.trouble == ""
    wrong = [verdict.reason for verdict in report.cases if verdict.outcome == "failed"]
    assert len(wrong) == 3
    assert all("base's output is the reference" in reason for reason in wrong)


def test_calls_that_only_one_version_makes_are_new_or_removed(project):
    script = """
        import torch
        import tiny_kernels
        from triton.testing import do_bench

        x = torch.ones(4)
        for name in tiny_kernels.NAMES:
            def bench(name):
                do_bench(lambda: getattr(tiny_kernels, "scale")(x))
            bench(name)
    """
    kernels = "NAMES = {}\ndef scale(x):\n    return 2 * x\n"
    folder = project({"tiny_kernels/__init__": kernels.format(["a", "b", "d"]), "bench": script})
    (folder / "tiny_kernels/__init__.py").write_text(kernels.format(["a", "c", "d"]))
    report = gated(folder, "bench.py")
    outcomes = {verdict.key.case: verdict.outcome for verdict in report.cases}
    assert outcomes["name=b"] == "removed"
    assert outcomes["name=c"] == "new"
    assert not {outcomes["name=a"], outcomes["name=d"]} & {"new", "removed", "failed"}


def test_tests_of_pytest_are_scripts(project):
    files = {
        "tiny_kernels/__init__": KERNELS,
        "benchmark/__init__": "",
        "benchmark/conftest": """
            SIZES = {"rows": 4}

            def pytest_addoption(parser):
                parser.addoption("--rows", type=int, default=4)

            def pytest_configure(config):
                SIZES["rows"] = config.getoption("--rows")
        """,
        "benchmark/utils": """
            import torch
            import triton
            import tiny_kernels

            def bench(dtype, rows):
                x = torch.ones(rows, 8, dtype=dtype)
                return triton.testing.do_bench(lambda: tiny_kernels.norm(x))
        """,
        "benchmark/test_perf": """
            import pytest
            import torch
            from .conftest import SIZES
            from benchmark.utils import bench

            @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
            def test_norm(dtype):
                assert bench(dtype, SIZES["rows"]) > 0

            def test_missing():
                pytest.fail("there is no such kernel")

            def test_last():
                bench(torch.float32, 1)
        """,
    }
    folder = project(files)
    outcome = found(folder, "benchmark/test_perf.py", "--rows", "2")
    assert outcome.calls == [("dtype=float32", "test_norm"), ("dtype=float64", "test_norm"), ("-", "test_last")]
    assert [record.state for record in outcome.records.values()] == ["ok"] * 3
    assert outcome.errors == {HEAD: "1 tests failed, the first: test_missing: Failed: there is no such kernel"}
    (folder / "benchmark/test_absent.py").write_text("import no_such_library\n")
    why = "1 tests failed, the first: test_absent.py: ModuleNotFoundError: No module named 'no_such_library'"
    assert found(folder, "benchmark/test_absent.py").errors == {HEAD: why}
    (folder / "tiny_kernels/__init__.py").write_text("def norm(x):\n    return x * 1.25\n")
    report = gated(folder, "benchmark/test_perf.py", variants=("test_norm",), cases=("float32",))
    assert [(one.outcome, one.key.case) for one in report.cases] == [("failed", "dtype=float32")]  # another result


#: What Lockstep knows of pytest-benchmark.
PYTEST_BENCHMARK = """
    class BenchmarkFixture:
        _mode = None

        def __call__(self, function_to_benchmark, *args, **kwargs):
            raise AssertionError("it times by itself")

        def pedantic(self, target, args=(), kwargs=None, setup=None, teardown=None, rounds=1):
            raise AssertionError("it times by itself")
"""


def test_what_pytest_benchmark_times_is_taken(project, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the true one, where it is installed
    files = {
        "tiny_kernels/__init__": KERNELS,
        "pytest_benchmark/__init__": "",
        "pytest_benchmark/fixture": PYTEST_BENCHMARK,
        "benchmarks/conftest": """
            import pytest
            from pytest_benchmark.fixture import BenchmarkFixture

            @pytest.fixture
            def benchmark():
                made = BenchmarkFixture()
                yield made
                assert made._mode
        """,
        "benchmarks/norm_test": """
            import pytest
            import torch
            from tiny_kernels import norm

            @pytest.mark.parametrize("rows", [4, 8])
            def test_norm(benchmark, rows):
                assert benchmark(norm, x=torch.ones(rows, 4)).shape == (rows, 4)

            def test_pedantic(benchmark):
                made = benchmark.pedantic(norm, setup=lambda: ((torch.ones(2, 4),), {}), rounds=5)
                assert made.shape == (2, 4)
                ended = []
                benchmark.pedantic(norm, args=(torch.ones(2, 4),), teardown=ended.append)
                assert len(ended) == 1
        """,
    }
    outcome = found(project(files), "benchmarks/norm_test.py")
    assert outcome.errors == {}
    calls = [("rows=4", "test_norm"), ("rows=8", "test_norm"), ("-", "test_pedantic"), ("-", "test_pedantic append")]
    assert outcome.calls == calls
    assert [record.state for record in outcome.records.values()] == ["ok"] * 4


def test_a_script_of_a_package_imports_what_lies_above_it(project):
    script = """
        import torch
        from tiny_kernels import norm
        from ..utils import bench

        bench(lambda: norm(torch.ones(4, 4)))
    """
    helper = "from triton.testing import do_bench\n\ndef bench(function):\n    do_bench(function)\n"
    files = {"tiny_kernels/__init__": KERNELS, "examples/__init__": "", "examples/utils": helper}
    outcome = found(project({**files, "examples/norm/main": script}), "examples/norm/main.py")
    assert (outcome.calls, outcome.errors) == ([("-", "script")], {})


def test_a_script_without_a_package_is_under_test_itself(project):
    script = "import torch\nfrom triton.testing import do_bench\nx = torch.ones(4)\ndo_bench(lambda: x * {})\n"
    folder = project({"bench": script.format(2)})
    (folder / "bench.py").write_text(script.format(3))
    report = gated(folder, "bench.py")
    assert [verdict.outcome for verdict in report.cases] == ["failed"]  # another result


def test_helpers_of_tests_are_not_the_package_under_test(project):
    text = "import torch\nfrom test.reference import right\nfrom tiny_kernels import norm\n"
    files = {"src/tiny_kernels/__init__": KERNELS, "benchmark/scripts/bench": text, "test/reference": "right = 1\n"}
    found = Project.of(project(files) / "benchmark/scripts/bench.py")
    assert (found.packages, found.root.name, found.own) == (("tiny_kernels",), "src", False)
    assert "test" in found.local


def test_what_cannot_be_taken_says_which_line_and_why(project):
    folder = project(
        {
            "tiny_kernels/__init__": KERNELS,
            "own": "import time, torch, tiny_kernels\nstart = time.time()\n",
            "broken": "import tiny_kernels\nimport no_such_library\n",
            "late": """
            import torch, tiny_kernels
            from triton.testing import do_bench
            x = torch.ones(4, 4)
            do_bench(lambda: tiny_kernels.norm(x))
            raise RuntimeError("no more")
        """,
        }
    )
    assert "times by itself at line 2: start = time.time()" in gated(folder, "own.py").trouble
    assert "broken.py:2: ModuleNotFoundError: No module named 'no_such_library'" in gated(folder, "broken.py").trouble
    report = gated(folder, "late.py")
    assert report.trouble == ""
    assert len(report.cases) == 1
    assert any("late.py:6: RuntimeError: no more" in note for note in report.notes)
    with pytest.raises(NoScript, match="there is no script"):
        Project.of(folder / "absent.py")
    (folder / "half.py").write_text("import tiny_kernels\nfor\n")
    (folder / "whole.py").write_text("import half\n")
    for name in ("half.py", "whole.py"):
        with pytest.raises(NoScript, match=rf"^{folder / 'half.py'}:2: invalid syntax$"):
            Project.of(folder / name)


def test_the_digest_of_a_script_is_that_of_all_that_it_measures_by(project):
    files = {
        "tiny_kernels/__init__": KERNELS,
        "benchmarks/__init__": "",
        "benchmarks/helper": "from benchmarks.deep import size\n",
        "benchmarks/beside": "size = 2\n",
        "benchmarks/deep": "size = 1\n",
        "benchmarks/bench": "import tiny_kernels\nfrom benchmarks.helper import size\nfrom . import beside\n",
        "benchmarks/unused": "size = 3\n",
    }
    folder = project(files)

    def digest(*arguments):
        return Project.of(folder / "benchmarks/bench.py").digest(arguments)

    known = digest()
    assert digest("4096") != known
    for name, counts in {"bench": True, "helper": True, "deep": True, "beside": True, "unused": False}.items():
        file = folder / f"benchmarks/{name}.py"
        text = file.read_text()
        file.write_text(f'"""Say."""\n{text}  # a comment\n')
        assert digest() == known
        file.write_text(f"{text}\nmore = 1\n")
        assert (digest() != known) == counts, name
        file.write_text(text)
    (folder / "tiny_kernels/__init__.py").write_text("norm = abs\n")
    assert digest() == known
    assert Project.of(folder / "benchmarks/unused.py").digest(()) == "", "it is under test itself"


@pytest.mark.parametrize(
    "words", [["measure", "--script"], ["measure", "--json", "--script"], ["run", "--script"], ["adopt"]]
)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import time, tiny_kernels\nstart = time.time()\n", "times by itself at line 2: start = time.time()"),
        ("import tiny_kernels\nimport no_such_library\n", "install what the script needs into the Python that runs"),
    ],
    ids=["own", "broken"],
)
def test_a_script_without_a_call_is_told_by_each_verb(project, monkeypatch, capfd, words, text, reason):
    monkeypatch.chdir(project({"tiny_kernels/__init__": KERNELS, "bench": text}))
    assert run_verb(*words, "bench.py") == 3
    told = capfd.readouterr()
    assert (reason in told.err, told.err.count("bench.py:2") <= 1) == (True, True), told.err
    assert "{" not in told.out


def test_loops_around_a_call_name_it(project):
    """Numbers would move when a call is added: ``script #5`` would be another one."""
    folder = project(
        {
            "tiny_kernels/__init__": KERNELS,
            "helper": """
            from torch.utils.benchmark import Timer

            def sweep(sizes, make):
                for rows in sizes:
                    for op, (fn, skipped) in make(rows).items():
                        for _ in range(1):
                            Timer("fn()", globals={"fn": fn}).blocked_autorange()
            """,
            "bench": """
            import asyncio, torch, helper
            from tiny_kernels import norm
            from triton.testing import do_bench

            def make(rows):
                x = torch.ones(rows, 4)
                return {"norm": (lambda: norm(x), None), "sum": (lambda: norm(x).sum(), None)}

            def main():
                helper.sweep([8, 16], make)
                for place, dtype in enumerate((torch.float32, torch.float16)):
                    x = torch.ones(2, 4, dtype=dtype)
                    times = [do_bench(lambda: call(x)) for call in (norm, torch.nn.Identity())]

            def double(x):
                return norm(x)

            async def each(sizes):
                for rows in sizes:
                    yield rows

            async def later():
                async for rows in each([2]):
                    do_bench(lambda: norm(torch.ones(rows, 4)))

            for call in (norm, double, torch.exp, torch.nn.functional.gelu):
                do_bench(lambda: call(torch.ones(2, 4)))
            main()
            asyncio.run(later())
            """,
        }
    )
    outcome = found(folder, "bench.py")
    assert outcome.calls == [
        ("-", "script norm"),
        ("-", "script double"),
        ("-", "script exp"),
        ("-", "script gelu"),
        ("rows=8", "main norm"),
        ("rows=8", "main sum"),
        ("rows=16", "main norm"),
        ("rows=16", "main sum"),
        ("dtype=float32", "main norm"),
        ("dtype=float32", "main"),
        ("dtype=float16", "main norm"),
        ("dtype=float16", "main"),
        ("rows=2", "later"),
    ]


@pytest.mark.parametrize("names", ['{"norm": norm, "x": x}', "globals()"])
def test_buffers_of_a_timers_globals_are_shared(project, names):
    script = f"""
    import torch
    from tiny_kernels import norm
    from torch.utils.benchmark import Timer

    x = torch.ones(8, 4)
    Timer("norm(x)", globals={names}, label="rows").blocked_autorange()
    """
    [case] = gated(project({"tiny_kernels/__init__": KERNELS, "bench": script}), "bench.py").cases
    assert (case.outcome, case.shared) == ("same", True), case.reason


def test_measure_names_the_calls_where_a_pattern_matches_none(project, monkeypatch, capfd):
    monkeypatch.chdir(project({"tiny_kernels/__init__": KERNELS, "bench": PERF_REPORT}))
    assert run_verb("measure", "--script", "bench.py", "--variants", "Mine") == 3
    assert "no call matches --case and --variant: its variants are Ours, Torch" in capfd.readouterr().err


def test_the_verbs_take_a_script_without_a_configuration(project, monkeypatch, capfd):
    folder = project({"tiny_kernels/__init__": KERNELS, "benchmarks/bench_norm": PERF_REPORT})
    monkeypatch.chdir(folder)
    status = run_verb("measure", "--script", "benchmarks/bench_norm.py", "--quick", "--json", "--variants", "Ours")
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(row["case"], row["variant"], row["state"]) for row in rows] == [
        ("M=8,N=64", "Ours", "ok"),
        ("M=16,N=64", "Ours", "ok"),
    ]
    assert status == 0
    assert run_verb("run", "--script", "benchmarks/bench_norm.py") == 0
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True)[:8]
    (records,) = folder.glob(f"results/*/{commit}-lockstep.provenance.json*")
    provenance, stored = read_records(records)
    assert [record.state for record in stored] == ["ok"] * 4
    assert provenance.host["packages of bench_norm"] == "tiny_kernels"
    assert provenance.host["script bench_norm"] == Project.of(folder / "benchmarks/bench_norm.py").digest(())
    (result,) = folder.glob(f"results/*/{commit}-lockstep.json")
    assert "bench_norm.latency" in json.loads(result.read_text())["results"]
    for words, why in {
        ("x.py",): "there is no script",
        ("benchmarks/bench_norm.py", "--family", "linear"): "--family is of suites: leave it out with --script",
        ("benchmarks/bench_norm.py", "--lock", "base"): "--lock is of suites: leave it out with --script",
    }.items():
        status, printed = run_verb("gate", "--script", *words), capfd.readouterr()
        assert (status, why in printed.err + printed.out) == (4, True), printed
    assert run_verb("gate", "--script", "benchmarks/bench_norm.py", "--base", "HEAD", "--require-gpu") == 3
    assert "there is no GPU, and --require-gpu asks for one" in capfd.readouterr().out


#: A package that replaces an operation of torch for a while, as FlagGems does.
REPLACES = """
    import contextlib
    import torch

    @contextlib.contextmanager
    def used():
        library = torch.library.Library("aten", "IMPL")
        library.impl("normal_", lambda x, mean=0.0, std=1.0, *, generator=None: x.fill_(7), "CPU", allow_override=True)
        try:
            yield
        finally:
            library._destroy()
"""
REPLACED = """
    import torch
    import tiny_ops
    from triton.testing import do_bench

    for rows in (4, 8, 16):
        x = torch.randn(rows, 4)
        do_bench(lambda: x + 1)
        with tiny_ops.used():
            do_bench(lambda: x + 2)
"""


def test_inputs_that_one_version_draws_otherwise_accuse_nobody(project):
    # While one version waits in a timed call, its replacement of an operation serves the other version as well.
    report = gated(project({"tiny_ops/__init__": REPLACES, "bench": REPLACED}), "bench.py", budget_s=60)
    assert "failed" not in [verdict.outcome for verdict in report.cases]
    assert any("drew other inputs" in verdict.reason for verdict in report.cases)


#: Calls as decode steps and ``out=`` closures make them, and base's package.
IN_PLACE = """
    import torch
    import tiny_kernels as tiny
    from triton.testing import do_bench

    def bench(name, *tensors):
        return do_bench(lambda: getattr(tiny, name)(*tensors))

    x, state = torch.randn(8, 16), torch.zeros(8, 16)
    for name in ("step", "drop"):
        bench(name, x, state.clone())
    for name in ("fill", "silent", "head"):
        bench(name, x, torch.empty(10, 16).fill_(0.5 if tiny.HEAD else torch.nan))
    bench("tile", x, torch.empty(64).fill_(tiny.HEAD))
    bench("rescale", x.clone())
    bench("noise", x)
    bench("packed", x, torch.tensor(3.0 + tiny.HEAD))
"""
BASE_IN_PLACE = """
    import time

    import torch

    HEAD = 0

    def step(x, state):
        state += x
        return state * 2

    def drop(x, state):
        state.mul_(0.5).add_(x)
        return x + 1

    def fill(x, out):
        out[:8] = x * 2
        return out

    def silent(x, out):
        out[:8] = x * 2

    def head(x, out):
        out[:8] = x * 2
        return out[:8]

    def noise(x):
        return torch.full((3,), float(time.perf_counter_ns() % 1000003))

    def tile(x, scratch):
        scratch[:16] = x[0]
        return scratch[:16].sum() + x

    def rescale(x):
        return x.mul_(1.5)

    def packed(x, weight):
        return x * (weight - HEAD)
"""
WRONG_IN_PLACE = {
    "step": ("return state * 2", "return state * 2.1"),
    "drop": (".add_(x)", ""),
    "fill": ("out[:8] = x * 2\n        return out\n", "out[:8] = x * 2.1\n        return out\n"),
    "silent": ("def silent(x, out):\n        out[:8] = x * 2", "def silent(x, out):\n        out[:7] = x[:7] * 2"),
    "head": ("return out[:8]", "return out[:8] + 1"),
    "tile": ("scratch[:16] = x[0]", "scratch[:16] = x[1]"),
    "rescale": ("x.mul_(1.5)", "x.mul_(1.6)"),
}


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("wrong", [True, False])
def test_what_a_call_writes_is_compared_from_equal_state(project, wrong, apart):
    folder = project({"tiny_kernels/__init__": BASE_IN_PLACE, "bench": IN_PLACE})
    text = textwrap.dedent(BASE_IN_PLACE).replace("HEAD = 0", "HEAD = 1")
    for old, new in WRONG_IN_PLACE.values() if wrong else ():
        old, new = (part.replace("\n    ", "\n") for part in (old, new))
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "tiny_kernels/__init__.py").write_text(text)
    report = gated(folder, "bench.py", budget_s=90, apart=apart)
    told = {case.key.case.partition(",")[0].removeprefix("name="): case for case in report.cases}
    failed = {name for name, case in told.items() if case.outcome == "failed"}
    assert failed == ({*WRONG_IN_PLACE} if wrong else set()), {name: case.reason for name, case in told.items()}
    assert "results not compared: base's own output changes" in told["noise"].reason
    if not wrong:
        assert "results not compared: base's own output changes from call to call (1 case)" in headline(report)
    if wrong:
        assert "wrong: `tensors.item1` after the call is off by 1 of its norm" in told["drop"].reason
        assert told["silent"].reason.endswith("if it is no result: --scratch tensors.item1")
        without = gated(
            folder, "bench.py", budget_s=90, apart=apart, cases=("name=silent",), scratch=("tensors.item1",)
        )
        assert "failed" not in [case.outcome for case in without.cases]


def test_two_versions_that_one_process_cannot_hold_get_a_process_each(project):
    once = """
        import builtins
        import contextlib

        @contextlib.contextmanager
        def used():
            if getattr(builtins, "tiny_ops_is_used", False):
                raise RuntimeError("another version replaces the operation")
            builtins.tiny_ops_is_used = True
            try:
                yield
            finally:
                builtins.tiny_ops_is_used = False
    """
    report = gated(project({"tiny_ops/__init__": once, "bench": REPLACED}), "bench.py", budget_s=60)
    assert len(report.cases) == 6
    assert {verdict.outcome for verdict in report.cases} <= {"same", "unsure", "faster", "slower"}
    assert report.cases[2].epochs, "the call after the one at which head's script ended early"
    assert any("each version ran in a process of its own" in note for note in report.notes)


def test_an_installed_library_that_uses_the_package_is_each_version_s_own(project, tmp_path_factory, monkeypatch):
    site = tmp_path_factory.mktemp("site")
    (site / "model.py").write_text("from tiny_kernels import norm\n\ndef layer(x):\n    return norm(x)\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    script = """
        import model
        import tiny_kernels
        import torch
        from triton.testing import do_bench

        do_bench(lambda: model.layer(torch.ones(4, 4)))
    """
    folder = project({"tiny_kernels/__init__": KERNELS, "bench": script})
    (folder / "tiny_kernels/__init__.py").write_text(textwrap.dedent(KERNELS).replace("1e-6", "1.0"))
    [case] = gated(folder, "bench.py").cases
    assert (case.outcome, case.reason.partition(":")[0]) == ("failed", "wrong"), "head's norm is wrong"


@pytest.mark.parametrize("error", ["bench.py:7: OutOfMemoryError: CUDA out of memory", "bench.py:7: RuntimeError: no"])
def test_memory_that_both_versions_need_accuses_neither(error):
    verdict = refused(SeriesKey("s", "norm", "M=8", "warm"), {HEAD: error})
    assert verdict.outcome == ("unsure" if "Memory" in error else "failed")


def test_two_versions_that_replace_one_operator_of_torch_get_a_process_each(project):
    """torch refuses the second replacement, also while the first one's package is only looked at."""
    registered = """
        import torch

        library = torch.library.Library("aten", "IMPL")
        library.impl("sinc", lambda x: x + 1, "CPU", allow_override=False)
    """
    script = """
        import torch
        from triton.testing import do_bench

        do_bench(lambda: torch.ones(4) + 1)
        import tiny_ops
        do_bench(lambda: torch.ones(4).sinc())
    """
    report = gated(project({"tiny_ops/__init__": registered, "bench": script}), "bench.py", budget_s=60)
    assert {verdict.outcome for verdict in report.cases} <= {"same", "unsure", "faster", "slower"}
    assert len(report.cases) == 2
    assert any("each version ran in a process of its own" in note for note in report.notes), report.notes


def test_what_tuners_chose_is_kept_from_run_to_run(project, monkeypatch, capfd):
    bench = """
        import torch
        from tiny_kernels import double
        from triton.testing import do_bench

        x = torch.ones(128)
        do_bench(lambda: double(x))
    """
    folder = project({"tiny_kernels/__init__": TUNED_PACKAGE, "bench": bench})
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LOCKSTEP_CACHE", str(folder.parent / f"{folder.name}-cache"))
    told = []
    for _ in range(2):
        assert run_verb("measure", "--script", "bench.py", "--quick") == 0
        told.append("tuning _double" in capfd.readouterr().err)
    assert told == [True, False]
    assert not (folder / "results").exists()
    assert run_verb("run", "--script", "bench.py") == 0
    assert "_double" in (folder / "results/tuned.choices").read_text()
