"""What people and machines read of a run, with names that a hostile pull request might choose."""

import io
import json
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console
from verb import run_verb

from lockstep.gate.model import SeriesKey, Verdict
from lockstep.gate.report.github import MOST_ANNOTATIONS, annotate, command, write_outputs
from lockstep.gate.report.markdown import MOST_ROWS, escape, to_markdown
from lockstep.gate.report.report import EXIT, Report, headline
from lockstep.gate.report.rows import COLUMNS, WHOLE_SCRIPT, line, remarks, rows, same
from lockstep.gate.report.terminal import show
from lockstep.processes.worker import typed
from lockstep.record.console import wide_console
from lockstep.record.model import Estimate

BLANK = Report("main (1a2b3c4)", "HEAD (5d6e7f8)", min_effect=0.0025, confidence=0.99, budget_s=120, seed=7)


def verdict(outcome, change=None, variant="split_k", case="M=8", quantity="latency", **rest):
    told = Estimate(change, change - 0.001, change + 0.001) if change is not None else None
    return Verdict(SeriesKey("linear", variant, case, "cold", quantity), outcome, change=told, **rest)


#: The host's time of a call grew from 12 to 19 µs, and its energy from 2 to 3 mJ.
HOST = verdict("slower", 7 / 12, quantity="host", base_s=12e-6, head_s=19e-6, confirmed=True)
ENERGY = verdict("slower", 0.5, quantity="energy", base_s=2e-3, head_s=3e-3, confirmed=True)


def report(*cases, **rest):
    return replace(BLANK, cases=cases, **rest)


def test_a_comment_says_that_a_cpu_timed_it():
    slower = report(verdict("slower", 0.2))
    assert "timed on a CPU" in " ".join(remarks(replace(slower, machine={"cpu": "a CPU"})))
    assert "timed on a CPU" not in " ".join(remarks(replace(slower, machine={"gpu": "NVIDIA H200"})))


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (report(), "infrastructure"),
        (report(verdict("unsure"), verdict("removed"), verdict("na")), "infrastructure"),
        (report(verdict("new")), "pass"),
        (report(verdict("new"), verdict("unsure")), "infrastructure"),
        (report(verdict("same"), absent=("rope",)), "infrastructure"),
        (report(verdict("slower", 0.02), absent=("rope",)), "slower"),
        (
            report(verdict("same"), verdict("unsure"), verdict("new"), verdict("removed"), verdict("faster", -0.1)),
            "pass",
        ),
        (report(verdict("slower", 0.02)), "slower"),
        (report(verdict("slower", 0.02, accepted="exact rounding")), "pass"),
        (report(verdict("slower", 0.02), verdict("failed")), "failed"),
        (report(verdict("same"), verdict("na"), machine={"device": "cpu"}), "infrastructure"),
        (report(verdict("same"), verdict("na", unchanged=True), machine={"device": "cpu"}), "pass"),
        (report(verdict("same"), verdict("na"), machine={"device": "cuda"}), "pass"),
        (report(verdict("slower", 0.02), verdict("na"), machine={"device": "cpu"}), "slower"),
        (report(verdict("same"), HOST), "slower"),
        (report(verdict("same"), replace(HOST, accepted="more checks")), "pass"),
        (report(verdict("same"), verdict("na", quantity="host"), machine={"device": "cpu"}), "pass"),
        (report(verdict("unsure"), verdict("same", quantity="host")), "infrastructure"),
        (report(verdict("failed", in_base=True)), "infrastructure"),
        (report(verdict("failed", in_base=True), verdict("same")), "pass"),
        (report(verdict("failed"), trouble="controls moved"), "infrastructure"),
        (report(verdict("failed"), trouble="controls moved", interrupted=True), "interrupted"),
    ],
)
def test_the_worst_decides(told, state):
    assert told.state == state
    assert EXIT[state] == {"pass": 0, "slower": 1, "failed": 2, "infrastructure": 3, "interrupted": 130}[state]


