"""Store the reference clock of each series of a machine: the clock of its first measurement.

Under a power cap a warm chip runs up to a percent slower than a cold chip. A product's time follows the clock and a
copy's time does not, so their ratio would differ from day to day. So each arm is normalised to one fixed clock
(``lockstep.timing.clock_correction``). The clocks are stored in ``results/MACHINE/usual-clocks.jsonl``, one series per
line, beside the results that depend on them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from lockstep.record.file import RecordError, replace_file
from lockstep.record.model import TWIN, Record

#: The suffix is not ".json": asv reads every JSON file in a machine's folder as results.
NAME = "usual-clocks.jsonl"

#: The fields that identify a series, in the order in which a line holds them.
_FIELDS = ("suite", "case", "l2", "variant")


class ReferenceClocks:
    """The clock in MHz to which the times of each series are normalised, stored in a file if a path is given."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the clocks from the file ``path``, if it exists; ``RecordError`` if a line lacks series or clock."""
        self._path = path
        self._mhz = _read(path) if path is not None and path.exists() else {}

    def of(self, suite: str, case: str, l2: str) -> dict[str, float]:
        """Return the reference clocks in MHz of a case, by variant; variants without a clock are left out."""
        return {variant: mhz for (*labels, variant), mhz in self._mhz.items() if labels == [suite, case, l2]}

    def learn(self, records: Iterable[Record]) -> None:
        """Make each record's clock the reference clock of its series, unless the series has one; write the file."""
        new: dict[tuple[str, ...], float] = {
            (record.suite, record.case, record.l2, record.variant): round(record.clocks.told_mhz, 2)
            for record in records
            if record.clocks.told_mhz is not None and not record.variant.endswith(TWIN)
        }
        self._add(new)

    def join(self, other: ReferenceClocks) -> None:
        """Take over the reference clocks of series that have none here; write the file."""
        self._add(other._mhz)

    def _add(self, new: Mapping[tuple[str, ...], float]) -> None:
        if new.keys() <= self._mhz.keys():
            return
        self._mhz = {**new, **self._mhz}
        if self._path is not None:
            lines = [json.dumps({**dict(zip(_FIELDS, key, strict=True)), "mhz": self._mhz[key]}) for key in self._mhz]
            replace_file(self._path, "".join(f"{line}\n" for line in sorted(lines)))


def _read(path: Path) -> dict[tuple[str, ...], float]:
    clocks: dict[tuple[str, ...], float] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            row = json.loads(line)
            key, mhz = tuple(row[name] for name in _FIELDS), row["mhz"]
            if not all(isinstance(part, str) for part in key) or not 0 < float(mhz) < math.inf:
                raise ValueError(f"texts and a clock above 0 are expected, got {key} and {mhz!r}")
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(
                f"{path}, line {number}: does not hold a series and its clock in MHz ({error!r}). Restore the file of "
                "the same commit as the results. If you delete the file, ratios of kernels under a power cap shift by "
                "up to a percent"
            ) from error
        clocks[key] = float(mhz)
    return clocks
