"""Join the provenance and the records of one commit that several GPUs measured, in any order."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace

from lockstep.record.model import GpuShare, Provenance, Record

#: Facts of the host in which the GPUs of one fleet may differ. All others must agree, or the numbers do not compare.
OF_GPU = frozenset({"gpu_uuid", "vbios", "power_limit_w", "cpu", "os"})

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Measured:
    """The records of one commit by series and GPU, and their provenance. ``gpu`` of each record is "" on a CPU."""

    provenance: Provenance
    records: Mapping[tuple[Key, str], Record]

    @classmethod
    def of_file(cls, provenance: Provenance, records: Iterable[Record]) -> Measured:
        """Return the content of a provenance file, of one GPU or of several."""
        own = provenance.host.get("gpu_uuid", "") if not provenance.gpus else ""
        known = [replace(record, gpu=record.gpu or own) for record in records]
        return cls(provenance, {(record.key, record.gpu): record for record in known})

    def for_file(self) -> tuple[Provenance, list[Record]]:
        """Return what a provenance file stores: a file of one GPU names it once."""
        several = len(self.provenance.gpus) > 0
        records = sorted(self.records.values(), key=lambda record: (record.key, record.gpu))
        return self.provenance, [record if several else replace(record, gpu="") for record in records]

    def of_gpu(self, uuid: str) -> Measured | None:
        """Return what one GPU measured, as if it had measured alone; ``None`` if it measured nothing."""
        records = {key: record for key, record in self.records.items() if key[1] == uuid}
        if not records:
            return None
        return Measured(_shares(self.provenance)[uuid], records)

    @property
    def counting(self) -> dict[Key, Record]:
        """Return the record of each series whose number asv's file has; another GPU's record is kept beside it."""
        return {record.key: record for record in sorted(self.records.values(), key=lambda one: one.rank)}

    @property
    def newest(self) -> str:
        """Return when the newest record was measured."""
        return max((record.started_at for record in self.records.values()), default="")

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """Return the facts in which all parts of a commit must agree."""
        host = {name: fact for name, fact in self.provenance.host.items() if name not in OF_GPU}
        other = {"protocol": str(self.provenance.protocol), "clock state": self.provenance.clock_state}
        return tuple(sorted((host | other).items()))


def joined(parts: Collection[Measured]) -> Measured:
    """Return the records of all parts. Of two records of one series and GPU the one that was measured last is kept.

    Args:
        parts: parts whose ``conditions`` are equal.
    """
    records: dict[tuple[Key, str], Record] = {}
    for part in parts:
        for key, record in part.records.items():
            if key not in records or order(record) > order(records[key]):
                records[key] = record
    shares: dict[str, tuple[tuple[str, str], Provenance]] = {}
    for part in parts:
        for uuid, provenance in _shares(part.provenance).items():
            own = (record.started_at for record in part.records.values() if record.gpu == uuid)
            place = max(own, default=""), json.dumps(asdict(provenance), sort_keys=True)
            if uuid not in shares or place > shares[uuid][0]:
                shares[uuid] = place, provenance
    left = {record.gpu for record in records.values()} or set(shares)
    return Measured(_together({uuid: provenance for uuid, (_, provenance) in shares.items() if uuid in left}), records)


def order(record: Record) -> tuple[str, str]:
    """Return a text by which the record measured last is the greatest; the content decides between equal times."""
    return record.started_at, json.dumps(asdict(record), sort_keys=True)


def _shares(provenance: Provenance) -> dict[str, Provenance]:
    """Return the provenance of each GPU, as if it had measured alone."""
    if not provenance.gpus:
        return {provenance.host.get("gpu_uuid", ""): provenance}
    return {
        uuid: replace(provenance, **vars(share) | {"host": {**provenance.host, **share.host}, "gpus": {}})
        for uuid, share in provenance.gpus.items()
    }


def _together(shares: Mapping[str, Provenance]) -> Provenance:
    """Return one provenance for the file of several GPUs."""
    ordered = dict(sorted(shares.items()))
    newest = max(ordered.values(), key=lambda one: (one.recorded_at, json.dumps(asdict(one), sort_keys=True)))
    if len(ordered) == 1:
        return newest
    names = dict.fromkeys(name for one in ordered.values() for name in one.host)
    facts = {name: [one.host.get(name, "") for one in ordered.values()] for name in names}
    differing = {name for name, values in facts.items() if len(set(values)) > 1}
    stages = dict.fromkeys(stage for one in ordered.values() for stage in one.spent_s)
    return replace(
        newest,
        recorded_at=min(one.recorded_at for one in ordered.values()),
        host={name: ", ".join(dict.fromkeys(values)) for name, values in facts.items()},
        spent_s={stage: sum(one.spent_s.get(stage, 0.0) for one in ordered.values()) for stage in stages},
        gpus={
            uuid: replace(
                GpuShare(**{field.name: getattr(one, field.name) for field in fields(GpuShare)}),
                host={name: fact for name, fact in one.host.items() if name in differing},
            )
            for uuid, one in ordered.items()
        },
    )
