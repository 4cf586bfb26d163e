"""The page of targets: the committed one is what the results give, and what it says of a case is right."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_suites import make_suite

from lockstep.record.file import RecordError, write_records
from lockstep.record.model import CostEstimate, Estimate, Provenance, Record
from lockstep.suite.case import Case
from lockstep.suite.discovery import load_suites
from tests.project import make_project
from tools.scoreboard.command import PAGE, RIVALS
from tools.scoreboard.page import Target, TargetError, Targets, machines_of, page, read_newest, read_targets

ROOT = Path(__file__).parents[2]

SUITE = make_suite(family="toy", cases=(Case(M=1), Case(M=2), Case(M=4), Case(M=4, bias=True)))


def record(variant, case, seconds, ratio=None, **more):
    speedup = Estimate(ratio, ratio * 0.99, ratio * 1.01) if ratio else None
    latency = Estimate(seconds, seconds, seconds)
    return Record("toy", variant, case, "cold", "ok", "1", latency=latency, speedup=speedup, floor_s=1e-6, **more)


def write(machine, commit, date, records, recorded_at="2026-01-02T00:00:00+00:00"):
    name = f"{commit[:8]}-lockstep"
    host = {"gpu": "Toy GPU", "torch": "2.11.0"}
    head = Provenance(commit, "lockstep", machine.name, recorded_at, "", "unlocked", host, {}, 1)
    write_records(machine / f"{name}.provenance.jsonl", head, records)
    (machine / f"{name}.json").write_text(json.dumps({"date": date}))


@pytest.fixture
def machine(tmp_path):
    old = [record("plain", "M=1", 9e-6), record("best", "M=1", 9e-6, 1.0), record("best", "M=2", 5e-6, 1.0)]
    new = [
        record("plain", "M=1", 9e-6, 1.0),
        record("best", "M=1", 4e-6, 2.25),
        record("other", "M=1", 6e-6, 1.5),
        record("best", "M=4", 5e-6, 1.195),
        replace(record("best", "M=4,bias", 5e-6), state="failed", latency=None),
    ]
    # The older commit was measured later: what counts is the commits' own dates.
    write(tmp_path / "toy-unlocked", "a" * 40, 1000, old, recorded_at="2026-02-02T00:00:00+00:00")
    write(tmp_path / "toy-unlocked", "b" * 40, 2000, new)
    return tmp_path / "toy-unlocked"


def test_a_result_that_is_none_is_named(machine):
    (machine / "bbbbbbbb-lockstep.json").write_text("{")
    with pytest.raises(RecordError, match=r"bbbbbbbb-lockstep\.json is not a result file of asv"):
        read_newest(machine)


def rows(machine, *targets):
    text = page(read_newest(machine), [SUITE], {"toy": Targets("somebody", targets)}, "command")
    return text, [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| M=")
    ]


def test_each_case_shows_its_newest_record_and_whether_the_target_is_met(machine):
    text, shown = rows(
        machine,
        Target("M=1", at_least=2.0, stretch=2.2, headline="1.9×"),
        Target("M=2", at_least=1.5),
        Target("M=4", at_least=1.2),
    )
    assert shown == [
        ["M=1", "9.00", "4.00", "2.250× (2.228–2.272)", "1.00", "25%", "1.9×", "2× (2.2×)", "stretch"],
        ["M=2 (aaaaaaaa)", "n/a", "5.00", "1.000× (0.990–1.010)", "1.00", "20%", "", "1.5×", "no, 33.3% short"],
        ["M=4", "n/a", "5.00", "1.195× (1.183–1.207)", "1.00", "20%", "", "1.2×", "≈"],
    ]
    assert "Toy GPU" in text
    assert "Commit bbbbbbbb, recorded 2026-01-02" in text
    assert "1 of 4 cases are not recorded." in text


def cost(value):
    return CostEstimate(value, value * 0.99, value * 1.01, epochs=5)


def test_costs_stand_in_a_table_of_their_own_with_the_ratio_of_the_same_measurement(machine):
    text, _ = rows(machine)
    assert "No cost besides the latency is recorded yet" in text
    base = {"behind": cost(8e-6), "host": cost(20e-6), "energy": cost(2e-3)}
    ours = {"behind": cost(5e-6), "behind_speedup": cost(1.6), "host": CostEstimate(12e-6, 10e-6, 14e-6, epochs=5)}
    measured = [record("plain", "M=1", 9e-6, 1.0, costs=base), record("best", "M=1", 4.5e-6, 2.0, costs=ours)]
    write(machine, "c" * 40, 1500, [*measured, record("best", "M=2", 5e-6, 1.0)])
    text, shown = rows(machine)
    assert "No cost besides" not in text
    assert "| case | ratio in a chain | behind a kernel | behind µs plain | behind µs best | host µs plain |" in text
    # A newer commit measured the case again without its costs.
    assert [row for row in shown if len(row) == 9 and "×" in row[1]] == [
        ["M=1 (cccccccc)", "2.000×", "1.600×", "8.00", "5.00", "20.0", "12.0 ± 2.0", "2.00", "—"]
    ]
    assert ["M=1", "9.00", "4.00", "2.250× (2.228–2.272)"] in [row[:4] for row in shown]


def test_another_variant_to_beat_and_a_mean_over_cases(machine):
    text, shown = rows(machine, Target("M=1", against="other", at_least=1.4), Target("M=1|4", geomean=1.6))
    assert shown[-1] == ["M=1", "6.00", "4.00", "1.500× (1.479–1.521)", "1.4×", "yes"]
    assert "Geometric mean over 2 cases: 1.640×, target 1.6×: met." in text


def test_a_rival_has_a_column_and_a_row_that_it_wins_is_bold(machine, tmp_path):
    behind = {"behind_speedup": cost(1.5)}
    measured = [
        record("plain", "M=1", 9e-6, 1.0),
        record("best", "M=1", 4.5e-6, 2.0, costs={"behind_speedup": cost(1.6)}),
        record("other", "M=1", 4e-6, 2.25, costs=behind),
        replace(record("third", "M=1", 1e-6), state="na", latency=None),
        record("best", "M=2", 5e-6, 1.0),
        record("best", "M=4", 6e-6),
        record("other", "M=4", 9e-6),
    ]
    host = {"gpu": "Toy GPU", "torch": "2.11.0", "other-kernels": "0.1"}
    head = Provenance("d" * 40, "lockstep", "toy", "2026-01-03T00:00:00+00:00", "", "unlocked", host, {}, 1)
    write_records(tmp_path / "rivals.jsonl", head, measured)
    recorded = read_newest(machine, tmp_path / "rivals.jsonl")
    targets = Targets(rivals={"other": "Other {other-kernels}", "third": "never ran"})
    text = page(recorded, [SUITE], {"toy": targets}, "command")
    assert "Rivals (dddddddd, 2026-01-03, Toy GPU): `other`: Other 0.1." in text
    assert "| case | plain µs | other µs | best µs | in a chain | behind a kernel |" in text
    assert "| M=1 | 9.00 | 4.00 | 4.50 | **0.889× (0.876–0.902), other** | 1.067× (1.052–1.082), other |" in text
    assert "| M=4 | n/a | 9.00 | 6.00 | 1.500×, other | — |" in text  # a case that the baseline refuses


@pytest.mark.parametrize(
    ("cases", "label", "covered"),
    [
        ("M=1|2,K=*", "M=2,K=7", True),
        ("M=1|2,K=*", "M=12,K=7", False),
        ("M=*", "M=4,bias", False),
        ("M=*,bias", "M=4,bias", True),
        ("M=*,bias", "M=4,ragged", False),
    ],
)
def test_which_cases_a_target_is_for(cases, label, covered):
    assert Target(cases).covers(label) is covered


@pytest.mark.parametrize(
    ("text", "message"),
    [("[linear", "cannot be read"), ("[linear]\ntargets = [{ case = 'M=1' }]", r"\[linear\]: .*'case'")],
)
def test_a_mistake_in_the_targets_is_told(tmp_path, text, message):
    (tmp_path / "targets.toml").write_text(text)
    with pytest.raises(TargetError, match=message):
        read_targets(tmp_path / "targets.toml")
    with pytest.raises(TargetError, match=r"none\.toml cannot be read: No such file or directory$"):
        read_targets(tmp_path / "none.toml")


def test_every_target_of_the_repository_names_a_suite_and_cases_of_it():
    suites = load_suites(ROOT / "benchmarks")
    for name, targets in read_targets(ROOT / "benchmarks" / "targets.toml").items():
        labels = [case.label for case in suites[name].cases]
        for target in targets.targets:
            assert any(target.covers(label) for label in labels), (name, target)
            assert not target.against or target.against in suites[name].variants()
        assert set(targets.rivals) <= set(suites[name].variants())


OF_AN_H100 = "docs/evidence/kernels/h100.md"


@pytest.mark.parametrize(
    ("machine", "path", "options"),
    [
        ("h200-unlocked", PAGE, ""),
        ("h100-unlocked", OF_AN_H100, f" --machine h100-unlocked --output {OF_AN_H100}"),
    ],
)
def test_a_committed_page_is_what_the_results_give(machine, path, options):
    folders = {folder.name: folder for folder in machines_of(ROOT / "results")}
    assert next(iter(folders)) == "h200-unlocked"
    recorded = read_newest(folders[machine], ROOT / RIVALS / f"{machine}.jsonl")
    command = f"python -m tools scoreboard{options}"
    suites, targets = load_suites(ROOT / "benchmarks"), read_targets(ROOT / "benchmarks" / "targets.toml")
    made = page(recorded, suites.values(), targets, command)
    assert (ROOT / path).read_text(encoding="utf-8") == made, f"run `{command}`"


def test_the_verb_makes_and_refuses(tmp_path, machine):
    project = make_project(tmp_path / "toy")
    nothing = project.tools("scoreboard")
    assert (nothing.returncode, "holds no records" in nothing.stdout) == (4, True)
    (project.root / "results").mkdir()
    machine.rename(project.root / "results" / machine.name)
    project.write("benchmarks/targets.toml", "[product]\n")
    assert project.tools("scoreboard", "--output", "page.md").returncode == 0
    assert "toy" in (project.root / "page.md").read_text()
    assert "did you mean toy-unlocked?" in project.tools("scoreboard", "--machine", "toy-locked").stdout
