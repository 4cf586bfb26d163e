"""``lockstep code diff --toolchain``: one commit under two compilers, of which one has another default option."""

import json
import os
import re
import subprocess
import sys
import textwrap
from importlib.metadata import version

import pytest
from project import KERNELS, make_project
from wheels import make_environment, other_triton

from lockstep.compare.two_sides import Side, compare, differing
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def scale(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < count)
    tl.store(out + at, value * 3.0 + value * value, at < count)


@triton.jit
def copy(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < count), at < count)


def launch(x, weight):
    out = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    copy[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


VARIANTS = {"plain": plain, "twice": twice, "launch": launch}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    room = tmp_path_factory.mktemp("toolchains")
    project = make_project(room / "project")
    listed = 'VARIANTS = {"plain": plain, "twice": twice}\n'
    assert listed in KERNELS
    project.write("toy/product.py", textwrap.dedent(KERNELS).replace(listed, KERNEL))
    project.commit("Launch kernels")
    packages = make_environment(room / "unfused")
    old, new = '"TRITON_DEFAULT_FP_FUSION", True', '"TRITON_DEFAULT_FP_FUSION", False'
    other_triton(packages, "99.1", "knobs.py", old, new)
    other_triton(make_environment(room / "ancient"), "3.3.1", "knobs.py", old, new)
    return project


def diff(project, *arguments):
    done = project.lockstep("code", "diff", "--toolchain", *arguments, "--target", "sm_90")
    return done.returncode, done.stdout


def test_the_changed_default_and_each_changed_kernel_are_told(project, tmp_path):
    code, shown = diff(project, "installed", "../unfused", "HEAD", "--worse", "--markdown", str(tmp_path / "said.md"))
    assert code == 1, shown
    assert "sm_90: installed → ../unfused, both at HEAD" in shown
    assert "→ 99.1" in shown
    assert "  default of enable_fp_fusion True → False" in shown
    assert "\n  machine code: 1 worse\n    scale (toy/product.py:" in shown
    assert "instructions " in shown
    assert "copy (toy" not in shown, "it multiplies nothing"
    said = (tmp_path / "said.md").read_text()
    assert said.startswith("### Machine code differs on sm_90")
    assert "default of enable_fp_fusion True → False" in said


def test_the_other_direction_is_better_and_json_has_the_same(project):
    code, shown = diff(project, "../unfused", "installed", "--worse", "--json")
    assert code == 0, shown
    told = json.loads(shown[shown.index("{\n") :])
    assert (told["base"], told["head"], told["commit"]) == ("../unfused", "installed", ".")
    [target] = told["targets"]
    assert "default of enable_fp_fusion False → True" in target["compilers"]["differences"]
    assert target["compilers"]["base"]["versions"]["triton"] == "99.1"
    [change] = target["changes"]
    assert (change["kernel"], change["verdict"]) == ("scale", "better"), "copy multiplies nothing"
    before, after = (change[side]["machine"] for side in ("before", "after"))
    assert f"registers {before['registers']} → {after['registers']}" in change["sentence"]
    assert f"instructions {before['mix']['all']} → {after['mix']['all']}" in change["sentence"]
    assert {case["variant"] for case in change["cases"]} == {"launch"}


def test_the_same_toolchain_on_both_sides_changes_nothing(project):
    code, shown = diff(project, "installed", "installed", "--exit-code")
    assert (code, "no difference found" in shown) == (0, True), shown
    code, shown = diff(project, "../unfused", "../unfused", "--exit-code")
    assert (code, "no difference found" in shown) == (0, True), shown


def test_a_triton_that_cannot_be_traced_is_named(project):
    code, shown = diff(project, "installed", "../ancient")
    assert code == 3
    assert "describing the compiler of . with ../ancient failed: " in shown
    assert "Triton 3.3.1 cannot be traced: tracing needs Triton 3.5 or later" in shown


def test_two_commits_are_compared_under_another_toolchain(project):
    code, shown = diff(project, "../unfused", "../unfused", "HEAD~1", "HEAD")
    assert code == 0, shown
    assert "sm_90: HEAD~1 → HEAD" in shown
    assert "compiling " not in shown, "the variant is new"
    # Other tests leave the code of HEAD in the cache.
    assert "tracing product of HEAD~1 with ../unfused for sm_90" in shown


@pytest.mark.thorough
def test_each_toolchain_is_a_machine_that_compares_with_the_other(project, tmp_path):
    commit = project.git("rev-parse", "HEAD")
    for toolchain in ("installed", "../unfused"):
        done = project.lockstep("code", "history", "HEAD^!", "--target", "sm_90", "--toolchain", toolchain)
        assert "; 1 files written" in done.stdout, done.stdout
    results = Store.open(project.root / "results", cache=tmp_path / "cache").current()
    names = "sm_90-compiled", "sm_90-compiled@triton-99.1"
    assert tuple(sorted(results.machines)) == names
    sides = [Side(name, commit) for name in names]
    runs = [results.run_at(side.machine, side.commit) for side in sides]
    assert [run.toolchain["triton"] for run in runs] == [version("triton"), "99.1"]
    assert "triton" in {what for what, *_ in differing(*runs)}
    found = compare(results, *sides, "latency", Thresholds())
    case = {pair.suite: pair for pair in found if pair.base_variant == "launch"}
    assert case["product.instructions"].verdict == "slower"
    assert case["product.instructions"].head > case["product.instructions"].base
    assert case["product.launches"].verdict == "same"
    shown = project.lockstep("code", "show", "HEAD", "--toolchain", "../unfused", "--target", "sm_90",
                             "--variant", "launch", "--case", "M=2", "--json")  # fmt: skip
    [row] = [json.loads(line) for line in shown.stdout.splitlines() if line.startswith("{")]
    assert row["quantities"]["instructions"] == case["product.instructions"].head


def test_a_commit_without_the_family_is_named(project):
    code, shown = diff(project, "installed", "../unfused", "HEAD~2")
    assert (code, "nothing to compare: HEAD~2 lacks the family product" in shown) == (3, True), shown


def test_wrong_words_are_usage(project):
    for arguments, said in (
        (("triton", "installed"), "'triton' is not a toolchain"),
        (("installed", "../unfused", "HEAD~1", "HEAD"), "two toolchains are compared at one commit"),
        (("installed", "installed", "nowhere"), "no commit 'nowhere'"),
    ):
        code, shown = diff(project, *arguments)
        assert (code, said in shown) == (4, True), shown


def test_each_release_is_compared_with_the_one_before_it(project):
    # The environments stand for releases, which pip would have to install.
    program = """
from lockstep.commands import cli, code_diff
code_diff.releases = lambda text: ["installed", "../unfused", "../unfused"]
cli.main()
"""
    command = [sys.executable, "-c", program, "code", "diff", "--releases", "x==1..2", "--target", "sm_90"]
    done = subprocess.run(command, cwd=project.root, env=project._environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    assert shown.index("sm_90: installed → ../unfused") < shown.index("sm_90: ../unfused → ../unfused")
    first, second = shown[shown.index("In short:") :].splitlines()[1:3]
    assert re.fullmatch(r"\.\./unfused, sm_90: \d+ same, \d changed; worse: .*instructions of \d.*", first)
    assert second == "../unfused, sm_90: same sources"


def test_without_a_commit_the_working_tree_is_compared_with_head(project):
    done = project.lockstep("code", "diff", "--target", "sm_90")
    assert (done.returncode, "sm_90: HEAD → ." in done.stdout) == (0, True), done.stdout


@pytest.mark.skipif("LOCKSTEP_TEST_TOOLCHAIN" not in os.environ, reason="it names another Triton: triton==3.6.0")
def test_another_release_of_triton_compiles_every_kernel_anew(project):
    code, shown = diff(project, os.environ["LOCKSTEP_TEST_TOOLCHAIN"], "installed", "--json")
    assert code == 0, shown
    [target] = json.loads(shown[shown.index("{\n") :])["targets"]
    assert any(line.startswith("triton ") for line in target["compilers"]["differences"])
    assert {kernel["kernel"] for kernel in target["kernels"]} == {"scale", "copy"}
    assert target["cases"].get("unknown", 0) == 0
