"""``lockstep gate --base-env … --head-env …`` as a user runs it: real wheels, real processes, a CPU."""

import json
import math

import pytest
from project import KERNELS, make_project
from wheels import make_wheel

from lockstep.gate.case_verdict import SeriesKey
from lockstep.gate.process_pairs.pair_trial import PairTrial
from lockstep.gate.process_pairs.toolchain_pairs import add_records
from lockstep.gate.sequential import Test
from lockstep.record.model import Estimate, Record

KEY = SeriesKey("product", "twice", "M=2,K=1024,N=512", "warm")

#: ``twice`` repeats its product as often as a package says that is installed with the toolchain.
PACED = KERNELS.replace("    import torch\n", "    import torch\n    from pace import TIMES\n").replace(
    "    def twice(x, weight, *, out):\n        torch.mm(x, weight, out=out)\n",
    "    def twice(x, weight, *, out):\n        for _ in range(TIMES):\n            torch.mm(x, weight, out=out)\n",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    room = tmp_path_factory.mktemp("gate")
    project = make_project(room / "project", timeout=20.0)
    assert PACED.count("TIMES") == 2
    project.write("toy/product.py", PACED)
    project.commit("Repeat as a package says")
    for version, times in (("1.0", 1), ("2.0", 12)):
        make_wheel(room / "wheels", "pace", version, f"TIMES = {times}\n")
    return project


def gate(project, base, head, *arguments):
    path = project.root / "gate.json"
    path.unlink(missing_ok=True)
    sides = ("--base-env", base, "--head-env", head, "--find-links", "../wheels", "--base", ".", "--head", ".")
    process = project.popen("gate", "--json", str(path), "--seed", "1", *sides, *arguments)
    shown, _ = process.communicate()
    return process.returncode, shown, json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.timeout(400)  # eighteen processes import torch, perhaps beside other work
def test_a_slower_package_is_found_and_what_it_does_not_touch_is_not(project):
    code, shown, report = gate(
        project, "pace==1.0", "pace==2.0", "--case", "M=2", "--min-effect", "99%", "--budget", "300s", "--quick"
    )
    assert code == 1, shown
    found = {one["key"]["variant"]: one for one in report["cases"]}
    assert (found["twice"]["outcome"], found["twice"]["confirmed"]) == ("slower", True), shown
    assert found["twice"]["head_s"] > 3 * found["twice"]["base_s"]
    assert found["plain"]["outcome"] in ("same", "unsure"), shown
    assert report["toolchains"] == ["pace==1.0", "pace==2.0"]
    assert "base ran under pace==1.0, head under pace==2.0, in " in shown
    assert "ratios scatter by " in shown
    assert "--base-env pace==1.0 --head-env pace==2.0" in shown, "the command that measures it again"
    assert "pair 4 of processes: " in shown


def test_a_side_that_lacks_a_package_fails(project):
    code, shown, report = gate(project, "pace==1.0", "installed", "--case", "M=2", "--quick", "--budget", "40s")
    assert code == 2, shown
    assert {one["outcome"] for one in report["cases"]} == {"failed"}
    assert "No module named 'pace'" in shown


def test_wrong_words_are_usage_and_pips_errors_are_no_verdict(project):
    code, shown, _ = gate(project, "pace", "installed")
    assert (code, "'pace' is not a toolchain" in shown) == (4, True), shown
    code, shown, _ = gate(project, "pace==9.9", "installed")
    assert (code, "pip does not install pace==9.9" in shown) == (3, True), shown


def record(seconds, state="ok", reason=""):
    latency = Estimate(seconds, seconds, seconds) if seconds else None
    return Record(KEY.suite, KEY.variant, KEY.case, KEY.l2, state, "v", reason, latency=latency)


def judged(*changes, test=Test(0.01, 0.01, 4, 0.1)):  # noqa: B008 — frozen
    trial = PairTrial(test, "pairs of processes")
    for number, change in enumerate(changes):
        if trial.over:
            break
        trial.add(1e-6, 1e-6 * math.exp(change + 1e-4 * (-1) ** number))
    return trial.verdict(KEY)


def test_pairs_decide_as_epochs_do():
    same = judged(*[0.0] * 4)
    assert (same.outcome, same.epochs) == ("same", 4)
    slower = judged(*[0.05] * 8)
    assert (slower.outcome, slower.confirmed, slower.epochs) == ("slower", True, 8)
    assert slower.change.low > 0.01
    faster = judged(*[-0.05] * 8)
    assert (faster.outcome, faster.confirmed) == ("faster", True)
    once = judged(*[0.05] * 4, *[0.0] * 4)
    assert once.outcome == "same", "a second round does not find it"
    both = judged(*[0.05] * 4, *[-0.05] * 4)
    assert (both.outcome, both.reason) == ("unsure", "+5.13% in a first round, -4.88% in the second")
    early = judged(*[0.05] * 5)
    assert (early.outcome, "not confirmed by a second: out of time" in early.reason) == ("unsure", True)
    assert judged().reason == "the budget did not reach it"
    noisy = judged(*[0.3, -0.3] * 20)
    assert noisy.outcome == "unsure"
    assert "too noisy" in noisy.reason


@pytest.mark.parametrize(
    ("base", "head", "outcome", "in_base"),
    [
        (record(1e-6), record(0, "failed", "wrong"), "failed", False),
        (record(0, "failed", "raises"), record(0, "failed", "wrong"), "failed", True),
        (record(0, "failed", "raises"), record(1e-6), "new", False),
        (record(0, "na", "not here"), record(1e-6), "new", False),
        (record(1e-6), record(0, "na", "not here"), "removed", False),
        (record(0, "na", "not here"), record(0, "na", "not here"), "na", False),
    ],
)
def test_what_one_side_cannot_run_is_no_number(base, head, outcome, in_base):
    trial = PairTrial(Test(0.01, 0.01, 1), "pairs of processes")
    add_records(trial, KEY, base, head)
    assert trial.over
    verdict = trial.verdict(KEY)
    assert (verdict.outcome, verdict.in_base) == (outcome, in_base)