def test_the_headline_says_what_where_how_much_how_sure_and_why():
    told = report(
        verdict("slower", 0.012, code=("_kernel: registers 168 → 255, spills 0 → 512 B", "and more")),
        verdict("slower", 0.004, case="M=16"),
        verdict("faster", -0.03, case="M=32"),
        verdict("same", unchanged=True, case="M=64"),
    )
    assert headline(told) == (
        "2 cases slower: linear split_k by +0.40 % to +1.20 %, most at M=8 cold, found twice; 99% sure that none is "
        "by chance; code of the worst: _kernel: registers 168 → 255, spills 0 → 512 B; 1 case faster: linear split_k "
        "by -3.00 % (-3.10 to -2.90) at M=32 cold (1 same, 1 faster, 2 slower, 1 of them unchanged)."
    )
    widened = report(verdict("same", 0.0, min_effect=0.02))
    assert (
        headline(widened)
        == "Nothing slower by more than 0.25 % (up to 2 % where noise or a rule asks for it) (1 same)."
    )
    assert "changes count from 0.25 % (up to 2 % where noise or a rule asks for it) on" in " ".join(remarks(widened))
    # What an undecided case would have taken says nothing of the others.
    undecided = report(verdict("same", 0.0), verdict("unsure", case="M=1", min_effect=0.5, reason="too noisy: 3 %"))
    assert headline(undecided) == (
        "Nothing slower by more than 0.25 % in 1 of 2 cases; the others have no verdict: too noisy (1 same, 1 unsure)."
    )
    # One pass found it, and the budget ended: a change that is plainly there must not read as a pass.
    once = verdict("unsure", 3.99, case="M=1", min_effect=1.0, reason=SHORT)
    assert headline(report(verdict("same", 0.0), once)) == (
        "Looks slower, not confirmed: linear split_k by +399.00 % (+398.90 to +399.10) at M=1 cold; nothing else "
        "slower by more than 0.25 % in 1 of 2 cases; the others have no verdict: +3900.00% in a first pass, not "
        "confirmed by a second (1 same, 1 unsure)."
    )
    assert headline(report(once)).startswith("Looks slower, not confirmed: linear split_k by +399.00 % ")
    assert headline(report(replace(once, min_effect=3.99))).startswith("Nothing was judged: ")
    assert headline(report(replace(HOST, outcome="unsure"))).startswith(
        "Looks slower, not confirmed: 1 case: host time 12.00 → 19.00 µs: linear split_k by +58.33 % "
    ), "not as if calls were slower"
    assert headline(report(verdict("same", case="M=1"))) == "Nothing slower by more than 0.25 % (1 same)."
    skipped = report(verdict("same", case="M=1"), verdict("na", variant="planes", reason="Triton finds no GPU here"))
    assert headline(skipped) == (
        "Nothing slower by more than 0.25 %; 1 case not compared: linear planes, not available here "
        "(Triton finds no GPU here) (1 same, 1 n/a)."
    )
    assert headline(replace(skipped, machine={"device": "cpu"})) == (
        "Not judged: 1 case that the change can touch cannot run here: linear planes (Triton finds no GPU here); "
        "nothing else slower by more than 0.25 % (1 same, 1 n/a)."
    )
    accepted = report(verdict("slower", 0.02, accepted="exact rounding"), verdict("same", case="M=1"))
    assert headline(accepted) == (
        "1 case slower as accepted: linear split_k by +2.00 % (+1.90 to +2.10) at M=8 cold; nothing else slower by "
        "more than 0.25 % (1 same, 1 slower)."
    )


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (report(), "Nothing was judged: no case was selected (no case)."),
        (
            report(*(verdict("unsure", case=f"M={n}", reason="too noisy") for n in range(9))),
            "Nothing was judged: too noisy (9 unsure).",
        ),
        (
            report(verdict("failed", in_base=True, reason="ImportError: no k")),
            "Nothing was judged: fails in base as well (ImportError: no k) (1 failed).",
        ),
        (
            report(
                verdict("same", unchanged=True, case="M=1"), verdict("unsure", reason="the budget did not reach it")
            ),
            "No case that the change can touch was judged: the budget did not reach it (1 same, 1 unsure, 1 of them "
            "unchanged).",
        ),
        (
            report(verdict("new"), verdict("removed", case="M=1")),
            "Nothing was compared; head passes its checks in 1 case without a base (1 new, 1 removed).",
        ),
        (
            report(verdict("new"), verdict("unsure", case="M=1", reason="too noisy")),
            "No case that the change can touch was judged: too noisy (1 unsure, 1 new).",
        ),
        (
            report(verdict("same"), absent=("rope", "swiglu")),
            "Not judged: rope, swiglu: neither version has this family; nothing slower by more than 0.25 % (1 same).",
        ),
        (report(absent=("rope",)), "Not judged: rope: neither version has this family (no case)."),
    ],
)
def test_where_nothing_was_judged_the_headline_says_why(told, sentence):
    assert headline(told) == sentence


