"""Kernels that tune themselves are told by configuration, and what stops a trace is listed with its line."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from asv.results import Results
from exact import FACTS
from rooms import room_of

from lockstep.asv.exact_results import chosen_configurations, write_exact
from lockstep.machine_code.compiled_tree import codes_of
from lockstep.machine_code.differences.compare import compare
from lockstep.machine_code.differences.report import diff_lines, obstacle_lines
from lockstep.machine_code.exact_quantities import exact_quantities, quantity_ranges, why_unknown
from lockstep.machine_code.model import CaseKey
from lockstep.machine_code.targets import Target
from lockstep.processes.toolchain import INSTALLED
from lockstep.record.file import SUFFIX, write_records
from lockstep.record.model import Estimate, Provenance, Record
from lockstep.suite.commit_sources import Tree
from lockstep.suite.discovery import load_suites

SM90 = Target.parse("sm_90")

SUITE = """
    import importlib

    from lockstep import Cost, Suite, grid, variant


    class Scale(Suite):
        baseline = "eager"
        cases = quick = grid(M=[4096])

        def draw(self, new, M):
            return {"x": new.normal(M, dtype="float32")}

        def reference(self, x):
            return x.double() * 2

        def cost(self, M):
            return Cost(M, 8 * M)

        @variant
        def eager(self, x):
            return x * 2

        @variant
        def tuned(self, x):
            from toy.scale import double

            return double(x)

        @variant
        def twelve(self, x):
            from toy.twelve import double

            return double(x)

        @variant
        def stored(self, x):
            from toy.stored import double

            return double(x)

        @variant
        def measuring(self, x):
            from toy.measuring import double

            return double(x)

        @variant
        def pruned(self, x):
            from toy.pruned import double

            return double(x)

        @variant
        def memory(self, x):
            from toy.memory import double

            return double(x)

        @variant
        def aligned(self, x):
            from toy.addresses import aligned

            return aligned(x)

        @variant
        def far(self, x):
            from toy.addresses import far

            return far(x)

        @variant
        def ordered(self, x):
            from toy.addresses import ordered

            return ordered(x)

        @variant
        def storage(self, x):
            from toy.addresses import storage

            return storage(x)

        @variant
        def typed(self, x):
            from toy.addresses import typed

            return typed(x)

        @variant
        def heuristic(self, x):
            from toy.addresses import heuristic

            return heuristic(x)
"""

SCALE = """
    import torch
    import triton
    import triton.language as tl

    CONFIGURATIONS = [triton.Config({"BLOCK": 256}, num_warps=warps) for warps in (2, 4, 8)]


    @triton.autotune(CONFIGURATIONS, key=["count"])
    @triton.jit
    def scale(x, out, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, at < count) * 2, at < count)


    def double(x):
        out = torch.empty_like(x)
        scale[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
"""

#: Asks, while it is imported, what no table answers.
MEMORY = """
    import torch

    try:
        FREE = torch.cuda.mem_get_info()[0]
    except Exception:
        FREE = 0


    def double(x):
        return x * 2 if FREE > 0 else x + x
"""

ADDRESSES = """
    import triton
    import triton.language as tl

    from toy.scale import double

    GRAIN = 1 << 30


    def aligned(x):
        both = (2 * x.shape[0] | x.data_ptr() | x[4:].data_ptr()) % 16
        return double(x) if both == 0 and x.data_ptr() % 16 == 0 and x[4:].data_ptr() & 15 == 0 else x * 2


    def far(x):
        return double(x) if x.data_ptr() % GRAIN else x * 2


    def ordered(x):
        out = double(x)
        return max([x, out], key=lambda each: each.data_ptr()) * 1


    def storage(x):
        return double(x) if x.untyped_storage().data_ptr() // GRAIN % 2 else x * 2


    def typed(x):
        return double(x) if x.storage().data_ptr() % GRAIN else x * 2


    @triton.heuristics({"BLOCK": lambda args: 64 if args["x"].data_ptr() % GRAIN else 128})
    @triton.jit
    def touch(x, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at) * 2)


    def heuristic(x):
        touch[(1,)](x)
        return x
