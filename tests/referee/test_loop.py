"""Loops of the referee: with workers of which a test decides what they say, and with a real one."""

import io
import json
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import lockstep.commands.referee  # noqa: F401 — makes the verb known where the installed package lacks it
from lockstep.commands import cli
from lockstep.processes.watched_worker import WorkerDied
from lockstep.record.model import Estimate, Record
from lockstep.referee.error_rate import Search
from lockstep.referee.loop import NoVerdict, Referee
from lockstep.referee.problem_definition import ProblemDefinition, Refused
from lockstep.referee.verdict import Outcome, Verdict

SOURCE = ProblemDefinition("kernelbench", "problem.py")


class Worker:
    """Measures a candidate as its text says: a gain in per cent, a rule, or a death."""

    def __init__(self, log, own="Model"):
        self.log, self.incumbent, self.host = log, own, {}
        log.append("start")

    def measure(self, candidate, incumbent, stage, seed):
        rival = incumbent.name if incumbent else self.incumbent
        self.log.append((stage, candidate and candidate.name, rival))
        ok = Record("thing", rival, "M=1", "warm", "ok", "1", latency=Estimate(2.0, 2.0, 2.0), epochs=15)
        if candidate is None:
            return [ok]
        text = Path(candidate.path).read_text(encoding="utf-8")
        if text == "dies":
            raise WorkerDied(candidate.name, "killed by SIGSEGV while timing")
        if text == "unloadable":
            raise Refused("cannot be loaded: SyntaxError")
        if text == "patches at import":
            raise Refused("its import replaced time.sleep", "changed-clock")
        if text == f"dies in {stage}":
            raise WorkerDied(candidate.name, "hung for 60 s in its check", rule="hung")
        text = "{}" if text.startswith("dies in") else text
        if text.startswith("rule "):
            rule = text.split()[1]
            failed = replace(ok, variant=candidate.name, state="failed", rule=rule, reason=f"Disqualified: {rule} seen")
            return [ok, failed]
        if text == "spoils":
            return [replace(ok, state="failed", reason="off"), replace(ok, variant=candidate.name)]
        gain = {"screen": 1.0, "repeat": 1.0, "final": 1.0} | json.loads(text)
        ratio = 1 + gain[stage] / 100
        speedup = Estimate(ratio, ratio / 1.0005, ratio * 1.0005)
        return [ok, replace(ok, variant=candidate.name, speedup=speedup)]

    def close(self):
        self.log.append("close")


@pytest.fixture
def log():
    return []


@pytest.fixture
def referee(log):
    one = Referee(SOURCE, Search(), 10.0, worker=lambda source, silence_s: Worker(log))
    one.open()
    log.clear()
    yield one
    one.close()


def test_a_candidate_is_faster_only_if_a_new_process_says_so(referee, log):
    verdict = referee.judge(referee.submission("{}", "a"))
    assert verdict.outcome is Outcome.FASTER
    assert log == [("screen", "a", "Model"), ("repeat", "a", "Model"), "close", "start", ("final", "a", "Model")]
    assert verdict.speedup.low > 1.005
    assert verdict.sentence() == "a: correct and faster than Model by 1.00 % ± 0.22 % (2e+06 µs, Model 2e+06 µs)"
    verdict = referee.judge(referee.submission('{"final": 0.6}', "b"))
    assert (verdict.outcome, verdict.stage, verdict.incumbent) == (Outcome.NOT_FASTER, "final", "a")


def test_the_faster_one_is_the_next_incumbent_unless_the_first_is_kept(referee, log):
    referee.judge(referee.submission("{}", "a"))
    assert referee.incumbent == "a"
    assert referee.judge(referee.submission('{"screen": 0.1}', "b")).incumbent == "a"
    assert log[-1] == ("screen", "b", "a")
    with_first = Referee(SOURCE, Search(), 10.0, keep=True, worker=lambda source, silence_s: Worker(log))
    with_first.open()
    with_first.judge(with_first.submission("{}", "a"))
    assert with_first.incumbent == "Model"
    with_first.close()


@pytest.mark.parametrize(
    ("text", "outcome", "told"),
    [
        ("rule wrong-result", Outcome.WRONG, "wrong: wrong-result seen"),
        ("rule timed-result", Outcome.CHEATS, "cheats: timed-result: timed-result seen"),
        ("rule hung", Outcome.BROKEN, "broken: hung seen"),
        ("rule one-that-came-later", Outcome.CHEATS, "cheats: one-that-came-later: one-that-came-later seen"),
        ("dies", Outcome.BROKEN, "broken: killed by SIGSEGV while timing"),
        ("dies in screen", Outcome.BROKEN, "broken: hung for 60 s in its check"),
        ("dies in final", Outcome.BROKEN, "broken: hung for 60 s in its check"),
        ("patches at import", Outcome.CHEATS, "cheats: changed-clock: its import replaced time.sleep"),
        ("unloadable", Outcome.BROKEN, "broken: cannot be loaded: SyntaxError"),
        ("spoils", Outcome.BROKEN, "broken: Model fails beside this candidate, but not alone: off"),
        ('{"screen": 0.4}', Outcome.NOT_FASTER, "no faster than chance: 0.40 % ±"),
        ('{"repeat": 0.6}', Outcome.NOT_FASTER, "no faster than chance: 0.60 % ±"),
    ],
)
def test_each_way_of_losing_is_a_verdict_and_the_loop_goes_on(referee, text, outcome, told):
    verdict = referee.judge(referee.submission(text, "a"))
    assert verdict.outcome is outcome
    assert told in verdict.sentence()
    assert referee.incumbent == "Model"
    assert referee.judge(referee.submission("{}", "b")).outcome is Outcome.FASTER
    assert sum(referee.counts.values()) == 2


