"""Commands that measure a number again: the real command line accepts each, and it selects its series alone."""

import argparse
import itertools
import shlex
from dataclasses import replace
from importlib.metadata import entry_points

import asv.commands
import pytest
from asv.benchmarks import Benchmarks

from lockstep.alerts.reproduce import installed, script
from lockstep.history.model import Run
from lockstep.record.commands_to_repeat import at_commit, between, gate, in_working_tree, locked, selection
from lockstep.record.series_name import SeriesName

CASE = "M=8,K=4096,N=2048"
GOOD, BAD = "0123456789abcdef" * 2 + "01234567", "fedcba9876543210" * 2 + "fedcba98"

TIMED = SeriesName("h200-locked-1500", "linear", "linear", "best", CASE, "cold", "speedup")
COMPILED = SeriesName("sm_90-114-compiled", "grouped", "grouped.mlp", "best", CASE, "", "registers")
FOREIGN = SeriesName("laptop", "sums.Sums", "sums.Sums", "time_sum", "size=100, dtype=float32", "", "seconds")


@pytest.fixture(scope="module")
def parse():
    for verb in entry_points(group="lockstep.commands"):
        verb.load()
    parser, _ = asv.commands.make_argparser()

    def parsed(command):
        program, *words = shlex.split(command)
        assert program in ("lockstep", "asv")
        return parser.parse_args(words, argparse.Namespace(verb=words[0]))

    return parsed


def test_the_working_tree_is_measured_by_measure(parse):
    args = parse(in_working_tree(TIMED))
    assert (args.verb, args.families, args.case) == ("measure", ["linear"], [CASE])
    assert (args.variants, args.l2) == (["best"], "cold")


def test_a_commit_is_measured_by_a_run_that_stores_nothing(parse):
    args = parse(at_commit(TIMED, BAD))
    assert (args.verb, args.range, args.dry_run) == ("run", "fedcba987654^!", True)
    assert args.bench == [selection(TIMED)]


def test_two_commits_are_measured_by_the_gate_at_the_clocks_of_the_machine(parse):
    args = parse(between(TIMED, GOOD, BAD))
    assert (args.verb, args.base, args.head) == ("gate", "0123456789ab", "fedcba987654")
    assert (args.family, args.case, args.variant, args.l2) == (["linear"], [CASE], ["best"], "cold")
    assert args.lock == 1500


def test_other_bits_in_two_calls_are_judged_by_the_gate(parse):
    args = parse(between(replace(TIMED, quantity="deterministic"), GOOD, BAD))
    assert (args.verb, args.variant, args.costs) == ("gate", ["best"], ["deterministic"])


def test_exact_quantities_are_compiled_for_the_target_of_their_machine(parse):
    for command, ref in ((in_working_tree(COMPILED), "."), (at_commit(COMPILED, BAD), "fedcba987654")):
        args = parse(command)
        assert (args.verb, args.action, args.ref, args.target) == ("code", "show", ref, ["sm_90:114"])
        assert (args.family, args.variant, args.case) == (["grouped.mlp"], ["best"], [CASE])
    args = parse(between(COMPILED, GOOD, BAD))
    assert (args.action, args.base, args.head) == ("diff", "0123456789ab", "fedcba987654")
    assert (args.family, args.target) == (["grouped.mlp"], ["sm_90:114"])


def test_exact_quantities_of_another_toolchain_are_compiled_with_it(parse):
    subject = replace(COMPILED, machine="sm_90-compiled@triton-3.9.0+git1a@torch-2.11.0 (windows)")
    args = parse(at_commit(subject, BAD))
    assert (args.target, args.toolchain) == (["sm_90"], "triton==3.9.0+git1a,torch==2.11.0")
    args = parse(between(subject, GOOD, BAD))
    assert args.toolchain == ["triton==3.9.0+git1a,torch==2.11.0"] * 2
    assert (args.base, args.head) == ("0123456789ab", "fedcba987654")
    assert parse(at_commit(COMPILED, BAD)).toolchain == "installed"


def test_another_projects_benchmark_is_measured_by_asv(parse):
    args = parse(at_commit(FOREIGN, BAD))
    assert (args.verb, args.range, args.bench) == ("run", "fedcba987654^!", [selection(FOREIGN)])
    assert parse(in_working_tree(FOREIGN)).env_spec == [":same"]
    args = parse(between(FOREIGN, GOOD, BAD))
    assert (args.verb, args.base, args.branch) == ("continuous", "0123456789ab", "fedcba987654")
    assert at_commit(FOREIGN, BAD).startswith("asv ")


@pytest.mark.parametrize(
    ("machine", "clock_state", "lock"),
    [
        ("h200-locked-1500", "", 1500),
        ("h200-locked-1500 (6.8, existing)", "", 1500),
        ("h200", "locked@1500", 1500),
        ("h200-base", "", "base"),
        ("h200-unlocked", "", None),
        ("h200", "unlocked(no permission)", None),
        ("database", "", None),
        ("vm-cpu", "cpu", None),
    ],
)
def test_the_lock_is_that_of_the_clock_state_or_of_the_machines_name(parse, machine, clock_state, lock):
    subject = SeriesName(machine, "linear", "linear", "best", CASE, "cold", "latency")
    assert parse(gate(subject, "main", ".", clock_state)).lock == lock