"""

#: What strangers' packages do on the way to a launch. Each once stopped a trace.
TWELVE = """
    import functools
    import inspect
    import platform
    import sys
    import warnings
    from typing import TYPE_CHECKING

    import torch
    import torch.distributed as dist
    import triton
    from triton.runtime.autotuner import Autotuner

    if TYPE_CHECKING:
        from torch.distributed import ProcessGroup

    HERE = sys.modules[__name__]
    DEVICE = getattr(torch, "cuda")
    MACHINE = platform.machine()
    NAMES = dir(torch.distributed)
    MATH = __import__("math")


    class Stored(Autotuner):
        def run(self, *args, **kwargs):
            return super().run(*args, **kwargs)


    def guarded(function):
        names = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args, **kwargs):
            assert names == ["x", "group"] and hasattr(globals()["HERE"], "double") and DEVICE.device_count() == 1
            return function(*args, **kwargs)

        return call


    @torch.compiler.disable
    @guarded
    def call(x, group: "ProcessGroup | None" = None):
        from toy import scale

        if group is not None:
            warnings.warn("reduced")
            dist.all_reduce(x, op=dist.ReduceOp.SUM, group=group)
        kernel = scale.scale
        kernel.__class__ = Stored
        return scale.double(x)


    double = call
"""

#: Stores what a tuner compiled, and launches it itself from the second call on, as FlagGems does.
STORED = """
    import functools

    import torch
    import triton

    from toy.scale import scale


    class Stored:
        def __init__(self, tuner):
            self.tuner, self.compiled = tuner, {}

        def run(self, *arguments, grid):
            if arguments[-1] in self.compiled:
                kernel, settings = self.compiled[arguments[-1]]
                return kernel[(*grid(settings), 1, 1)](*arguments, settings["BLOCK"])
            kernel = self.tuner.run(*arguments, grid=grid, warmup=False)
            self.compiled[arguments[-1]] = kernel, self.tuner.best_config.kwargs


    entry = Stored(scale)


    def double(x):
        torch.cuda.get_device_capability((0, "what torch takes for the current device"))
        out = torch.empty_like(x)
        entry.run(x, out, x.numel(), grid=lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),))
        return out