def test_a_process_that_a_dishonest_candidate_was_in_serves_no_other(referee, log):
    referee.judge(referee.submission("rule changed-clock", "a"))
    assert log[-1] == "close"
    referee.judge(referee.submission('{"screen": 0}', "b"))
    assert log[-2:] == ["start", ("screen", "b", "Model")]


def test_the_levels_of_finals_shrink_and_other_stages_cost_none(referee):
    widths = []
    for number in range(3):
        referee.judge(referee.submission('{"screen": 0}', f"a{number}"))
        verdict = referee.judge(referee.submission('{"final": 0}', f"b{number}"))
        widths.append(verdict.speedup.high - verdict.speedup.low)
    assert referee.search.finals == 3
    assert widths == sorted(widths)
    assert widths[0] < widths[2]


def test_names_are_unique_and_copies_outlive_their_files(referee, tmp_path):
    path = tmp_path / "a.py"
    path.write_text('{"screen": 0}')
    first, second = referee.submission_of(str(path)), referee.submission_of(str(path))
    path.write_text("dies")
    assert (first.name, second.name) == (str(path), f"{path}#2")
    assert referee.judge(first).outcome is Outcome.NOT_FASTER


def test_an_incumbent_that_cannot_be_measured_ends_the_loop_before_it_begins(log):
    class Dying(Worker):
        def measure(self, candidate, incumbent, stage, seed):
            raise WorkerDied("Model", "hung for 60 s in its check")

    class Wrong(Worker):
        def measure(self, candidate, incumbent, stage, seed):
            [ok] = super().measure(candidate, incumbent, stage, seed)
            return [replace(ok, state="failed", reason="off by 0.1")]

    for kind, told in ((Dying, "hung for 60 s"), (Wrong, "off by 0.1")):
        one = Referee(SOURCE, Search(), 10.0, worker=lambda source, silence_s, kind=kind: kind(log))
        with pytest.raises(NoVerdict, match=told):
            one.open()
        one.close()


def test_an_endless_interval_is_told_as_such():
    verdict = Verdict("a", "b", Outcome.NOT_FASTER, speedup=Estimate(1.2, 0.0, float("inf")))
    assert verdict.sentence() == "a: correct, no faster than chance: 20.00 % ± more than 100 % against b"


PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range(40):
            torch.sin(x)
        return torch.sin(x)


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
"""

HEAD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"


@pytest.fixture
def verb(tmp_path, monkeypatch, capsys):
    """Runs ``lockstep referee`` in a folder without a configuration: exit status, verdicts, what was said."""
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "good.py").write_text(HEAD + "        return x.sin()\n")
    (tmp_path / "wrong.py").write_text(HEAD + "        return x.cos()\n")
    (tmp_path / "dies.py").write_text(HEAD + "        import os\n        os.kill(os.getpid(), 9)\n")
    monkeypatch.chdir(tmp_path)
    handlers = list(logging.getLogger().handlers)

    def run(*words, lines=""):
        monkeypatch.setattr(sys, "argv", ["lockstep", "referee", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        logging.getLogger().handlers = list(handlers)
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        return ended.value.code, told.out.splitlines(), told.err

    return run


def test_a_loop_over_lines_keeps_one_worker_and_answers_each_line(verb):
    lines = [
        {"file": "wrong.py"},
        {"source": HEAD + "        return x.sin()\n", "name": "sin"},
        {"file": "dies.py"},
        {"file": "nosuch.py"},
        ["no object"],
    ]
    text = "\n".join(map(json.dumps, lines)) + "\nno JSON\n"
    status, out, err = verb("--kernelbench", "problem.py", "--json", lines=text)
    verdicts = [json.loads(line) for line in out]
    assert [one["outcome"] for one in verdicts] == ["wrong", "faster", "broken", "broken", "broken", "broken"]
    assert verdicts[1]["candidate"] == "sin"
    assert verdicts[1]["speedup"]["low"] > 1.005
    assert verdicts[2]["reason"].startswith("killed by SIGKILL in its check")
    assert verdicts[2]["incumbent"] == "sin"
    assert "No such file" in verdicts[3]["reason"]
    assert verdicts[4]["candidate"] == "line 5"
    assert status == 0
    assert "3 candidates in" in err
    assert "At most 0.01 of such loops" in err


def test_exit_statuses_of_the_referee(verb):
    status, out, _ = verb("--kernelbench", "problem.py", "wrong.py", "dies.py")
    assert (status, len(out)) == (2, 2)
    slow = HEAD + "        return torch.sin(x + torch.zeros(200, 64, 256).sum(0))\n"
    status, out, _ = verb("--kernelbench", "problem.py", "--against", "good.py", lines=json.dumps({"source": slow}))
    assert status == 1
    assert "no faster than chance" in out[0]
    status, out, err = verb("--kernelbench", "problem.py", "--against", "wrong.py", "good.py")
    assert (status, "the incumbent wrong.py cannot be measured" in err + "".join(out)) == (3, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--kernelbench", "problem.py", "nosuch.py"), "'nosuch.py' cannot be read"),
        (("--kernelbench", "nosuch.py", "good.py"), "nosuch.py"),
        (("--suite", "problem.py", "good.py"), "0 suites"),
        (("good.py",), "one of the arguments --suite --kernelbench --flashinfer is required"),
        (("--kernelbench", "problem.py", "--min-effect", "much", "good.py"), "not a share"),
    ],
)
def test_wrong_words_are_usage_and_say_what_is_missing(verb, words, told):
    status, out, err = verb(*words)
    assert status == 4
    assert told in "".join(out) + err
