"""Judge candidates one after another with one running worker."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lockstep.processes.watched_worker import WorkerDied
from lockstep.record.model import Record
from lockstep.referee.error_rate import STAGES, Search, Stage, pooled
from lockstep.referee.problem_definition import ProblemDefinition, Refused, Submission
from lockstep.referee.verdict import Outcome, Verdict, case_rows, evidence, fault
from lockstep.referee.worker_client import RefereeWorker
from lockstep.suite.definition import SuiteError
from lockstep.timing.intervals import exponential


class NoVerdict(RuntimeError):
    """A verdict is impossible because of the machine, the worker or the incumbent. The message names the cause."""


class Referee:
    """Judges the candidates of one loop. Call ``close`` at the end.

    Args:
        search: the tests with error rate and smallest effect; it counts the finals.
        silence_s: seconds without an event after which a candidate counts as hung.
        keep: compare every candidate with the first incumbent; otherwise a faster candidate becomes the incumbent.
        worker: starts a worker (tests pass their own).
        confirm: judges a faster candidate again from a process that never imports the candidate. It gets the candidate,
            the incumbent and their records, and returns confirmed records (``lockstep.referee.confirm_win``).

    Attributes:
        incumbent: name of the submission that candidates are currently compared with.
        counts: number of verdicts so far, by outcome.
    """

    def __init__(
        self,
        source: ProblemDefinition,
        search: Search,
        silence_s: float,
        *,
        keep: bool = False,
        worker: Callable[[ProblemDefinition, float], RefereeWorker] = RefereeWorker,
        confirm: Callable[[Submission, Submission | None, list[Record]], list[Record]] | None = None,
    ) -> None:
        self.search = search
        self.counts = dict.fromkeys(Outcome, 0)
        self.incumbent = ""
        self._source, self._silence_s, self._keep = source, silence_s, keep
        self._make_worker, self._confirm = worker, confirm
        self._worker: RefereeWorker | None = None
        self._champion: Submission | None = None  # None is the problem's own incumbent
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-referee-")
        self._names: set[str] = set()
        self._chance = random.SystemRandom()

    def open(self, incumbent: Submission | None = None) -> None:
        """Start the worker and measure the incumbent alone. No candidate can be judged if this fails.

        Args:
            incumbent: the first incumbent; None for the problem's own.

        Raises:
            NoVerdict: the worker or the incumbent fails.
            SuiteError: the problem cannot be used, or has no incumbent of its own.
        """
        self._champion = incumbent
        try:
            worker = self._up()
            if incumbent is None and not worker.incumbent:
                raise SuiteError(f"{self._source.definition} has no baseline; name the incumbent: --against FILE.py")
            self.incumbent = incumbent.name if incumbent else worker.incumbent
            self._names.add(self.incumbent)
            records = worker.measure(None, incumbent, "screen", self._seed())
        except (WorkerDied, Refused) as error:
            raise NoVerdict(f"the incumbent {self.incumbent} cannot be measured: {error}") from error
        if bad := next((record for record in records if record.state != "ok"), None):
            reason = f"{bad.reason} ({bad.case}, {bad.l2} L2)"
            raise NoVerdict(f"the incumbent {self.incumbent} cannot be measured: {reason}")

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
        """Return the submission of ``FILE`` or ``FILE:FUNCTION``.

        Raises:
            SuiteError: the file cannot be read.
        """
        file, _, function = location.partition(":")
        path = Path(file)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise SuiteError(f"candidate {location!r} cannot be read: {error}") from error
        return self.submission(text, name or location, function, path.suffix or ".py")

    def judge(self, candidate: Submission) -> Verdict:
        """Return the verdict on a candidate; a faster candidate becomes the incumbent unless ``keep`` is set.

        Raises:
            NoVerdict: no worker can be started.
        """
        started = time.monotonic()
        verdict = replace(self._judge(candidate), seconds=time.monotonic() - started)
        self.counts[verdict.outcome] += 1
        if verdict.outcome in (Outcome.CHEATS, Outcome.BROKEN):
            self.close_worker()  # ends every change that the candidate made to the process
        if verdict.outcome is Outcome.FASTER and not self._keep:
            self._champion, self.incumbent = candidate, candidate.name
        return verdict

    def close_worker(self) -> None:
        """End the worker; the next candidate starts a new worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def close(self) -> None:
        """End the worker and delete the copies of the candidates' files."""
        self.close_worker()
        self._folder.cleanup()

    def _judge(self, candidate: Submission) -> Verdict:
        for stage in STAGES:
            if stage == "final":
                self.close_worker()
            blank = Verdict(candidate.name, self.incumbent, Outcome.BROKEN, stage=stage)
            try:
                records = self._up().measure(candidate, self._champion, stage, self._seed())
            except WorkerDied as died:
                self.close_worker()
                prefix = f"{died.variant}, beside the candidate: " if died.variant not in ("", candidate.name) else ""
                return blank.failed(died.rule, prefix + died.how)
            except Refused as refused:
                return blank.failed(refused.rule, str(refused))
            verdict, further = self._weigh(blank, records, stage)
            if not further:
                return verdict
        if self._confirm is not None:
            self.close_worker()  # on a GPU the worker would disturb the contestants
            own_records = [
                record
                for record in self._confirm(candidate, self._champion, records)
                if record.variant == candidate.name
            ]
            if failure := fault(own_records):
                return blank.failed(*failure)
            if unconfirmed := next((record for record in own_records if record.speedup is None or record.rule), None):
                return replace(verdict, rule=unconfirmed.rule, reason=unconfirmed.note)
        return replace(verdict, outcome=Outcome.FASTER)

    def _weigh(self, blank: Verdict, records: list[Record], stage: Stage) -> tuple[Verdict, bool]:
        """Return ``blank`` completed by a stage's records, and whether the candidate passes the stage."""
        own_records = [record for record in records if record.variant == blank.candidate]
        rival = [record for record in records if record.variant == blank.incumbent]
        if failure := fault(own_records):
            return blank.failed(*failure), False
        measured = [evidence_of_case for record in own_records if (evidence_of_case := evidence(record))]
        if len(measured) < len(own_records):
            reason = next((record.reason for record in rival if record.state != "ok"), "no reason was given")
            return blank.failed("", f"{blank.incumbent} fails beside this candidate, but not alone: {reason}"), False
        together = pooled(measured)
        level = self.search.level(stage)
        speedup = exponential(self.search.interval(together, level))
        verdict = replace(blank, outcome=Outcome.NOT_FASTER, speedup=speedup, cases=case_rows(own_records, rival))
        return verdict, self.search.passes(stage, together, level)

    def _up(self) -> RefereeWorker:
        """Return the worker; start it if needed.

        Raises:
            NoVerdict: the worker does not start.
        """
        if self._worker is None:
            try:
                self._worker = self._make_worker(self._source, self._silence_s)
            except WorkerDied as died:
                raise NoVerdict(f"the worker does not start: {died}") from died
        return self._worker

    def _seed(self) -> int:
        return self._chance.getrandbits(32)