def test_proved_cases_alone_are_no_pass_where_all_that_was_measured_is_unsure():
    unsure = verdict("unsure", reason="the budget did not reach it")
    assert report(verdict("same", unchanged=True, case="M=1"), unsure).state == "infrastructure"
    assert report(verdict("same", case="M=1"), unsure).state == "pass"
    assert report(verdict("same", unchanged=True)).state == "pass"


@pytest.mark.parametrize(
    ("outcome", "change", "cells"),
    [
        ("unsure", Estimate(61.26, -math.inf, math.inf), ("", "")),  # one epoch
        ("unsure", Estimate(61.26, 0.5, 900.0), ("", "")),
        ("unsure", Estimate(0.1, -1.0, 0.2), ("", "")),
        ("unsure", Estimate(0.001, -0.02, 0.022), ("+0.10%", "-2.00% … +2.20%")),
        ("unsure", Estimate(38.0, 30.0, 50.0), ("+3800.00%", "+3000.00% … +5000.00%")),
        ("slower", Estimate(38.0, 30.0, 50.0), ("+3800.00%", "+3000.00% … +5000.00%")),
    ],
)
def test_an_unsure_case_shows_a_change_only_with_an_interval(outcome, change, cells):
    one = replace(verdict(outcome), change=change, base_s=1e-4, head_s=2e-4)
    [row] = rows(report(one))
    assert row.cells[COLUMNS.index("change") : COLUMNS.index("interval") + 1] == cells
    assert (f" {cells[0]} " in line(one)) if cells[0] else ("%" not in line(one))


SHORT = "+3900.00% in a first pass, not confirmed by a second: the budget did not reach it"


@pytest.mark.parametrize(
    ("cases", "advised"),
    [
        ([verdict("same", 0.0, epochs=4)], ""),
        ([verdict("unsure", 0.0, epochs=28, reason="too close to call after 28 epochs")], ""),
        # 8 epochs took 120 s. The second pass of this case takes 4 more.
        (
            [verdict("same", 0.0, epochs=4), verdict("unsure", 39.0, case="M=1", epochs=4, reason=SHORT)],
            "1 case .* 180s or more",
        ),
        # 4 epochs took 120 s. Each of these cases takes 8.
        (
            [
                verdict("same", 0.0, epochs=4),
                *(verdict("unsure", case=f"M={n}", reason="the budget did not reach it") for n in (1, 2)),
            ],
            "2 cases .* 600s or more",
        ),
        ([verdict("unsure", 0.0, epochs=13, reason="out of time after 13 epochs")], "1 case .* 240s or more"),
        ([verdict("unsure", reason="the budget did not reach it")], "1 case .* 240s or more"),
        # 2 epochs, both thrown out, took 120 s.
        (
            [verdict("unsure", voided=2, reason="controls moved in every epoch")],
            "1 case .* 600s or more .*; the machine is busy: .* try one case: lockstep gate --base",
        ),
    ],
)
def test_a_run_out_of_time_says_which_budget_would_do(cases, advised):
    told = [one for one in remarks(report(*cases)) if "ran out of time" in one]
    assert len(told) == bool(advised)
    assert all(re.match(advised, one) for one in told)
    assert "--budget" not in " ".join(remarks(report(*cases, interrupted=True)))


