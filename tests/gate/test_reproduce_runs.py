"""The commands of a page, run as a reader runs them: each finds the series that it is about."""

import json
import shlex

import pytest
from project import KERNELS, make_project

from lockstep.record.commands_to_repeat import between, in_working_tree
from lockstep.record.series_name import SeriesName

SUBJECT = SeriesName("vm-cpu", "product", "product", "twice", "M=2,K=1024,N=512", "warm", "speedup")


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path / "project", timeout=20.0)


def run(project, command, *more):
    program, *words = shlex.split(command)
    assert program == "lockstep"
    return project.lockstep(*words, *more)


def test_the_command_for_the_working_tree_prints_the_series(project):
    done = run(project, in_working_tree(SUBJECT), "--quick", "--json")
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {(one["suite"], one["variant"], one["case"], one["l2"]): one for one in records}
    # The ratio needs its baseline, which is measured beside it.
    assert {key[1] for key in found} == {"plain", "twice"}
    assert found["product", "twice", "M=2,K=1024,N=512", "warm"]["speedup"]["value"] > 0


def test_the_command_for_a_change_judges_the_series_alone(project):
    base = project.git("rev-parse", "HEAD")
    slow = KERNELS.replace("    torch.mm(x, weight, out=out)\n        return", "    x = x.clone()\n        return")
    assert slow != KERNELS
    project.write("toy/product.py", slow)
    head = project.commit("Copy")
    path = project.root / "gate.json"
    done = run(project, between(SUBJECT, base, head), "--quick", "--budget", "3s", "--json", str(path))
    report = json.loads(path.read_text())
    assert [tuple(case["key"].values()) for case in report["cases"]] == [
        ("product", "twice", "M=2,K=1024,N=512", "warm", "latency")
    ]
    assert report["base"].startswith(base[:8]), done.stdout
    assert report["head"].startswith(head[:8])