"""

#: A tuner with a ``run`` of its own, which measures and chooses itself.
MEASURING = """
    import torch
    import triton
    from triton.runtime.autotuner import Autotuner

    from toy.scale import CONFIGURATIONS, scale


    class Measuring(Autotuner):
        def run(self, *args, **kwargs):
            self.nargs = dict(zip(self.arg_names, args))
            timings = {}
            for config in self.configs:
                try:
                    timings[config] = self._bench(*args, config=config, **kwargs)
                except Exception:
                    timings[config] = [float("inf")]
            self.best_config = min(timings, key=timings.get)
            return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


    tuned = Measuring(scale.fn, scale.arg_names, CONFIGURATIONS, ["count"], None, None)


    def double(x):
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
"""

#: Leaves out configurations by the arguments of the call, as lmdeploy's ``fused_moe`` does.
PRUNED = """
    import torch
    import triton

    from toy.scale import CONFIGURATIONS, scale


    def few(configurations, arguments, **settings):
        return [each for each in configurations if each.num_warps * 1024 <= arguments["x"].shape[0] * 4]


    pruning = {"early_config_prune": few}
    listed = [*CONFIGURATIONS, triton.Config({"BLOCK": 256}, num_warps=32)]
    tuned = triton.autotune(listed, ["count"], pruning)(scale.fn)


    def double(x):
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
"""

FILES = {
    "__init__": "from toy import addresses, measuring, memory, pruned, scale, stored, twelve\n",
    "measuring": MEASURING,
    "pruned": PRUNED,
    "stored": STORED,
    "scale": SCALE,
    "memory": MEMORY,
    "addresses": ADDRESSES,
    "twelve": TWELVE,
}


def lay_out(root, **changed):
    """A tree with the package under test, in which some files are changed."""
    (root / "toy").mkdir(parents=True)
    for name, text in (FILES | changed).items():
        (root / f"toy/{name}.py").write_text(textwrap.dedent(text))
    return Tree(root.name, root, ("toy",))


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    with room_of(tmp_path_factory.mktemp("tuned"), "tuned_suites", scale=SUITE) as room:
        yield room


@pytest.fixture(scope="module")
def suite(room):
    return load_suites(room / "tuned_suites")["scale"]


@pytest.fixture(scope="module")
def base(room):
    return lay_out(room / "base")


@pytest.fixture(scope="module")
def codes(base, suite):
    return codes_of(base, [suite], SM90)


def of(codes, variant):
    return codes[CaseKey("scale", variant, "M=4096")]


def test_a_tuned_kernel_has_a_range_over_its_configurations(codes):
    tuned = of(codes, "tuned")
    assert [kernel.configuration.split(", ")[:2] for kernel in tuned.kernels] == [
        ["BLOCK 256", f"num_warps {warps}"] for warps in (2, 4, 8)
    ]
    ranges = quantity_ranges(tuned)
    assert ranges["launches"] == (1, 1)
    figures = [kernel.machine.figures["instructions"] for kernel in tuned.kernels]
    assert ranges["instructions"] == (min(figures), max(figures))
    assert min(figures) < max(figures)
    assert "instructions" not in exact_quantities(tuned)
    assert exact_quantities(tuned)["launches"] == 1
    # A record of a GPU names what was chosen, without what all configurations share.
    chosen = quantity_ranges(tuned, {"scale": "num_warps 2"})
    assert chosen["instructions"] == (figures[0], figures[0])
    assert why_unknown(tuned) == ""


def test_a_removed_configuration_is_told_and_nothing_else(base, suite, room):
    head = lay_out(room / "fewer", scale=SCALE.replace("(2, 4, 8)", "(2, 8)"))
    comparison = compare(base, head, [suite], SM90)
    [change] = [change for change in comparison.changes if change.kind == "kernel"]
    assert change.kernel == "scale"
    assert change.sentence == "configuration removed: num_warps 4"
    assert not [change for change in comparison.changes if change.kind == "host"]
    lines = list(diff_lines(comparison, "base", "head"))
    assert "changed" in lines[1], "the summary comes first"


def test_a_changed_configuration_is_compared_with_itself(base, suite, room):
    head = lay_out(room / "wider", scale=SCALE.replace("at < count) * 2", "at < count) * 2 + tl.load(x)"))
    comparison = compare(base, head, [suite], SM90)
    kernels = [change for change in comparison.changes if change.kind == "kernel"]
    assert kernels
    assert all(change.before.configuration == change.after.configuration for change in kernels)
    told = re.compile(r"    scale \(toy/scale.py:\d+\) with BLOCK 256, num_warps \d.*: .*instructions \d+ → \d+")
    lines = list(diff_lines(comparison, "a", "b"))
    assert any(map(told.fullmatch, lines))
    assert "  --worse leaves out scale: without a GPU the tuner's choice is not known" in lines


def test_what_strangers_packages_do_stops_no_trace(codes):
    assert (of(codes, "twelve").unknown, len(of(codes, "twelve").kernels)) == ("", 3)


def test_a_compiled_kernel_that_a_package_launches_itself_is_its_launches(codes):
    stored, tuned = of(codes, "stored"), of(codes, "tuned")
    assert (stored.unknown, quantity_ranges(stored)) == ("", quantity_ranges(tuned))
    assert [kernel.configuration for kernel in stored.kernels] == [kernel.configuration for kernel in tuned.kernels]
    assert stored.host == tuple(step for step in tuned.host if not step.startswith("tunes "))


def test_a_tuner_that_measures_by_itself_is_told_by_configuration(codes):
    assert of(codes, "measuring").host == of(codes, "tuned").host


def test_a_tuner_leaves_out_configurations_by_the_arguments_of_the_call(codes):
    assert of(codes, "pruned") == of(codes, "tuned")


def test_a_question_of_a_module_stops_only_the_cases_that_reach_it(codes):
    memory = of(codes, "memory")
    assert "mem_get_info" in memory.unknown
    assert {obstacle.line for obstacle in memory.obstacles} == {"toy/memory.py:5"}
    assert [of(codes, variant).unknown for variant in ("eager", "tuned", "aligned")] == [""] * 3


@pytest.mark.parametrize("variant", ["far", "ordered", "storage", "typed", "heuristic"])
def test_what_depends_on_an_address_is_not_traced(codes, variant):
    assert "computes with a tensor's address" in of(codes, variant).unknown
    assert of(codes, variant).obstacles[0].line.startswith("toy/addresses.py:")


def test_the_doctor_lists_question_line_cases_and_advice(codes):
    lines = "\n".join(obstacle_lines(codes, "base"))
    assert lines.startswith("base: 7 of 13 cases are traced; 6 questions stop the others")
    assert "toy/memory.py:5: asks torch.cuda.mem_get_info" in lines
    assert "    stops 1: scale memory at M=4096\n    Do: ask in the function" in lines
    assert "toy/addresses.py:16: computes with a tensor's address (mod)" in lines


COMMIT = "a" * 40


def history(folder, suite, codes):
    """Write the commit's exact quantities; return what was written, and value and interval of the tuned kernel."""
    chosen = chosen_configurations(folder, COMMIT, SM90)
    written = write_exact(folder, SM90, COMMIT, 0, "", [suite], codes, INSTALLED, FACTS, chosen)
    results = Results.load(str(next(folder.glob("sm_90-compiled/*lockstep.json"))))
    params = results.get_result_params("scale.instructions")
    place = params[0].index("'tuned'")
    stats = results.get_result_stats("scale.instructions", params)[place]
    value = results.get_result_value("scale.instructions", params)[place]
    return written, value, (stats["ci_99_a"], stats["ci_99_b"]) if stats else None


