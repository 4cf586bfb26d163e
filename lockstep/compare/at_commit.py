"""Compare every series of a machine at a commit with the last earlier commit that measured its suite."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lockstep.alerts.analysis.latest_findings import MachineFindings
from lockstep.compare.difference import Differences, compare_rows, loudest_first
from lockstep.compare.missing_points import not_new
from lockstep.compare.read_rows import rows_at
from lockstep.compare.row_table import concatenated
from lockstep.compare.series_status import noise_by_key
from lockstep.history.model import STATES, Commit
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered_few
from lockstep.suite.thresholds import Thresholds

#: Number of earlier commits in which the last measurement of a suite is searched.
_FAR = 20


@remembered_few
def compare_commit(
    results: Results, machine: str, commit: str, findings: MachineFindings | None, thresholds: Thresholds
) -> tuple[Differences, Mapping[str, Commit]]:
    """Compare every series of a commit with the newest of the 20 previous commits that measured the same suite.

    Return the differences, the most urgent verdicts first, and the earlier commit by suite, without suites that have
    none.

    The previous commits of a commit apart are those of the line up to the fork point. ``commit`` is a full hash; an
    unknown one gives an empty comparison. ``findings``, the detector's with the noise of each series, are ``None`` if
    unknown.
    """
    commits = results.commits(machine)
    rows = rows_at(results, machine, commit)
    # Number of commits that are earlier on the line.
    place = results.place_of(machine, commit) + any(known.hash == commit for known in results.apart(machine))
    absent = STATES.index("na")
    suite = rows.series_keys.suite[rows.columns["key"]]
    suites = set(suite.tolist())
    earlier: dict[int, Commit] = {}
    parts = []
    for known in commits[max(place - _FAR, 0) : max(place, 0)][::-1]:
        if suites <= earlier.keys():
            break
        earlier_rows = rows_at(results, machine, known.hash)
        row_suites = earlier_rows.series_keys.suite[earlier_rows.columns["key"]]
        new = set(row_suites[earlier_rows.columns["state"] != absent].tolist()) - earlier.keys()
        earlier |= dict.fromkeys(new, known)
        parts.append(earlier_rows.select(np.isin(row_suites, list(new))))
    before = concatenated(parts) if parts else rows.select(np.arange(0))
    places = before.place[rows.columns["key"]]
    differences = compare_rows(before, places, rows, thresholds, noise_by_key(results, machine, findings))
    followed = np.isin(suite, list(earlier))
    differences = not_new(differences, results, machine, max(place, 0), followed)
    order = loudest_first(differences)
    order = order[rows.columns["state"][order] != absent]
    names = dict(zip(suite.tolist(), (key.suite for key in rows.keys), strict=True))
    named = {names[code]: known for code, known in earlier.items() if code in names}
    return differences.select(order), named
