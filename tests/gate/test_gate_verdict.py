"""Verdicts, requests and facts as they cross from one process to another."""

import json
from dataclasses import asdict, replace

import pytest

from lockstep.gate.judge import moved_controls
from lockstep.gate.model import (
    Group,
    GroupRequest,
    SeriesKey,
    SideFacts,
    Verdict,
)
from lockstep.gate.sequential_decision import Test
from lockstep.processes.worker import typed
from lockstep.record.model import Estimate

KEY = SeriesKey("linear", "split_k", "M=8", "cold")
NOT_TIMED = {"reason": "", "change": None, "base_s": None, "head_s": None, "code": (), "accepted": "", "file": ""}
NOT_TIMED |= {"min_effect": 0, "epochs": 0, "moved": 0, "voided": 0, "line": 0, "wall_s": 0, "excluded": None}
NOT_TIMED |= {"confirmed": False, "shared": True, "unchanged": False, "in_base": False}


def sent(one):
    return json.loads(json.dumps(asdict(one)))


def test_a_verdict_claims_nothing_that_it_was_not_told():
    told = typed(Verdict, {"key": asdict(KEY), "outcome": "na", "of_a_later_version": 1})
    assert asdict(told) == NOT_TIMED | {"key": asdict(KEY), "outcome": "na"}
    assert told == Verdict(KEY, "na")


def test_what_is_sent_arrives():
    verdict = Verdict(KEY, "slower", change=Estimate(0.02, 0.01, 0.03), code=("registers 168 → 255",), epochs=8)
    assert typed(Verdict, sent(verdict)) == verdict
    asked = GroupRequest(Group("linear", "M=8", "cold", ("split_k",)), {"split_k": Test(0.5, 0.05, 3, 0.1)})
    assert typed(GroupRequest, sent(asked)) == asked
    assert typed(GroupRequest, sent(replace(asked, twins=True))).twins


def test_a_side_that_is_not_known_is_not_missing_and_base_meets_head_unless_it_is_asked_otherwise():
    assert not SideFacts().missing
    assert not GroupRequest(Group("linear", "M=8", "cold", ()), {}).twins


@pytest.mark.parametrize(
    ("verdict", "blocks"),
    [
        (Verdict(KEY, "slower"), True),
        (Verdict(KEY, "slower", accepted="meant"), False),
        (Verdict(KEY, "slower", in_base=True), True),
        (Verdict(KEY, "failed"), True),
        (Verdict(KEY, "failed", in_base=True), False),
        (Verdict(KEY, "failed", accepted="meant"), True),
        (Verdict(KEY, "unsure"), False),
    ],
)
def test_only_what_is_slower_or_broken_by_the_change_blocks_it(verdict, blocks):
    assert verdict.blocks is blocks


def test_a_groups_cases_are_its_variants():
    assert Group("linear", "M=8", "cold", ("split_k", "triton")).cases() == (KEY, replace(KEY, variant="triton"))
    assert str(KEY) == "linear split_k M=8 cold"


@pytest.mark.parametrize(
    ("verdicts", "trouble"),
    [
        ([], ""),
        ([{"epochs": 5, "moved": 4, "voided": 4}], ""),  # 4 of 9
        ([{"epochs": 5, "moved": 9, "voided": 4}], "the controls moved in 9 of 9 epochs, so the machine is not steady"),
        ([{"epochs": 0, "moved": 3, "voided": 3}], "the controls moved in 3 of 3 epochs, so the machine is not steady"),
        ([{"epochs": 4}, {"moved": 4, "voided": 4}, {"moved": 1, "voided": 1}],
         "the controls moved in 5 of 9 epochs, so the machine is not steady"),
    ],
)  # fmt: skip
def test_epochs_that_moved_are_counted_among_those_that_were_begun(verdicts, trouble):
    assert moved_controls([Verdict(KEY, "unsure", **facts) for facts in verdicts]) == trouble
