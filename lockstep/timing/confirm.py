"""Confirm the records of a case by the measurements of a judge in another process (``lockstep.timing.isolated``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lockstep.processes.watched import WorkerDied
from lockstep.record.model import TWIN, Record
from lockstep.record.quantity import PAIRED
from lockstep.timing.check import brief
from lockstep.timing.isolated import Refused
from lockstep.timing.rules import Disqualified, Rule
from lockstep.timing.whole_runs import Isolated

#: Accepted ratio of a speedup measured in one process to the largest speedup that the judge's runs allow. The judge's
#: sets are always cold and its runs short, so a warm series differs. On a CPU, other work also disturbs the runs.
LARGEST_EXCESS = {"cold": 1.25, "warm": 2.0}


def confirm(records: Sequence[Record], judge: Callable[[str], Isolated]) -> list[Record]:
    """Return one case's records after judging each variant in a separate process.

    A refused record is marked failed. A record that the judge cannot confirm stays without its speedup.

    Args:
        records: all records of the case.
        judge: called with a variant's name; raises the same errors as ``lockstep.timing.isolated.judge``.
    """
    seen: dict[str, Isolated] = {}
    confirmed = []
    # The baseline is judged first, because the other records are compared with it.
    for record in sorted(records, key=lambda one: one.variant != one.baseline):
        if record.state != "ok" or record.variant.endswith(TWIN):
            confirmed.append(record)
            continue
        try:
            seen[record.variant] = judge(record.variant)
            doubt = _require_confirmation(record, seen[record.variant], seen.get(record.baseline))
        except NotImplementedError as error:
            confirmed.append(_withheld(record, f"not judged in isolation: {error}"))
        except (Disqualified, Refused) as error:
            rule = error.rule if isinstance(error, Disqualified) else ""
            confirmed.append(_failed(record, brief(error), rule))
        except WorkerDied as died:
            confirmed.append(_failed(record, f"in isolation: {died.how}", died.rule))
        else:
            told = _noted(record, _told(seen[record.variant]))
            confirmed.append(_withheld(told, doubt) if doubt else told)
    order = [record.variant for record in records]
    return sorted(confirmed, key=lambda one: order.index(one.variant))


def _require_confirmation(record: Record, own: Isolated, baseline: Isolated | None) -> str:
    """Refuse a speedup that the judge's runs do not allow. Return why the runs cannot confirm it, or "" if they do."""
    if record.speedup is None or record.variant == record.baseline:
        return ""
    if baseline is None:
        return "its speedup is not confirmed: the baseline was not judged in isolation"
    if own.low <= 0:
        return (
            f"its speedup is not confirmed: the judge's runs are too short to resolve {own.seconds * 1e6:.3g} µs a call"
        )
    allowed = LARGEST_EXCESS[record.l2] / own.low
    if record.speedup.low > allowed * baseline.seconds:
        raise Disqualified(
            Rule.UNCONFIRMED_TIME,
            f"{record.variant} has a speedup of {record.speedup.value:.3g} in one process, "
            f"but at most {baseline.seconds / own.low:.3g} when it is judged from another",
        )
    if record.speedup.low > allowed * baseline.low:
        return "its speedup is not confirmed: the judge's runs of the baseline differ too much"
    return ""


def _told(seen: Isolated) -> str:
    low, middle, high = (value * 1e6 for value in (seen.low, seen.seconds, seen.high))
    return "; ".join([f"in isolation {middle:.4g} µs a call ({low:.4g} … {high:.4g})", *seen.notes])


def _noted(record: Record, note: str) -> Record:
    return replace(record, note="; ".join(filter(None, (record.note, note))))


def _withheld(record: Record, why: str) -> Record:
    """Return the record without its unconfirmed speedups. A baseline keeps its speedup, which is 1 by definition."""
    told = _noted(record, why)
    if record.speedup is None or record.variant == record.baseline:
        return told
    costs = {name: cost for name, cost in record.costs.items() if name not in PAIRED.values()}
    return replace(told, speedup=None, speedup_samples=(), costs=costs, rule=Rule.UNCONFIRMED_TIME)


def _failed(record: Record, reason: str, rule: str) -> Record:
    return replace(record, state="failed", reason=reason, rule=rule, latency=None, speedup=None, costs={})