def test_json_holds_everything_and_is_strict():
    endless = Estimate(0.01, -math.inf, math.inf)
    told = report(verdict("slower", 0.02, code=("a",)), replace(verdict("unsure"), change=endless), verdict("na"))
    content = json.loads(told.to_json(), parse_constant=lambda text: pytest.fail(text))
    assert (content["schema"], content["state"], content["exit"], content["regressions"]) == (1, "slower", 1, 1)
    assert [one["outcome"] for one in content["cases"]] == ["slower", "unsure", "na"]
    assert content["cases"][1]["change"] == {"value": 0.01, "low": None, "high": None}
    assert typed(Verdict, content["cases"][0]) == told.cases[0]


HOSTILE = [
    "@torvalds",
    "x|y\nz",
    "<img src=x onerror=alert(1)>",
    "[click](https://evil.example)",
    "```\n# big",
    "fixes #12 and octo/repo#3",
    "www.evil.example",
    "**bold** ~~gone~~ $x$ {{7*7}}",
    "\r\n::set-output name=verdict::pass",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_and_never_taken_for_markup(name):
    told = report(verdict("failed", variant=name, reason=name, file="kernels/a.py", line=3))
    text = to_markdown(told)
    [row] = [line for line in text.splitlines() if line.startswith("| failed")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 11
    assert not re.search(r"@\w|#\d|https?://|www\.|<\w|(?<!\\)[\[`*~$]", row)
    [annotation] = annotate(told)
    assert "\n" not in annotation
    assert "\r" not in annotation
    shown = io.StringIO()
    show(told, Console(file=shown, width=300, markup=False))
    assert name.split("\n")[0].strip("\r").strip()[:8] in shown.getvalue()


def test_a_pass_with_undecided_cases_has_a_sign_of_its_own():
    assert to_markdown(report(verdict("same"))).startswith("### ✅ Nothing slower")
    assert to_markdown(report(verdict("same"), verdict("unsure", case="M=1"))).startswith("### 🟡 Nothing slower")


@pytest.mark.parametrize("name", ["triton #2", "`x` <b>", "@all ``", "a|b https://e.vil"])
def test_a_command_is_code_that_can_be_copied_whatever_it_holds(name):
    told = report(verdict("slower", 0.02, variant=name))
    commands = [one.partition(": ")[2] for one in remarks(told) if "lockstep " in one]
    assert len(commands) == 2
    for one in commands:
        [line] = [line for line in to_markdown(told).splitlines() if one in line]
        purpose, code = line.split(": ", 1)
        assert "`" not in purpose
        fence = re.match("`+", code)[0]
        assert code.endswith(fence)
        assert code[len(fence) : -len(fence)].strip() == one
        assert fence not in one


def test_escaping_changes_nothing_that_is_seen():
    assert escape("M=8,K=4096 +1.20 % … registers 168 → 255 <b>") == "M=8,K=4096 +1.20 % … registers 168 → 255 &lt;b\\>"
    assert escape("x" * 500).endswith("x…")


def test_annotations_are_escaped_grouped_by_line_and_few():
    assert command("error", "a,b:c.py", 3, "50%\nworse") == "::error file=a%2Cb%3Ac.py,line=3::50%25%0Aworse"
    many = [verdict("slower", 0.01 * n, case=f"M={n}", file="kernels/a.py", line=n % 12 + 1) for n in range(1, 37)]
    told = list(annotate(report(*many), "sub/"))
    assert len(told) == MOST_ANNOTATIONS
    assert told[0].startswith("::error file=sub/kernels/a.py,line=1::slower  +36.00%25  linear split_k M=36 cold")
    assert told[0].endswith("(and 2 more)")
    [accepted] = annotate(report(verdict("slower", 0.1, accepted="meant", file="a.py", line=1)))
    assert accepted.startswith("::warning file=a.py,line=1::")
    [trouble] = annotate(report(trouble="no GPU"))
    assert trouble == "::error::Nothing can be said: no GPU."


def test_outputs_cannot_be_added_by_a_file_name(tmp_path):
    path = tmp_path / "output"
    write_outputs(report(verdict("slower", 0.1)), path, "x\nverdict=pass\nend-0")
    found = re.findall(r"(\w+)<<(end-\w{32})\n(.*?)\n\2\n", path.read_text(), re.DOTALL)
    assert [(name, value) for name, _, value in found] == [
        ("verdict", "slower"), ("regressions", "1"), ("report", "x\nverdict=pass\nend-0")
    ]  # fmt: skip


def test_a_long_report_is_cut_and_says_so():
    told = to_markdown(report(*(verdict("slower", 0.01, case=f"M={n}") for n in range(MOST_ROWS + 5))))
    assert told.count("| slower |") == MOST_ROWS
    assert "… and 5 more rows; the JSON report has them." in told


def test_cases_without_numbers_are_told_once_with_how_many_they_are():
    told = to_markdown(
        report(*(verdict("removed", case=f"M={n}", reason="head has no such variant") for n in range(9)))
    )
    assert "| removed | linear | split\\_k | 9 cases |" in told


def test_a_case_that_does_not_run_here_is_listed_with_its_reason():
    told = report(*(verdict("na", case=f"M={n}", reason="Triton finds no GPU here") for n in (1, 2)), verdict("same"))
    assert told.counts() == {"same": 1, "na": 2}
    [row] = rows(told)
    assert (row.cells[0], row.cells[3], row.cells[-1]) == ("n/a", "2 cases", "Triton finds no GPU here")
    shown = io.StringIO()
    show(told, Console(file=shown, width=300, markup=False), plain=True)
    assert "n/a           linear split_k M=1 cold  Triton finds no GPU here" in shown.getvalue()
    assert "same  linear: 1 case\n" in shown.getvalue()


def test_the_report_names_the_command_for_the_worst_case_that_blocks():
    cases = verdict("slower", 0.004, case="M=16"), verdict("slower", 0.012), verdict("faster", -0.5)
    found = report(*cases, head=". (5d6e7f8+dirty)", machine={"clock_state": "locked@1500"})
    command = "lockstep gate --base 1a2b3c4 --head . --family linear --case M=8 --variant split_k --l2 cold --lock 1500"
    assert f"to repeat the worst case: {command}" in remarks(found)
    assert f"- to repeat the worst case: `{command}`\n" in to_markdown(found)
    assert "--variant other " in remarks(report(*cases, verdict("failed", variant="other")))[-1]
    accepted = report(verdict("slower", 0.02, accepted="exact rounding"), verdict("failed", in_base=True))
    assert not any("repeat the worst case" in one for one in remarks(accepted))


def test_a_cost_has_lines_of_its_own_in_its_own_unit():
    told = report(verdict("same", 0.0), verdict("slower", 0.02, base_s=1e-5, head_s=1.02e-5), HOST, ENERGY)
    assert headline(told).startswith(
        "1 case slower: linear split_k by +2.00 % (+1.90 to +2.10) at M=8 cold; "
        "1 case: host time 12.00 → 19.00 µs: linear split_k by +58.33 % (+58.23 to +58.43) at M=8 cold; "
        "1 case: energy 2.00 → 3.00 mJ: linear split_k by +50.00 % (+49.90 to +50.10) at M=8 cold, found twice"
    )
    assert line(HOST) == "  slower  +58.33%  linear split_k M=8 cold host  host time 12.00 → 19.00 µs"
    assert line(ENERGY) == "    more  +50.00%  linear split_k M=8 cold energy  energy 2.00 → 3.00 mJ"
    cells = {row.cells[2]: row.cells for row in rows(told)}
    assert cells["split_k (host)"][5:8] == ("12.00", "19.00", "+58.33%")
    assert cells["split_k (energy)"][5:7] == ("", "")
    assert cells["split_k (energy)"][9] == "energy 2.00 → 3.00 mJ"
    assert json.loads(told.to_json())["cases"][2]["key"]["quantity"] == "host"
    assert remarks(report(verdict("same"), HOST))[-1].endswith("--l2 cold --costs host")


def test_costs_that_are_the_same_are_counted_apart():
    told = report(verdict("same"), verdict("same", quantity="host"), verdict("same", case="M=1", quantity="host"))
    assert list(same(told)) == [("linear", 1, 0), ("linear host", 2, 0)]


def test_the_comment_says_what_the_figures_of_slower_kernels_usually_mean():
    """The words are those of alerts (tests/alerts/test_story.py)."""
    sentence = (
        "scale: registers 168 → 255, spills 0 → 512 B, blocks an SM 2 → 1 (registers), num_stages 3 → 4, STL 0 → 8"
    )
    slower = verdict("slower", 0.02, code=(sentence, f"registers {'9' * 5000} → 1"))
    text = to_markdown(report(slower, slower))
    assert [line for line in text.splitlines() if line.startswith("- ") and " → " in line] == [
        "- registers 168 → 255: fewer warps may fit on a multiprocessor, so it hides less latency",
        "- spills 0 → 512: registers no longer suffice: values go through local memory, which costs loads and stores",
        "- STL 0 → 8: stores of spilled registers",
    ]
    assert "usually mean" not in to_markdown(report(verdict("slower", 0.02)))


@pytest.mark.parametrize(
    "told",
    [
        report(verdict("slower", 0.02), verdict("same")),
        report(verdict("failed", reason="wrong result"), verdict("same")),
        report(verdict("slower", 0.02), script="bench.py"),
        report(trouble="the clocks are free"),
        report(verdict("same"), verdict("unsure", reason="out of time")),
    ],
)
def test_a_report_that_is_read_again_says_the_same_and_ends_with_the_same_status(told, tmp_path, capsys):
    (tmp_path / "gate.json").write_text(told.to_json())
    show(told, wide_console())
    before = capsys.readouterr().out
    assert run_verb("explain", tmp_path / "gate.json") == EXIT[told.state]
    assert capsys.readouterr().out.split() == before.split()


def test_a_slowdown_names_its_next_commands():
    *_, why, accept, again = remarks(report(verdict("slower", 0.02), verdict("same")))
    assert again.startswith("to repeat the worst case: lockstep gate --base 1a2b3c4 --head 5d6e7f8 ")
    assert why == "to see what changed in the machine code: lockstep code diff 1a2b3c4 5d6e7f8 --family linear"
    assert accept == "if a slowdown is meant: an [[accept]] with the reason in thresholds.toml"
    *_, last, again = remarks(report(verdict("slower", 0.02), script="bench.py"))
    assert again.startswith("to repeat the worst case: lockstep gate --script bench.py")
    assert "--variant" in again
    assert last == accept


def test_a_machine_without_a_gpu_names_what_judges_the_kernels_that_it_cannot_run():
    told = remarks(report(verdict("na"), verdict("same"), machine={"device": "cpu"}))[-1]
    assert told.startswith("to see what the compiler makes of them, without a GPU: lockstep code diff 1a2b3c4 5d6e7f8 ")
    assert "code diff" not in " ".join(remarks(report(verdict("na"), machine={"device": "cuda"})))


def test_a_script_that_ends_early_is_repeated_whole():
    """It has no call of that name any more once it is mended."""
    ended = replace(verdict("failed"), key=SeriesKey("bench", WHOLE_SCRIPT, "-", ""), reason="ImportError")
    [again] = [text for text in remarks(report(ended, script="bench.py")) if text.startswith("to repeat")]
    assert again == "to repeat the worst case: lockstep gate --script bench.py --base 1a2b3c4 --head 5d6e7f8"


def test_a_file_that_is_no_report_is_a_mistake(tmp_path, capfd):
    (tmp_path / "other.json").write_text("{}")
    assert run_verb("explain", tmp_path / "other.json") == 4
    assert "is not of schema 1" in "".join(capfd.readouterr())
    assert run_verb("explain", tmp_path / "none.json") == 4
    assert "none.json cannot be read: No such file or directory\n" in "".join(capfd.readouterr())
