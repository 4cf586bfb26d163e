"""How closely fresh runs agree: the verb ``noise``, its choice of cases, and its numbers."""

import json
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from project import make_project

from lockstep.asv.fresh_runs import in_turn
from lockstep.record.model import CostEstimate, Estimate, Record
from lockstep.record.run_agreement import agreements
from lockstep.suite.discovery import load_suites

M2 = "M=2,K=1024,N=512"

#: Why a case has no time behind the fixed kernel on a busy machine.
DISTURBED = "the fixed kernel took as long alone as with a call behind it"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "project"


def test_noise_tells_how_fresh_runs_and_their_costs_agree(root):
    project = make_project(root)
    arguments = ("--runs", "2", "--quick", "--series", "1", "--costs", "behind", "host", "--json", "noise.json")
    done = project.lockstep("noise", "product", *arguments)
    assert done.returncode == 0, done.stdout
    rows = {row["variant"]: row for row in json.loads((root / "noise.json").read_text())}
    assert set(rows) == {"plain", "twice"}
    assert rows["plain"]["speedup_range"] == 0.0
    assert rows["twice"]["latency_range"] > 0
    # One variant of a case has a twin.
    [again] = [row["again_sd"] for row in rows.values() if row["again_sd"] is not None]
    assert again > 0
    assert "A/A: " in done.stdout
    assert re.search(r"run 1 of 2: 1 cases, 3 arms\n.*run 2 of 2: 1 cases, 3 arms\n", done.stdout)
    if DISTURBED in done.stdout or set(rows["twice"]["costs_sd"]) == {"behind"}:  # no round gave both arms a time
        pytest.skip("too busy to tell how costs scatter")
    assert set(rows["twice"]["costs_sd"]) == {"behind", "behind_speedup"}, done.stdout  # a CPU has no host time
    assert rows["twice"]["costs_sd"]["behind"] > 0
    assert rows["plain"]["costs_sd"]["behind_speedup"] == 0  # its ratio to itself
    assert re.search(r"twice +│ \S+ +│ warm │.*│ +[\d.]+% │ +[\d.]+%\s*\n", done.stdout), done.stdout
    assert re.search(r"behind: 2 series; standard deviation: median [\d.]+%, worst [\d.]+%", done.stdout), done.stdout
    assert "behind_speedup: 1 series" in done.stdout
    assert re.search(r"no host: .* \(product plain \S+ and 1 more series\)", done.stdout), done.stdout


def test_interrupted_noise_shows_the_complete_runs(root):
    project = make_project(root)
    # Far more runs than the test waits for.
    arguments = ("--runs", "500", "--quick", "--series", "1", "--variants", "twice", "--json", "noise.json")
    process = project.popen("noise", "product", *arguments)
    assert process.stdout
    seen = [next(line for line in process.stdout if "run 2 of 500" in line)]
    process.send_signal(signal.SIGTERM)  # as `timeout` and a cancelled runner do
    seen += process.stdout
    assert process.wait() == 130
    text = "".join(seen)
    assert re.search(r"interrupted: the table shows the \d+ complete runs", text), text
    assert re.search(r"twice +│ \S+ +│ warm │", text), text
    assert {row["variant"] for row in json.loads((root / "noise.json").read_text())} == {"plain", "twice"}


def test_the_scatter_of_a_cost_is_its_standard_deviation_in_the_mean():
    def run(host, energy):
        costs = {name: CostEstimate(value, value, value, 5) for name, value in (("host", host), ("energy", energy))}
        latency = Estimate(1e-6, 1e-6, 1e-6)
        record = Record("product", "twice", M2, "cold", "ok", "v", latency=latency, speedup=latency)
        return {record.key: replace(record, costs=costs if energy else {"host": costs["host"]})}

    [row] = agreements([run(9.0, 1.0), run(10.0, 0.0), run(11.0, 1.0)])
    assert row.costs_sd == {"host": pytest.approx(0.1)}  # a run lacks the energy


def test_noise_takes_the_middle_of_each_suite_first():
    suites = load_suites(Path(__file__).parents[2] / "benchmarks")
    chosen = in_turn([suites["kda"], suites["hgemm"]], ["cold"], "cuda")
    labels = [(suite.name, case) for suite, case, _ in chosen]
    for name in ("kda", "hgemm"):
        order = [suites[name].case(label) for suite, label in labels if suite == name]
        places = [suites[name].cases.index(case) for case in order]
        assert sorted(places) == list(range(len(places)))
        half = len(places) // 2
        assert places[:3] == [half, half // 2, half + 1 + (len(places) - half - 1) // 2]
    assert [name for name, _ in labels[:4]] == ["kda", "hgemm", "kda", "hgemm"]
