"""The overview on series that were not measured at both commits, and on one odd commit: it claims nothing of either."""

import math
import random
from types import SimpleNamespace

import pytest
from compared import each
from history import write_foreign
from served import cells, table_of, words
from trees import analysed, open_store, record, write_measurement

from dashboard.pages import overview
from dashboard.pages.overview_choice import measured_rows
from dashboard.pages.overview_families import families
from dashboard.pages.overview_table import columns, in_order
from lockstep.compare.at_commit import compare_commit
from lockstep.compare.verdict import SIGNS
from lockstep.record.model import Estimate
from lockstep.suite.thresholds import Thresholds

DAY_MS = 86_400_000
MACHINE = "h200-locked"
COMMITS = 20
#: The last commit at which the family "ended" was measured; the one compared with; one at which a case was left out.
LAST, COMPARED = 11, COMMITS - 2
GOES_ON, ENDED, HOLE, NEW = "goes_on", "ended", "hole", "new"


def case(n):
    return f"M={2**n},K=4096,N=2048"


def around(value):
    return Estimate(value, value / 1.001, value * 1.001)


def hash_of(place):
    return f"{place + 1:08x}" * 5


def families_of(place):
    """Return the families that commit ``place`` measured."""
    yield GOES_ON
    if place <= LAST:
        yield ENDED
    if place != COMPARED:
        yield HOLE
    if place > COMPARED:
        yield NEW


def write(root, factor=lambda place: 1.0, commits=COMMITS):
    """Write a machine of which one family ended, one has a hole and one is new; its noise is 0.1 %."""
    draw = random.Random(7)
    at = {"started_at": "2026-09-21T14:00:00+00:00", "baseline": "torch", "epochs": 6, "variant": "torch"}
    for place in range(commits):
        records = [
            record(
                suite=suite,
                case=case(n),
                latency=around(5e-6 * factor(place) * math.exp(draw.gauss(0, 0.001))),
                speedup=Estimate(1.0, 1.0, 1.0),
                **at,
            )
            for suite in families_of(place)
            for n in range(4)
            if suite != GOES_ON or n < 3 or place != COMPARED
        ]
        date = 1_790_000_000_000 + place * DAY_MS
        write_measurement(root, records, machine=MACHINE, commit=hash_of(place), date=date)


def looked_at(root, since=COMPARED):
    store = open_store(root)
    results, findings = store.current(), analysed(store, root.parent)
    stood = overview.statuses_of(results, MACHINE, hash_of(since), 0, findings)
    return SimpleNamespace(
        results=results, findings=findings, stood=stood, picture=findings.of_machine(results, MACHINE)
    )


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    root = tmp_path_factory.mktemp("quiet") / "results"
    write(root)
    return looked_at(root)


def verdicts(shown):
    return {suite: {one.verdict for one in each(shown.stood) if one.row.suite == suite} for suite in (ENDED, HOLE, NEW)}


def test_only_a_series_without_an_earlier_point_is_new(quiet):
    assert verdicts(quiet) == {ENDED: {"not measured"}, HOLE: {"unsure"}, NEW: {"new"}}


def test_only_what_the_machine_can_measure_is_stale(tmp_path):
    """A later commit measured one of three series."""
    too_large = record(case="too large", state="na", latency=None, speedup=None)
    write_measurement(tmp_path / "results", [record(), record(case="later"), too_large], commit=hash_of(1), date=DAY_MS)
    write_measurement(tmp_path / "results", [record()], commit=hash_of(2), date=2 * DAY_MS)
    store = open_store(tmp_path / "results")
    [machine] = store.current().machines
    stood = overview.statuses_of(store.current(), machine, hash_of(1), 0, analysed(store, tmp_path))
    assert {one.row.case: (one.stale, one.absent) for one in each(stood)} == {
        record().case: (False, False),
        "later": (True, False),
        "too large": (False, True),
    }


def test_series_that_are_no_longer_measured_are_counted_and_named(quiet):
    ended = [one for one in each(quiet.stood) if one.row.suite == ENDED]
    assert all(one.stale and one.worse is None and not one.beyond_noise for one in ended)
    line = words(overview.said(quiet.results, MACHINE, hash_of(COMPARED), 0, quiet.findings))
    assert "4 series are not measured since" in line
    assert f"the last of them at {hash_of(LAST)[:8]}" in line


def test_the_families_and_the_table_do_not_call_them_new(quiet):
    shown = cells(families(quiet.results, in_order(quiet.stood)))
    signs = {suite: {cell[:2] for cell in shown[suite]} for suite in (ENDED, NEW, HOLE)}
    assert signs == {ENDED: {(SIGNS["not measured"], "cell")}, NEW: {("", "cell new")}, HOLE: {("", "cell")}}
    assert f"not measured since {hash_of(LAST)[:8]}" in shown[ENDED][0][2]
    rows = table_of(quiet.results, MACHINE, quiet.stood)
    assert {row["verdict"] for row in rows if row["family"] == ENDED} == {"not measured"}


def test_a_series_of_the_compared_commit_alone_is_not_called_the_same(quiet, tmp_path):
    """A point compared with itself says nothing of the newest commit."""
    root = tmp_path / "results"
    write(root)
    shown = looked_at(root, since=LAST)
    assert verdicts(shown)[ENDED] == {"not measured"}


@pytest.mark.parametrize("spike", [1.2, 1 / 1.2])
def test_an_odd_commit_is_not_a_change_of_the_one_after_it(tmp_path, spike):
    root = tmp_path / "results"
    write(root, factor=lambda place: spike if place == COMPARED else 1.0)
    shown = looked_at(root)
    compared = [one for one in each(shown.stood) if one.worse is not None]
    assert {round(abs(one.worse), 1) for one in compared} == {0.2}
    assert not any(one.beyond_noise for one in each(shown.stood))


def test_the_page_of_a_commit_does_not_call_a_case_new_that_the_commit_before_left_out(quiet):
    found, _ = compare_commit(quiet.results, MACHINE, hash_of(COMPARED + 1), quiet.picture, Thresholds())
    new = {(one.row.suite, one.row.case) for one in each(found) if one.verdict == "new"}
    assert new == {(NEW, case(n)) for n in range(4)}


def test_who_was_never_here_is_not_compared_with_a_last_visit(quiet):
    first = words(overview.said(quiet.results, MACHINE, "visit", 0, quiet.findings))
    assert f"Nothing got slower on {MACHINE} since 21 September, the first commit (one run shows changes from " in first
    late = words(overview.said(quiet.results, MACHINE, "visit", 1_790_000_000_000 + 99 * DAY_MS, quiet.findings))
    assert f"Nothing was measured on {MACHINE} since your last visit on 29 December, 14:13 UTC." in late


def test_a_project_without_records_has_no_column_that_repeats_it(tmp_path, quiet):
    root = tmp_path / "results"
    write_foreign(root, "runner", [hash_of(place) for place in range(4)], lambda n: 1e-3)
    results = open_store(root).current()
    [state] = [one for one in columns(measured_rows(results, "runner", "all", "time")) if one["field"] == "state"]
    assert state["hide"]