def test_a_fresh_checkout_has_the_definitions_the_lock_and_the_packages(parse):
    tools = {"torch": "2.11.0", "triton": "3.6.0", "empty": ""}
    measured = Run(TIMED.machine, BAD, 0, "lockstep", "", requirements=tools, host={"gpu": "NVIDIA H200"})
    measured = replace(measured, clock_state="locked@1500", harness=f"{GOOD}+dirty")
    about, dirty, worktree, change, lock, run, reset = script(TIMED, measured)
    assert about == "# measured with NVIDIA H200; torch 2.11.0, triton 3.6.0; clocks locked@1500"
    assert dirty.startswith("# the benchmark definitions had uncommitted changes")
    assert worktree == "git worktree add --detach /tmp/definitions-0123456789ab 0123456789ab"
    assert change == 'cd /tmp/definitions-0123456789ab/"$(git rev-parse --show-prefix)"'
    args = parse(lock)
    assert (args.action, args.target) == ("lock", 1500)
    assert run == at_commit(TIMED, BAD)
    assert parse(reset).action == "reset"
    assert locked(TIMED, in_working_tree(TIMED)) == ("lockstep clocks lock 1500", in_working_tree(TIMED), reset)


def test_without_provenance_the_commands_stand_alone():
    assert script(FOREIGN, Run("laptop", BAD, 0, "", "")) == (at_commit(FOREIGN, BAD),)


def test_a_name_that_a_file_gives_is_no_second_command(parse):
    subject = replace(TIMED, variant="a'b; rm x\ny", case="M=1", quantity="latency")
    for command in (in_working_tree(subject), at_commit(subject, BAD), between(subject, GOOD, BAD)):
        assert "\n" not in command
        parse(command)
    assert parse(in_working_tree(subject)).variants == ["a'b; rm x y"]
    assert "\n" not in installed(Run("laptop", BAD, 0, "", "", requirements={"torch": "1\nrm x"}))


@pytest.mark.parametrize(
    ("subject", "name", "values", "wanted"),
    [
        (
            TIMED,
            "linear.speedup",
            [["'best'", "'bes'", "'xbest'"], [f"'{CASE},bias'", f"'{CASE}'", "'M=8'"], ["'cold'", "'warm'"]],
            f"'best', '{CASE}', 'cold'",
        ),
        (
            FOREIGN,
            "sums.Sums.time_sum",
            [["100", "1000", "10"], ["'float32'", "'float3'", "'float32b'"]],
            "100, 'float32'",
        ),
        (
            replace(FOREIGN, case="model class=<class 'a.DFN'>, model option=stress-driven"),
            "sums.Sums.time_sum",
            [["<class 'a.DFN'>", "<class 'a.SPM'>"], ["'stress-driven'", "'none'"]],
            "<class 'a.DFN'>, 'stress-driven'",
        ),
    ],
)
def test_the_selection_is_one_series_for_asv(subject, name, values, wanted):
    entries = [{"name": each, "params": values} for each in (name, f"{name}2", f"x{name}", "linear.latency")]
    conf = type("Conf", (), {"benchmark_dir": ""})()
    selected = Benchmarks(conf, entries, selection(subject))
    assert list(selected) == [name]
    texts = [", ".join(each) for each in itertools.product(*values)]
    assert [texts[index] for index in selected.benchmark_selection[name]] == [wanted]


def test_a_benchmark_without_parameters_is_selected_by_its_name():
    conf = type("Conf", (), {"benchmark_dir": ""})()
    entries = [{"name": name, "params": []} for name in ("mod.track_size", "mod.track_sizes", "amod.track_size")]
    subject = SeriesName("laptop", "mod", "mod", "track_size", "", "", "bytes")
    assert list(Benchmarks(conf, entries, selection(subject))) == ["mod.track_size"]


def test_a_cost_is_measured_with_its_latency(parse):
    cost = SeriesName("h200-locked-1500", "grouped", "grouped.mlp", "best", CASE, "cold", "behind_speedup")
    args = parse(in_working_tree(cost))
    assert (args.verb, args.variants, args.costs) == ("measure", ["best"], ["behind"])
    assert selection(cost).startswith(r"^grouped\.mlp_behind_speedup\(")
    assert parse(at_commit(cost, BAD)).bench == [selection(cost)]
    args = parse(between(cost, GOOD, BAD))
    assert (args.verb, args.variant, args.costs) == ("gate", ["best"], ["behind"])
    args = parse(between(replace(cost, quantity="compile"), GOOD, BAD))
    assert (args.verb, args.costs) == ("gate", ["compile"])
