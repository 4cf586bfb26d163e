"""``lockstep referee --isolated``: what forges its verdict in the worker is judged again in another process."""

import json
import sys
from dataclasses import replace

import pytest
from test_loop import Worker
from test_problems import SCALE, SUITE

import lockstep.commands.referee  # noqa: F401 — makes the verb known where the installed package lacks it
from lockstep.commands import cli
from lockstep.referee.error_rate import Search
from lockstep.referee.loop import Referee
from lockstep.referee.problem_definition import ProblemDefinition
from lockstep.referee.verdict import Outcome
from lockstep.timing.isolation import trial
from lockstep.timing.rules.rule import Rule

#: ``tamper.forged_reply`` for the referee's worker: reports records of its own, and answers all further requests.
FORGED = """
import dataclasses
import itertools
import json
import os
import sys


def scale(x, gain, *, out):
    frame, found = sys._getframe(), {}
    while frame:
        found = {**frame.f_locals, **found}
        if frame.f_code.co_name == "measure" and "rival" in frame.f_locals:
            found["bench"] = frame.f_locals
        frame = frame.f_back
    if "bench" not in found:  # judged from another process
        return out.zero_()
    names, problem = found["bench"], found["bench"]["self"]._problem
    model = sys.modules["lockstep.record.model"]
    second = model.Estimate(1.0, 1.0, 1.0)
    ok = model.Record(
        problem.suite.name, names["rival"], problem.cases[0].label, problem.l2, "ok", "1",
        latency=second, epochs=24, baseline=names["rival"],
    )
    gain = model.Estimate(1000.0, 999.0, 1001.0)
    rows = [ok, dataclasses.replace(ok, variant=names["candidate"].name, speedup=gain)]
    event = {"event": "records", "records": [dataclasses.asdict(row) for row in rows], "refused": "", "rule": ""}
    for _ in itertools.chain([""], sys.stdin):  # the request that was made, and all that follow
        found["process"]._reply.write(json.dumps(event) + "\\n")
    os._exit(0)
"""


@pytest.fixture
def problem(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes.py").write_text(SUITE)
    (tmp_path / "base.py").write_text(SCALE)
    (tmp_path / "forged.py").write_text(FORGED)
    monkeypatch.setattr(trial, "RUNS", 2)

    def run(*options):
        asked = ["lockstep", "referee", "--suite", "shapes.py", "--against", "base.py", "--json", "forged.py", *options]
        monkeypatch.setattr(sys, "argv", asked)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code

    return run


def test_a_forged_verdict_passes_in_one_process_and_not_with_isolated(problem, capsys):
    assert problem() == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "faster"
    assert problem("--isolated") == 2
    said = json.loads(capsys.readouterr().out)
    assert (said["outcome"], said["rule"], said["speedup"]) == ("cheats", "timed-result", None)
    assert "seen from another process" in said["reason"]


def test_an_honest_one_is_judged_and_one_that_no_run_confirms_is_not_faster():
    def confirm(candidate, incumbent, records):
        seen.append((candidate.name, incumbent, [one.variant for one in records]))
        return [replace(one, **doubted) if one.variant == candidate.name else one for one in records]

    seen, log, doubted = [], [], {}
    referee = Referee(
        ProblemDefinition("kernelbench", "problem.py"), Search(), 10.0, worker=lambda *_: Worker(log), confirm=confirm
    )
    referee.open()
    assert referee.judge(referee.submission("{}", "a")).outcome is Outcome.FASTER
    assert seen == [("a", None, ["Model", "a"])]
    assert log[-1] == "close"  # nothing runs beside what is judged
    doubted |= {"speedup": None, "rule": Rule.UNCONFIRMED_TIME, "note": "nobody knows"}
    verdict = referee.judge(referee.submission("{}", "b"))
    assert (verdict.outcome, verdict.rule, verdict.reason) == (Outcome.NOT_FASTER, "unconfirmed-time", "nobody knows")
    assert verdict.sentence().startswith("b: correct: nobody knows")
    assert referee.incumbent == "a"
    referee.close()