def test_a_history_has_the_range_of_a_tuned_kernel_or_what_a_record_chose(suite, codes, tmp_path):
    figures = [kernel.machine.figures["instructions"] for kernel in of(codes, "tuned").kernels]
    written, value, interval = history(tmp_path, suite, codes)
    assert (value, interval) == (max(figures), (min(figures), max(figures)))
    assert written.ranges > 0
    [(reason, cases)] = [each for each in written.reasons.items() if "mem_get_info" in each[0]]
    assert (reason.partition(":")[0], cases) == ("not traced", [CaseKey("scale", "memory", "M=4096")])

    host = {"device": "cuda", "capability": "9.0"}
    provenance = Provenance(COMMIT, "lockstep", "h200", "2026-01-01T00:00:00+00:00", "", "base", host, {}, 6)
    latency = Estimate(1e-6, 9e-7, 1.1e-6)
    record = Record("scale", "tuned", "M=4096", "cold", "ok", "1", latency=latency, chosen={"scale": "num_warps 2"})
    (tmp_path / "h200").mkdir()
    write_records(tmp_path / f"h200/{COMMIT[:8]}-lockstep{SUFFIX}", provenance, [record])
    _, value, interval = history(tmp_path, suite, codes)
    assert (value, interval) == (figures[0], None)


#: Identifies and compiles nine configurations of a tuned kernel, and prints how often the compiler shows progress.
COMPILES = """
    from pathlib import Path

    import torch

    from lockstep.machine_code.compiling.build import BATCH, build, identify
    from lockstep.machine_code.targets import Target
    from lockstep.machine_code.tracing.recorded_launches import noted
    from toy import scale

    requests, beats = [], []
    sizes = [(block, warps) for block in (64, 128, 256) for warps in (1, 2, 4)]
    scale.scale.configs = [scale.triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in sizes]
    with noted(Target.parse("sm_90"), lambda request, *_: requests.append(request)):
        scale.double(torch.empty(4096, device="meta"))
    kernels = identify(requests, Path(), 1, lambda: beats.append("identified"))
    built = build(list(zip(requests, kernels)), 1, lambda: beats.append("built"))
    tasks = -(-len(built) // BATCH)
    print(all(kernel.machine for kernel in built), tasks, beats.count("identified"), beats.count("built"))
"""


def test_the_compiler_shows_progress_after_every_few_kernels(base):
    tests = Path(__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (base.root, tests.parent, tests)))
    command = [sys.executable, "-c", textwrap.dedent(COMPILES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "3", "3", "3"]
