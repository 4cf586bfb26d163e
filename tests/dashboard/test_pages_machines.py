"""The machines' page says what the files say of clocks, throttling, noise, controls and toolchains."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from history import Here, commits_of, write_history
from playwright.sync_api import expect
from served import place, serving, words
from trees import MACHINE, open_store, points_in, record, recorded, write_measurement

from dashboard.charts.marks import changed_conditions
from dashboard.pages import machines
from dashboard.pages.machine_health import health_of, turns_of
from lockstep.fleet.in_progress import in_progress
from lockstep.history.snapshot_cache import remembered
from lockstep.record.file import read_records, write_records
from lockstep.record.model import Clocks

DAY = 86_400_000


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return place(tmp_path_factory.mktemp("machines"))


def test_throttling_is_told_with_its_reasons(tmp_path):
    rows = [
        record(case="a", clocks=Clocks(sm_mhz=1500.0)),
        record(case="b", clocks=Clocks(sm_mhz=1200.0, reasons=("power cap",))),
        record(case="c", clocks=Clocks(sm_mhz=1400.0, reasons=("applications clocks",))),
        record(case="d", state="failed", reason="wrong", latency=None, speedup=None, clocks=None),
    ]
    write_measurement(tmp_path / "results", rows)
    one = health_of(open_store(tmp_path / "results").current(), MACHINE)
    # The latency and the speedup of a case are one record.
    assert (one.throttled, one.records, one.reasons, one.failed) == (1, 3, ("power cap",), 1)
    assert one.sm_mhz == 1400.0
    assert one.mde == 0.004


def test_the_noise_is_that_of_the_latencies(tmp_path):
    """Latencies have intervals of ±0.3 %; ratios of ±0.2 % and costs of other widths do not count."""
    write_history(
        tmp_path / "results",
        "h200",
        commits_of(tmp_path / "repo", 2),
        lambda n: Here(costs={"host": 1.0, "energy": 1.0}),
    )
    results = open_store(tmp_path / "results").current()
    errors = {
        quantity: {
            one.error
            for one in results.at(results.commits("h200")[-1].hash)
            if results.benchmarks[one.series.benchmark].quantity == quantity
        }
        for quantity in ("latency", "host")
    }
    [latency] = {round(error, 6) for error in errors["latency"]}
    assert latency not in {round(error, 6) for error in errors["host"] if error}
    assert health_of(results, "h200").noise == pytest.approx(latency, abs=1e-6)


def turns(results, machine):
    return turns_of(results.runs_of(machine), results.commits(machine))


def test_turns_of_the_toolchain_name_the_commit_and_both_versions(here):
    [turn] = turns(here.store.current(), "b200")
    assert turn.commit.hash == here.commits[8]
    assert turn.changes == (("torch", "2.11.0", "2.13.0"),)
    text = words(machines.body(here.store.current(), "light", 0))
    assert f"bm=b200&bc={here.commits[6]}&hm=b200&hc={here.commits[8]}" in text, "what the upgrade did"
    assert turns(here.store.current(), "h200") == []


def test_another_gpu_of_the_same_model_is_named_on_the_machines_page_and_in_the_chart(tmp_path):
    results = open_store(recorded(tmp_path, "h100-unlocked", "h100-x4-unlocked")).current()
    [turn] = turns(results, "h100-unlocked")
    assert turn.changes == (("GPU (UUID)", "a65f770a", "cc6e60d1"),)
    assert turns(results, "h100-x4-unlocked") == [], "one of its four GPUs or the other measures a commit"
    key = next(key for key in results.keys("h100-unlocked").keys if (key.suite, key.variant) == ("kda", "best"))
    before, after = points_in(results, *results.keys(key.machine).series_of([key]))[:2]
    assert changed_conditions(before, after) == ["another GPU, cc6e60d1"]


def test_an_unchanged_toolchain_is_claimed_only_as_far_as_it_is_recorded(tmp_path):
    rows = [record()]
    write_measurement(tmp_path / "bare", rows, proof=False)
    text = words(machines.body(open_store(tmp_path / "bare").current(), "light", 0))
    said = "One toolchain at every commit, as far as recorded: python 3.12. Versions of packages are not recorded."
    assert said in text
    write_measurement(tmp_path / "ours", rows)
    assert "as far as recorded" not in words(machines.body(open_store(tmp_path / "ours").current(), "light", 0))


def test_controls_are_drawn_in_per_cent_of_their_median(here):
    results = here.store.current()
    figure = machines.controls_chart(health_of(results, "h200"), "light")
    [line] = figure["data"]
    seconds = [run.controls["copy"].seconds for run in results.runs_of("h200")]
    middle = sorted(1 / value for value in seconds)[8]
    assert line["y"] == pytest.approx([100 / value / middle for value in seconds], abs=1e-3)


def test_a_commit_that_is_being_measured_is_told_with_what_is_done(tmp_path):
    """A run writes records after each case, and asv's file at the end of a commit."""
    commits = commits_of(tmp_path / "repo", 3)
    shard = tmp_path / "results-shards" / "1-of-2"
    for folder in (tmp_path / "results", shard):
        write_history(folder, "h200", commits, lambda n: Here())
    (shard / "h200" / f"{commits[2][:8]}-lockstep.json").unlink()
    path = shard / "h200" / f"{commits[2][:8]}-lockstep.provenance.jsonl"
    provenance, records = read_records(path)
    write_records(path, provenance, records[:4])
    now = int(1000 * time.time()) + 180_000
    found = in_progress(tmp_path / "results", now)
    said = words(machines.running(found, now))
    assert ", shard 1-of-2: 4 of about 6 series; the last: 3 min" in said
    assert commits[2][:8] in said
    assert in_progress(tmp_path / "results", now + DAY) == [], "the run was killed"
    for damaged in ("", "[]", '{"commit"', "\xff"):
        path.write_text(damaged, encoding="latin-1")
        assert in_progress(tmp_path / "results", now) == []


