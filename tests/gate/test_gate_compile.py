"""Whether kernels take longer to compile: a loop that unrolls further is found, an unchanged kernel is the same."""

import json
import textwrap
import time
from dataclasses import replace

import pytest
from busy import skip_if_unsure
from project import SUITE, make_project

from lockstep.gate.compile_pairs import WITHOUT_GPU, CompilePairs
from lockstep.gate.model import COMPILE, Group, GroupRequest, SeriesKey, Verdict
from lockstep.gate.report.report import Report, headline
from lockstep.gate.report.rows import rows
from lockstep.gate.sequential_decision import Test
from lockstep.machine_code.compile_time import CompileClock
from lockstep.machine_code.worker_session import TracingFailed
from lockstep.record.model import Estimate
from lockstep.suite.commit_sources import Tree

CASE = "M=2,K=1024,N=512"

#: Both kernels give the sums of a product; ``grown`` repeats a step as often as TURNS says.
KERNELS = """
    import torch
    import triton
    import triton.language as tl


    @triton.jit
    def _light(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


    @triton.jit
    def _grown(x, out, n, BLOCK: tl.constexpr, TURNS: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < n)
        for turn in tl.static_range(TURNS):
            value = tl.where(value > turn, tl.exp(value) - turn, tl.log(value * value + turn))
        tl.store(out + at, value, mask=at < n)


    def _product(x, weight, out, kernel, **constants):
        torch.mm(x, weight, out=out)
        if x.is_cuda:
            kernel[(triton.cdiv(out.numel(), 256),)](torch.empty_like(out), out, out.numel(), BLOCK=256, **constants)
        return out


    def plain(x, weight, *, out=None):
        return torch.mm(x, weight, out=out)


    def light(x, weight, *, out):
        return _product(x, weight, out, _light)


    def grown(x, weight, *, out):
        return _product(x, weight, out, _grown, TURNS=4)


    def broken(x, weight, *, out):
        return _product(x, weight, out, _light)


    def gone(x, weight, *, out):
        return _product(x, weight, out, _light)


    VARIANTS = {"plain": plain, "light": light, "grown": grown, "broken": broken, "gone": gone}
"""
LARGER = KERNELS.replace("TURNS=4", "TURNS=12")
#: ``broken`` calls a kernel without its arguments, and ``gone`` calls none.
CHANGED = (
    LARGER.replace("def broken(x, weight, *, out):\n        return _product(x, weight, out, _light)",
                   "def broken(x, weight, *, out):\n        return _product(x, weight, out, _grown, TURNS=None)")
    .replace("def gone(x, weight, *, out):\n        return _product(x, weight, out, _light)",
             "def gone(x, weight, *, out):\n        return torch.mm(x, weight, out=out)")
)  # fmt: skip


def tree(root, kernels):
    (root / "toy").mkdir(parents=True)
    (root / "toy/__init__.py").touch()
    (root / "toy/product.py").write_text(textwrap.dedent(kernels))
    return Tree(root.name, root, ("toy",))


def side_with_suites(root, kernels):
    """Return a side and the folder of today's suites, which lies in it."""
    side, suites = tree(root, kernels), root / "suites"
    suites.mkdir()
    (suites / "__init__.py").touch()
    (suites / "product.py").write_text(textwrap.dedent(SUITE))
    return side, suites


def judge(tmp_path, base, head, variants=("plain", "light", "grown"), deadline_s=120.0, least=0.15, within=0.5):
    pairs = CompilePairs(tree(tmp_path / "base", base), *side_with_suites(tmp_path / "head", head))
    try:
        found = {}
        for l2 in ("cold", "warm"):
            group = Group("product", CASE, l2, variants, COMPILE)
            asked = GroupRequest(group, dict.fromkeys(variants, Test(least, 0.01, 3, within)))
            deadline = time.monotonic() + deadline_s
            found |= {(one.key.variant, one.key.l2): one for one in pairs.judge(asked, deadline, {"device": "cpu"})}
        return found
    finally:
        pairs.close()


