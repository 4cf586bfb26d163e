"""Rules that disqualify a variant's number: their names, and the error that reports a broken rule."""

from __future__ import annotations

from enum import StrEnum


class Rule(StrEnum):
    """A condition that every timed variant must meet; the value is its name in records, reports and docs."""

    WRONG_RESULT = "wrong-result"
    TIMED_RESULT = "timed-result"
    IMPOSSIBLE_TIME = "impossible-time"
    EMPTY_GRAPH = "empty-graph"
    WRITTEN_INPUT = "written-input"
    ALIASED_OUTPUT = "aliased-output"
    UNREAL_OUTPUT = "unreal-output"
    UNJOINED_WORK = "unjoined-work"
    CHANGED_BASELINE = "changed-baseline"
    CHANGED_CLOCK = "changed-clock"
    CHANGED_HARNESS = "changed-harness"
    OUT_OF_TURN = "out-of-turn"
    HUNG = "hung"


class Disqualified(AssertionError):
    """A variant broke a rule; its time is not valid. ``evidence``, the message, is what was observed, in numbers."""

    def __init__(self, rule: Rule, evidence: str) -> None:
        super().__init__(evidence)
        self.rule = rule
        self.evidence = evidence
