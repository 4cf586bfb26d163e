"""Confirm the records of a case: compare them with measurements made from another process
(``lockstep.timing.isolation.isolated_judge``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lockstep.processes.watched_worker import WorkerDied
from lockstep.record.model import TWIN, Estimate, Record
from lockstep.record.quantity import PAIRED
from lockstep.timing.checks.check import brief
from lockstep.timing.isolation.isolated_time import Isolated, speedup
from lockstep.timing.isolation.trial import Refused
from lockstep.timing.rules.rule import Disqualified, Rule

#: Accepted ratio of a speedup measured in one process to the largest speedup that the judge's runs allow. The judge's
#: sets are always cold and its runs short, so a warm series differs. On a CPU, other work also disturbs the runs.
LARGEST_EXCESS = {"cold": 1.25, "warm": 2.0}


def confirm(records: Sequence[Record], judge: Callable[[str], Isolated]) -> list[Record]:
    """Return one case's records, changed where a measurement from another process (``judge``) does not support them.

    A record whose variant breaks a rule in that measurement is marked failed. If that measurement is too imprecise to
    confirm a speedup, the record gets that measurement's speedup and interval, or no speedup if it has none.

    Args:
        records: all records of the case.
        judge: measures the variant of this name; raises the errors of
            ``lockstep.timing.isolation.isolated_judge.Judge.judge``.
    """
    isolated_of: dict[str, Isolated] = {}
    confirmed = []
    # The baseline is judged first, because the other records are compared with it.
    for record in sorted(records, key=lambda item: item.variant != item.baseline):
        if record.state != "ok" or record.variant.endswith(TWIN):
            confirmed.append(record)
            continue
        try:
            isolated_of[record.variant] = isolated = judge(record.variant)
            confirmed.append(_confirmed(_noted(record, _note_of(isolated)), isolated, isolated_of.get(record.baseline)))
        except NotImplementedError as error:
            confirmed.append(_replaced(record, f"not judged in isolation: {error}"))
        except (Disqualified, Refused) as error:
            rule = error.rule if isinstance(error, Disqualified) else ""
            confirmed.append(_failed(record, brief(error), rule))
        except WorkerDied as died:
            confirmed.append(_failed(record, f"in isolation: {died.how}", died.rule))
    order = [record.variant for record in records]
    return sorted(confirmed, key=lambda item: order.index(item.variant))


def _confirmed(record: Record, own: Isolated, baseline: Isolated | None) -> Record:
    """Return the record if the judge's runs (``own``, ``baseline``) support its speedup, else with their speedup.

    Raises:
        Disqualified: ``UNCONFIRMED_TIME``, the judge's runs rule out the speedup.
    """
    claimed = record.speedup
    if claimed is None or record.variant == record.baseline:
        return record
    if baseline is None:
        return _replaced(record, "its speedup is not confirmed: the baseline was not judged in isolation")
    if short := next((isolated for isolated in (own, baseline) if isolated.low <= 0), None):
        microseconds = f"{short.seconds * 1e6:.3g} µs"
        reason = f"its speedup is not confirmed: the judge's runs are too short to resolve {microseconds} a call"
        return _replaced(record, reason)
    judged = speedup(own, baseline)
    note = f"{judged.value:.4g} times the baseline's speed in isolation ({judged.low:.4g} … {judged.high:.4g})"
    if claimed.low > LARGEST_EXCESS[record.l2] * judged.high:
        raise Disqualified(
            Rule.UNCONFIRMED_TIME,
            f"{record.variant} has a speedup of {claimed.value:.3g} in one process, "
            f"but at most {judged.high:.3g} when it is judged from another",
        )
    if claimed.low > LARGEST_EXCESS[record.l2] * baseline.low / own.low:
        reason = f"its speedup is that of the judge's runs, too imprecise to confirm {claimed.value:.4g}"
        return _replaced(_noted(record, note), reason, judged)
    return _noted(record, note)


def _note_of(isolated: Isolated) -> str:
    low, middle, high = (value * 1e6 for value in (isolated.low, isolated.seconds, isolated.high))
    return "; ".join([f"in isolation {middle:.4g} µs a call ({low:.4g} … {high:.4g})", *isolated.notes])


def _noted(record: Record, note: str) -> Record:
    return replace(record, note="; ".join(filter(None, (record.note, note))))


def _replaced(record: Record, reason: str, judged: Estimate | None = None) -> Record:
    """Return the record with ``judged`` in place of its unconfirmed speedup, or without a speedup.

    A baseline keeps its speedup, which is 1 by definition.
    """
    noted = _noted(record, reason)
    if record.speedup is None or record.variant == record.baseline:
        return noted
    costs = {name: cost for name, cost in record.costs.items() if name not in PAIRED.values()}
    return replace(noted, speedup=judged, speedup_samples=(), costs=costs, rule=Rule.UNCONFIRMED_TIME)


def _failed(record: Record, reason: str, rule: str) -> Record:
    return replace(record, state="failed", reason=reason, rule=rule, latency=None, speedup=None, costs={})