def test_a_machine_that_reports_no_more_is_silent(here):
    results = here.store.current()
    last = max(run.measured_at for run in results.runs)
    assert "silent" not in words(machines.body(results, "light", last + DAY))
    assert words(machines.body(results, "light", last + 8 * DAY)).count("\\u25cc silent") == 3


def test_problems_of_files_are_listed(tmp_path):
    path = write_measurement(tmp_path / "results", [record()])
    path.with_name("deadbeef-existing.json").write_text("{")
    text = words(machines.body(open_store(tmp_path / "results").current(), "light", 0))
    assert "1 problem" in text
    assert "deadbeef-existing.json" in text


def test_nothing_is_worked_out_twice_of_one_picture(here):
    asked = []
    results = here.store.current()

    @remembered
    def made(_, number):
        asked.append(number)
        return "made"

    @remembered
    def another(_, number):
        return number

    for _ in range(2):
        assert made(results, 0) == "made"
    assert asked == [0]
    for number in range(40):
        another(results, number)
    made(results, 0)
    assert asked == [0]
    for number in range(40):
        made(results, number + 1)
    made(results, 0)
    assert asked.count(0) == 2


def test_who_asks_for_what_is_being_made_waits_for_it(here):
    results, asked, ready = here.store.current(), [], threading.Barrier(4)

    @remembered
    def slow(_):
        time.sleep(0.05)
        asked.append(1)
        return len(asked)

    def ask(_):
        ready.wait(10)
        return slow(results)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [1] * 4


def test_what_could_not_be_made_is_made_when_it_is_asked_for_again(here):
    results, tries = here.store.current(), []

    @remembered
    def broken(_):
        tries.append(1)
        return 1 // (len(tries) - 1)

    with pytest.raises(ZeroDivisionError):
        broken(results)
    assert broken(results) == 1


def test_in_a_browser_the_machines_are_told(visit, here):
    with serving(here.app) as address:
        page = visit.page
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{address}/machines")
        page.locator(".js-plotly-plot .points path").first.wait_for()
        expect(page.locator("#machines-body section")).to_have_count(3)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.keyboard.press("?")
        page.get_by_role("heading", name="Keys").wait_for()
        page.keyboard.press("Escape")
        page.goto("about:blank")