@pytest.mark.timeout(300)
def test_a_kernel_that_takes_longer_is_found_twice_beside_one_that_breaks_and_one_that_is_gone(tmp_path):
    found = judge(tmp_path, KERNELS, CHANGED, ("plain", "grown", "broken", "gone"))
    worse = found["grown", "cold"]
    skip_if_unsure(worse.outcome)
    assert (worse.outcome, worse.confirmed) == ("slower", True), worse.reason
    assert worse.change.low > 0.15
    assert worse.head_s / worse.base_s > 1.3
    assert worse.of_cost == f"compile time {1e3 * worse.base_s:.2f} → {1e3 * worse.head_s:.2f} ms"
    assert found["grown", "warm"] == replace(worse, key=replace(worse.key, l2="warm")), "one measurement for both"
    assert (found["plain", "cold"].outcome, found["plain", "cold"].unchanged) == ("same", True), "it compiles nothing"
    broken = found["broken", "warm"]
    assert (broken.outcome, broken.reason, broken.in_base) == ("failed", "a kernel of head does not compile", False)
    gone = found["gone", "warm"]
    assert (gone.outcome, gone.reason) == ("removed", "head compiles no Triton kernel")


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_an_equal_kernel_beside_one_that_takes_longer_is_not_named(tmp_path):
    light = judge(tmp_path, KERNELS, LARGER, ("plain", "light"))["light", "cold"]
    assert (light.outcome, light.unchanged) in (("same", False), ("unsure", False)), light


def test_nobody_is_blamed_when_the_time_is_over_or_a_side_cannot_be_traced(tmp_path):
    found = judge(tmp_path, KERNELS, LARGER, ("grown",), deadline_s=0.0)["grown", "warm"]
    assert (found.outcome, found.reason) == ("unsure", "the budget did not reach it")
    found = judge(tmp_path / "other", "raise RuntimeError('no')", KERNELS, ("grown",))["grown", "warm"]
    assert found.outcome == "na"
    assert "its kernels are not known: cannot be imported" in found.reason


def test_the_headline_and_a_row_give_both_times():
    key = SeriesKey("work", "rows", "M=2", "warm")
    compiled, change = replace(key, quantity=COMPILE), Estimate(0.5, 0.4, 0.6)
    worse = Verdict(compiled, "slower", change=change, base_s=0.1, head_s=0.15, confirmed=True)
    report = Report("main", "head", 0.01, 0.99, 60.0, 1, {"device": "cuda"}, (Verdict(key, "same"), worse))
    assert report.state == "slower"
    assert "1 case: compile time 100.00 → 150.00 ms: work rows by +50.00 %" in headline(report)
    [row] = rows(report)
    assert (row.cells[2], row.cells[5:7]) == ("rows (compile)", ("", ""))
    assert "compile time 100.00 → 150.00 ms" in row.cells[-1]


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_the_command_finds_it_in_its_own_quantity_alone(tmp_path):
    project = make_project(tmp_path / "project", timeout=20.0)
    project.write("toy/product.py", textwrap.dedent(KERNELS))
    project.commit("Kernels")
    project.write("toy/product.py", textwrap.dedent(LARGER))
    path = project.root / "gate.json"
    ask = ("gate", "--json", str(path), "--case", "M=2", "--budget", "120s", "--min-effect", "95%")
    done = project.lockstep(*ask, "--variant", "grown", "--costs", "compile")
    assert done.returncode == 1, done.stdout
    found = {(one["key"]["variant"], one["key"]["quantity"]): one for one in json.loads(path.read_text())["cases"]}
    assert {name for name, one in found.items() if one["outcome"] == "slower"} == {("grown", "compile")}
    assert "--costs compile" in done.stdout, "the command that judges the case again"


@pytest.mark.timeout(300)
def test_another_process_traces_the_kernels_again_after_one_was_killed(tmp_path):
    clock = CompileClock(*side_with_suites(tmp_path / "side", KERNELS), WITHOUT_GPU)
    try:
        before = clock.seconds("product", CASE, ["grown"])
        clock._worker.kill()
        with pytest.raises(TracingFailed):
            clock.seconds("product", CASE, ["grown"])
        assert clock.seconds("product", CASE, ["grown"]).keys() == before.keys() == {"grown"}
    finally:
        clock.close()
