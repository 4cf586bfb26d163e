"""Releases of a package as the change: real wheels, a real pip without a network, and a script as it is."""

import json
from types import ModuleType

import pytest
from busy import skip_if_unsure
from project import make_project
from verb import run_verb
from wheels import make_wheel

from lockstep.scripts.timers import suites

SCRIPT = """
import torch
from torch.utils.benchmark import Timer

import pace

x = torch.ones(64, 64)
for name in pace.NAMES:
    Timer("f(x)", globals={"f": getattr(pace, name), "x": x}, label=name).blocked_autorange()
"""

BASE = """
from importlib.metadata import version

assert version("pace") == "1.0"
NAMES = ["norm", "scale", "old"]

def norm(x):
    return x / 2

def scale(x):
    return 2 * x

old = scale
"""

#: A wrong call, one that takes some ten times as long, and one that is new.
HEAD = BASE.replace("1.0", "1.1").replace("old", "fresh").replace("x / 2", "x / 3")
HEAD = HEAD.replace("    return 2 * x", "    for _ in range(12):\n        x + 1\n    return 2 * x")


@pytest.fixture
def gated(tmp_path, monkeypatch, capfd):
    """Return a function that writes two releases, compares them by the script, and returns status, report and text."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.py").write_text(SCRIPT)

    def run(base, head, *options, compiled=False):
        for number, code in (("1.0", base), ("1.1", head)):
            make_wheel(tmp_path / "wheels", "pace", number, code, compiled=compiled)
        given = ["--package", "pace==1.0..1.1", "--quick", "--budget", "40s", "--json", "report.json", *options]
        status = run_verb("gate", "--script", "bench.py", *given)
        report = json.loads((tmp_path / "report.json").read_text()) if (tmp_path / "report.json").exists() else {}
        return status, report, capfd.readouterr()

    return run


def outcomes(report):
    return {case["key"]["variant"]: case["outcome"] for case in report["cases"]}


@pytest.mark.parametrize("compiled", [False, True])
def test_a_release_is_compared_with_an_older_one_call_by_call(gated, compiled):
    status, report, told = gated(BASE, HEAD, compiled=compiled)
    found = outcomes(report)
    assert {name: found[name] for name in ("norm", "old", "fresh")} == {
        "norm": "failed", "old": "removed", "fresh": "new"
    }  # fmt: skip
    assert "wrong: output 0" in told.out
    assert status == 2
    skip_if_unsure(found["scale"])
    assert found["scale"] == "slower", told.out
    assert report["headline"].startswith("pace 1.0 → 1.1: 1 case failed: bench norm, wrong: output 0 ")
    assert "1 case slower: bench scale by +" in report["headline"]
    assert "--script bench.py --base pace==1.0 --head pace==1.1 --case - --variant norm" in told.out


def test_releases_of_the_same_code_are_the_same(gated):
    same = BASE.replace('assert version("pace")', "version")
    status, report, _ = gated(same, f"# a comment\n{same}")
    assert (status, outcomes(report)) == (0, {"norm": "same", "scale": "same", "old": "same"})


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_release_that_cannot_be_imported_fails(gated, compiled):
    status, report, _ = gated(BASE, "raise RuntimeError('needs more')\n", compiled=compiled)
    assert (status, outcomes(report)) == (2, {"(script)": "failed"})
    assert "RuntimeError: needs more (at" in report["headline"]
    assert report["headline"].startswith("pace 1.0 → 1.1: 1 case failed: ")


def test_a_call_that_kills_the_process_of_its_release_fails_and_the_others_go_on(gated):
    deadly = BASE.replace("1.0", "1.1").replace("    return x / 2", "    import os\n    os.kill(os.getpid(), 9)")
    status, report, told = gated(
        BASE, deadly, "--variant", "norm", "--variant", "old", "--budget", "16s", compiled=True
    )
    [norm, *others] = report["cases"]
    assert (status, norm["outcome"]) == (2, "failed")
    assert norm["reason"] == "pace==1.1: killed by SIGKILL in its check"
    assert all(case["epochs"] for case in others), told.out
    assert "changes count from 2% on" in told.out


def test_a_library_that_uses_the_package_is_each_release_s_own(gated, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/model.py").write_text("from pace import norm\n\ndef layer(x):\n    return norm(x)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    (tmp_path / "bench.py").write_text(
        SCRIPT.replace("import pace\n", "import model, pace\n")
        .replace("getattr(pace, name)", "model.layer")
        .replace("in pace.NAMES", "in ['layer']")
    )
    status, report, _ = gated(BASE, HEAD, "--budget", "8s")
    assert (status, outcomes(report)) == (2, {"layer": "failed"}), "head's norm is wrong"


def test_nothing_is_said_where_the_older_release_cannot_be_imported(gated):
    head = BASE.replace("1.0", "1.1")
    status, report, _ = gated("raise RuntimeError('needs more')\n", head, "--budget", "8s", compiled=True)
    assert status == 3
    assert not [note for note in report["notes"] if "needs more" in note], "it is told once"
    assert report["trouble"].startswith("pace==1.0: the script ended before its first timed call: bench.py:5: Runt")


def test_a_release_that_pip_does_not_know_is_told_in_its_words(gated, capfd):
    gated(BASE, BASE, "--base", "main")
    assert run_verb("gate", "--script", "bench.py", "--package", "pace==1.0..9.9") == 3
    assert "pip does not install pace==9.9: ERROR: Could not find a version that satisfies" in capfd.readouterr().err


@pytest.mark.parametrize("words", [["--base", "main"], ["--head", "main"], ["--package", "pace"]])
def test_a_range_names_base_and_head(gated, words):
    status, _, told = gated(BASE, BASE, *words)
    assert status == 4
    assert "--package pace==1.0..1.1 names base and head: leave out --base" in told.err


SUITE = """
    from lockstep import Cost, Suite, grid, variant


    class Scale(Suite):
        baseline = "plain"
        cases = quick = grid(M=[64])

        def draw(self, new, M):
            return {"x": new.normal(M, M, dtype="float32")}

        def reference(self, x):
            return 2 * x.double()

        def cost(self, M):
            return Cost(M * M, 8 * M * M)

        @variant
        def plain(self, x):
            return 2 * x

        @variant
        def scale(self, x):
            import pace

            return pace.scale(x)
