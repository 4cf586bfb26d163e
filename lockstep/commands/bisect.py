"""``lockstep bisect ALERT``: measure commits of an alert's range, and report the first bad commit."""

from __future__ import annotations

import argparse
import math
import shutil
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.commands import Command
from asv.console import log

from lockstep.commands.alert_options import add_sources, add_state, alert_number, open_alerts
from lockstep.commands.bisect_releases import add_package_options, bisect_package
from lockstep.commands.results_options import load_config, open_store, repository
from lockstep.commands.shards_option import add_shards_option, fleet_of
from lockstep.commands.shared_options import tuned_file
from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BAD_NEWS, BROKEN, OK, UsageError
from lockstep.record.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstep.alerts.bisection import Bisection, Measurement
    from lockstep.alerts.database.store import AlertStore
    from lockstep.alerts.model import FoundChange
    from lockstep.fleet.shard import Shard
    from lockstep.record.model import Record


class Bisect(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Find the first bad commit of an alert, or the first bad release of a package.

    Measure both ends of the alert's range on this machine, then halve the range until one commit is left. All commits
    are measured with the current benchmark definition and toolchain. The working tree is not touched. Exit status: 0
    found, 1 the ends do not differ on this machine as recorded, 3 inconclusive (the range is unknown, an end cannot be
    measured, measurements scatter too much), 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument(
            "alert", type=alert_number, nargs="?", help="number of the alert, as `lockstep alerts list` shows it"
        )
        parser.add_argument("--quick", action="store_true", help="measure each commit briefly, for a large change")
        add_shards_option(parser, "measure on several GPUs at once")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        add_sources(parser)
        add_state(parser)
        add_package_options(parser)

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Check the alert and its range first, without asv's configuration; then run the verb."""
        if (args.alert is None) == (args.package is None):
            raise UsageError("bisect needs the number of an alert, or --package 'liger-kernel==0.5.0..0.6.4'")
        if args.package:
            return bisect_package(None, args) if args.script else int(super().run_from_args(args))
        ended = _check_alert(args)
        return int(super().run_from_args(args)) if ended is None else ended

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Bisect, print the result, and store it in the alert's log."""
        if args.package:
            return bisect_package(conf, args)
        return _run(conf, args)


def _check_alert(args: argparse.Namespace) -> int | None:
    """Return the exit status if the range of the alert is unknown; ``None`` if it can be bisected.

    Raises:
        UsageError: bisect does not measure what the alert is about.
    """
    from lockstep.alerts.bisection import UnknownRange, search_range
    from lockstep.alerts.cause.commit_ranges import Ranges
    from lockstep.alerts.text import asv_find_command, search_command

    store = open_alerts(args)
    alert = store.alert(args.alert)
    details = alert.alert
    if not details.members or not details.commits or not details.before:
        raise UsageError(f"alert {alert.id} has no range of commits to bisect")
    conf = load_config(args)
    worst = details.members[0]
    if worst.series.checked or worst.series.exact or worst.series.cost:
        shown = f"lockstep code diff {details.before[:8]} {details.after[:8]} shows the change"
        instead = filter(None, (search_command(details, alert.id), shown if worst.series.exact else ""))
        raise UsageError(f"bisect measures latencies and speedups, not {worst.series.quantity}: {'; '.join(instead)}")
    if conf and conf.environment_type == "lockstep" and worst.series.ours:
        return None
    try:
        search_range(Ranges(repository(args)), details, worst)
    except UnknownRange as error:
        _report(store, args, str(error))
        return BROKEN
    if conf or not worst.series.ours:
        raise UsageError(f"Lockstep did not measure this series; asv bisects it: {asv_find_command(details)}")
    # Without a configuration, asv reports that it is missing.
    return None


def _run(conf: Any, args: argparse.Namespace) -> int:
    from asv.repo import get_repo

    from lockstep.alerts.analysis.step_facts import levels
    from lockstep.alerts.bisection import Expected, Inconclusive, NotReproduced, UnknownRange, bisect, search_range
    from lockstep.alerts.cause.commit_ranges import Ranges

    store = open_alerts(args)
    alert = store.alert(args.alert)
    member = alert.alert.members[0]
    quantity = member.series.quantity
    repo = get_repo(conf)
    ranges = Ranges(Path(repo._path), tuple(conf.lockstep.get("packages", ())))
    try:
        span = search_range(ranges, alert.alert, member)
        shards = fleet_of(args.shards) if args.shards else (None,)
        with ExitStack() as stack:
            measure, *others = (
                stack.enter_context(closing(_Measure(conf, repo, member, args, shard))) for shard in shards
            )
            good, bad = levels(open_store(args).current(), member.series, span.good, span.bad)
            expected = Expected(member.size, good, bad, lambda log: _number(log, quantity))
            bisection = bisect(span, measure, expected, others)
    except UnknownRange as error:
        _report(store, args, str(error))
        return BROKEN
    except Inconclusive as error:
        _report(store, args, str(error), measured=error.measured)
        return BAD_NEWS if isinstance(error, NotReproduced) else BROKEN
    _report(store, args, _sentence(bisection, member), bisection.suspects, bisection.measured)
    return OK


def _report(
    store: AlertStore,
    args: argparse.Namespace,
    sentence: str,
    first_bad: Sequence[str] = (),
    measured: Sequence[Measurement] = (),
) -> None:
    """Print what was found, and note it in the alert's log."""
    store.note(args.alert, "bisected", sentence)
    log.flush()  # asv ends a line only when the next line begins
    if args.json:
        content = {
            "first_bad": list(first_bad),
            "sentence": sentence,
            "measured": [asdict(measurement) for measurement in measured],
        }
        print_json(content)
    elif first_bad:
        print(sentence)
    else:
        log.error(sentence)


class _Measure:
    """Measures one series of an alert at one commit after another, each commit in a new worker process."""

    def __init__(
        self, conf: Any, repo: Any, member: FoundChange, args: argparse.Namespace, shard: Shard | None
    ) -> None:
        from lockstep.suite.discovery import Workspace
        from lockstep.timing.clocks.reference_clocks import NAME, ReferenceClocks

        self._conf = conf
        self._args = args
        self._series = member.series
        #: asv's repository, used to check out the commits.
        self._repo = repo
        # Fail before any checkout if the current suites no longer have the series.
        self._workspace = Workspace.of(conf)
        [suite] = self._workspace.pick([member.series.suite])
        suite.case(member.series.case)
        self._version = suite.benchmark_version
        self._checkout = Path(conf.env_dir).resolve() / (f"bisect-{shard.name}" if shard else "bisect")
        self._gpu = shard.uuid if shard else ""
        # Normalise to the recorded reference clock, like the recorded levels before and after the change.
        self._clocks = ReferenceClocks(Path(conf.results_dir) / member.series.machine / NAME)

    def __call__(self, commit: str) -> Measurement:
        from lockstep.asv.coordinator import CommitWorker
        from lockstep.asv.worker_client import WorkerSpec
        from lockstep.timing.clocks.reference_clocks import ReferenceClocks

        series = self._series
        self._checkout.parent.mkdir(parents=True, exist_ok=True)
        self._repo.checkout(str(self._checkout), commit)
        code = self._checkout, self._workspace.packages, self._workspace.benchmark_dir
        spec = WorkerSpec(*code, self._args.quick, tuned=tuned_file(self._conf), gpu=self._gpu)
        silence_s, clocks = float(self._conf.default_benchmark_timeout), ReferenceClocks()
        clocks.join(self._clocks)  # a copy: what is measured here belongs to no results
        with closing(CommitWorker(commit[:8], spec, silence_s, say=log.debug, clocks=clocks)) as worker:
            records = worker.measure(series.suite, series.case, series.l2, [series.variant], self._version)
        [record] = [candidate for candidate in records if candidate.variant == series.variant]
        measurement = _measurement(commit, record, series.quantity)
        if not self._args.json:
            number = "" if measurement.log is None else _number(measurement.log, series.quantity)
            log.info(f"{commit[:8]}: {number or measurement.reason}")
        return measurement

    def close(self) -> None:
        """Remove the folder with the checked-out commit."""
        shutil.rmtree(self._checkout, ignore_errors=True)


def _measurement(commit: str, record: Record, quantity: str) -> Measurement:
    from lockstep.alerts.bisection import Measurement

    estimate = record.speedup if quantity == "speedup" else record.latency
    if record.state != "ok" or estimate is None:
        return Measurement(commit, None, reason=f"{record.state}: {record.reason}" if record.reason else "no number")
    value, low, high = (math.log(value) for value in (estimate.value, estimate.low, estimate.high))
    if quantity == "speedup":
        value, low, high = -value, -high, -low
    return Measurement(commit, value, low, high)


def _number(log: float, quantity: str) -> str:
    """Return a latency or speedup with its unit as text, from its logarithm (of 1 / speedup for a speedup)."""
    return f"{math.exp(-log):.4f}×" if quantity == "speedup" else f"{1e6 * math.exp(log):.2f} µs"


def _sentence(bisection: Bisection, member: FoundChange) -> str:
    assert bisection.good.log is not None
    assert bisection.bad.log is not None
    commits = len({measurement.commit for measurement in bisection.measured})
    steps = f"{len(bisection.measured)} measurements of {commits} commits"
    by = f"{math.expm1(bisection.bad.log - bisection.good.log):+.1%} in {member.series.label}"
    if len(bisection.suspects) == 1:
        return f"the first bad commit is {bisection.suspects[0]} ({by}; {steps})"
    listed = ", ".join(commit[:8] for commit in bisection.suspects)
    return f"the first bad commit is one of {listed}: all but the last cannot be measured ({by}; {steps})"
