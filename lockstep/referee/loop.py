"""Judge candidates one after another, each in a process of its own."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lockstep.processes.exit_status import Unusable
from lockstep.processes.trouble import reason_of
from lockstep.processes.watched_worker import WorkerDied
from lockstep.referee.error_rate import STAGES, Search, pooled
from lockstep.referee.judge import Judge, RivalFailed
from lockstep.referee.problem_definition import ProblemDefinition, Refused, Submission
from lockstep.referee.verdict import Outcome, Verdict, case_row
from lockstep.suite.definition import SuiteError
from lockstep.timing.intervals import exponential
from lockstep.timing.rules.rule import Disqualified


class NoVerdict(Unusable):
    """A verdict is impossible because of the machine or the incumbent. The message names the cause."""


class Referee:
    """Judges the candidates of one loop. Call ``close`` at the end. Raise ``SuiteError`` if the problem cannot be used.

    Attributes:
        search: the tests with error rate and smallest effect; it counts the finals.
        keep: compare every candidate with the first incumbent; otherwise a faster candidate becomes the incumbent.
        judge: opens the problem (tests pass their own).
        incumbent: name of the submission that candidates are currently compared with.
        counts: number of verdicts so far, by outcome.
        notes: what a reader of the verdicts must know about the problem.
    """

    def __init__(
        self,
        source: ProblemDefinition,
        search: Search,
        silence_s: float,
        *,
        keep: bool = False,
        judge: Callable[[ProblemDefinition, float], Judge] = Judge,
    ) -> None:
        self.search = search
        self.counts = dict.fromkeys(Outcome, 0)
        self.incumbent = ""
        self._source, self._keep = source, keep
        self._judge = judge(source, silence_s)
        self.notes = self._judge.notes
        self._champion: Submission | None = None  # None is the problem's own incumbent
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-referee-")
        self._names: set[str] = set()

    def open(self, incumbent: Submission | None = None) -> None:
        """Start ``incumbent``, or the problem's own, and check it alone. No candidate can be judged if this fails.

        Raise ``NoVerdict`` if the incumbent fails. Raise ``SuiteError`` if the problem has no incumbent of its own.
        """
        self._champion = incumbent
        self.incumbent = incumbent.name if incumbent else self._judge.incumbent
        if not self.incumbent:
            raise SuiteError(f"{self._source.definition} has no baseline; name the incumbent: --against FILE.py")
        self._names.add(self.incumbent)
        try:
            self._judge.open(incumbent)
        except (WorkerDied, Refused, Disqualified) as error:
            raise NoVerdict(f"the incumbent {self.incumbent} cannot be measured: {error}") from error

    def submission(self, text: str, name: str = "", function: str = "", suffix: str = ".py") -> Submission:
        """Return a submission of a source text. The text is copied to a file, so that the original file may change."""
        label, number = name or f"candidate{suffix}", 1
        while label in self._names:
            number += 1
            label = f"{name or f'candidate{suffix}'}#{number}"
        self._names.add(label)
        path = Path(self._folder.name, f"candidate_{len(self._names)}{suffix}")
        path.write_text(text, encoding="utf-8")
        return Submission(label, str(path), function)

    def submission_of(self, location: str, name: str = "") -> Submission:
        """Return the submission of ``FILE``, ``FILE:FUNCTION`` or a suite's variant. Raise ``SuiteError`` if
        unreadable.
        """
        if self._source.packages and not location.partition(":")[0].endswith((".py", ".json")):
            return Submission(name or location, "", location)
        file, _, function = location.partition(":")
        path = Path(file)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise SuiteError(f"candidate {location!r} cannot be read: {reason_of(error)}") from error
        return self.submission(text, name or location, function, path.suffix or ".py")

    def judge(self, candidate: Submission) -> Verdict:
        """Return the verdict on a candidate; a faster candidate becomes the incumbent unless ``keep`` is set.

        Raise ``NoVerdict`` if the incumbent fails.
        """
        started = time.monotonic()
        try:
            verdict = self._verdict(candidate)
        except RivalFailed as error:
            raise NoVerdict(f"the incumbent {self.incumbent} cannot be measured: {error}") from error
        finally:
            self._judge.dismiss()  # no process serves two candidates
        verdict = replace(verdict, seconds=time.monotonic() - started)
        self.counts[verdict.outcome] += 1
        if verdict.outcome is Outcome.FASTER and not self._keep:
            self._champion, self.incumbent = candidate, candidate.name
        return verdict

    def close(self) -> None:
        """End all processes and delete the copies of the candidates' files."""
        self._judge.close()
        self._folder.cleanup()

    def _verdict(self, candidate: Submission) -> Verdict:
        verdict = Verdict(candidate.name, self.incumbent, Outcome.BROKEN)
        for stage in STAGES:
            verdict = replace(verdict, stage=stage)
            try:
                compared = self._judge.measure(candidate, self._champion, stage)
            except WorkerDied as died:
                return verdict.failed(died.rule, died.how)
            except Disqualified as broken:
                return verdict.failed(broken.rule, broken.evidence)
            except Refused as refused:
                return verdict.failed("", str(refused))
            evidence = pooled([case.evidence for case in compared])
            level = self.search.level(stage)
            verdict = replace(
                verdict,
                outcome=Outcome.NOT_FASTER,
                speedup=exponential(self.search.interval(evidence, level)),
                cases=tuple(map(case_row, compared)),
            )
            if not self.search.passes(stage, evidence, level):
                return verdict
        self._judge.dismiss()
        if slowed := self._judge.alone(self._champion, compared):
            evidence = replace(evidence, log_ratio=evidence.log_ratio - slowed)
            verdict = replace(verdict, speedup=exponential(self.search.interval(evidence, level)))
            if not self.search.passes("final", evidence, level):
                reason = f"the incumbent is faster by {math.expm1(slowed):.2%} when this candidate's process is gone"
                return replace(verdict, reason=reason)
        unconfirmed = self._judge.unconfirmed
        return replace(verdict, outcome=Outcome.FASTER, confirmed=not unconfirmed, reason=unconfirmed)