"""


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_suites_compare_releases_beside_the_packages_of_the_repository(gated, tmp_path, compiled):
    project = make_project(tmp_path / "project")
    project.write("benchmarks/paced.py", SUITE)
    for number, code in (("1.0", BASE), ("1.1", HEAD)):
        make_wheel(tmp_path / "wheels", "pace", number, code, compiled=compiled)
    asked = ["--package", "pace==1.0..1.1", "--family", "paced", "--variant", "scale"]
    done = project.lockstep("gate", *asked, "--quick", "--budget", "20s", "--json", "report.json")
    report = json.loads((project.root / "report.json").read_text())
    found = outcomes(report)
    assert list(found) == ["scale"]
    skip_if_unsure(found["scale"])
    assert found == {"scale": "slower"}, done.stdout
    assert done.returncode == 1
    assert report["cases"][0]["key"] | {"quantity": ""} == {
        "suite": "paced", "variant": "scale", "case": "M=64", "l2": "warm", "quantity": ""
    }  # fmt: skip
    assert "to repeat the worst case: lockstep gate --base pace==1.0 --head pace==1.1 --family paced" in done.stdout


@pytest.mark.thorough
def test_suites_that_cannot_be_imported_with_the_newer_release_fail(gated, tmp_path):
    project = make_project(tmp_path / "project")
    imports = '    import importlib.util\n\n    if importlib.util.find_spec("pace"):\n        from pace import scale\n'
    project.write("benchmarks/paced.py", imports + SUITE)
    for number, code in (("1.0", BASE), ("1.1", HEAD.replace("def scale", "def _scale").replace('"scale", ', ""))):
        make_wheel(tmp_path / "wheels", "pace", number, code, compiled=True)
    asked = ["--package", "pace==1.0..1.1", "--family", "paced", "--variant", "scale"]
    done = project.lockstep("gate", *asked, "--quick", "--budget", "8s", "--json", "report.json")
    report = json.loads((project.root / "report.json").read_text())
    assert (done.returncode, outcomes(report)["(script)"]) == (2, "failed"), done.stdout


def test_bisect_names_the_first_release_that_is_wrong(gated, tmp_path, capfd):
    gated(BASE, BASE, "--base", "main")  # only the fixture's settings
    wrong = BASE.replace("x / 2", "x / 3")
    for number, code in {"1.0": BASE, "1.1": BASE, "1.2": wrong}.items():
        make_wheel(tmp_path / "wheels", "pace", number, code.replace("1.0", number))
    options = ["--script", "bench.py", "--package", "pace==1.0..1.2", "--quick", "--variant", "norm"]
    status = run_verb("bisect", *options, "--budget", "3s")
    told = capfd.readouterr()
    assert status == 0, told.err
    assert told.out.startswith(
        "the first bad release is pace==1.2, compared with pace==1.1:\n  bench norm - warm: failed"
    )


def test_bisect_needs_an_alert_or_a_package(capfd):
    assert run_verb("bisect") == 4
    assert "bisect needs the number of an alert, or --package" in capfd.readouterr().err


def test_a_script_with_a_function_of_the_name_that_suites_use_is_left_alone(tmp_path):
    strangers = ModuleType("__main__")
    strangers.points_of, strangers.__file__ = (lambda curve: curve), str(tmp_path / "bench.py")
    suites.install(strangers, hook=None)
