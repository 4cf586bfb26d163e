"""The alerts' pages say what the store of alerts says, and what is done on them is done and signed."""

import datetime
import re
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from history import Here, commits_of, write_foreign, write_history
from playwright.sync_api import expect
from served import KNOWN, NAME, act, call, place, serving, words
from trees import open_store

from dashboard.address import SeriesAddress
from dashboard.charts.series_figure import series_figure
from dashboard.pages import alert, alert_story, alerts
from dashboard.pages.parts import count
from dashboard.pages.series_data import view
from dashboard.server.app import create_app
from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.analysis.runner import AnalysisRunner
from lockstep.alerts.cause.found_change import Cause
from lockstep.alerts.database.alert_row import now_ms
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.listing import Page
from lockstep.alerts.database.states_and_actions import OPEN, Act
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.pages_service import AlertService
from lockstep.compare.series_status import keys_by_name
from lockstep.suite.thresholds import Thresholds


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return place(tmp_path_factory.mktemp("alerts"))


@pytest.fixture(scope="module")
def slower(here):
    """The alert of the planted slowdown on the unlocked machine."""
    [one] = here.service.alerts.alerts(machine="h200", family="linear")
    return one


@pytest.fixture
def known(here):
    """A client of a person who is known, and the header by which the proxy names the person."""
    return here.client, KNOWN


def listed(here, state, family="", machine="", owner="", search="", order="urgent"):
    """The list of a choice, as the page shows it."""
    page = here.service.alerts.page(alerts.chosen_by(state, family, machine, owner, search), order, alerts.MOST)
    return alerts.listed(page, state, page.total, "", now_ms())


def test_the_list_has_each_alert_once_with_its_number_and_size(here, slower):
    text = words(listed(here, "open", machine="h200"))
    assert text.count(f'"/alert/{slower.id}"') == 1
    assert "+6.0 %" in text or "+5.9 %" in text
    assert slower.alert.range in text
    assert "own commit" in text
    assert "also: h200-locked" in text


def test_two_machines_that_show_the_same_step_are_one_row_and_link_to_each_other(here, slower):
    [other] = here.service.alerts.alerts(machine="h200-locked", family="linear")
    text = words(listed(here, "open"))
    assert [one.id for one in (slower, other) if f'"/alert/{one.id}"' in text] == [other.id]
    assert "also: h200" in text
    shown = words(alert.body(slower, here.store.current(), "light", same_step=here.service.alerts.same_step(slower)))
    assert "Same step" in shown
    assert f'"/alert/{other.id}"' in shown


def test_the_line_above_the_list_counts_the_alerts_that_the_overview_counts(here, slower):
    asked = ("open", None, None, None, "", "urgent", None)
    text = words(call(here.client, "alerts-list.children", asked).json["response"]["alerts-list"])
    open_alerts = here.service.alerts.page(alerts.chosen_by("open", "", "", ""), apart=True)
    rows = here.service.alerts.page(alerts.chosen_by("open", "", "", ""))
    assert rows.total < open_alerts.total
    assert f"{count(rows.total, 'step')} in {open_alerts.total} alerts" in text


def test_the_list_is_narrowed_by_state_family_machine_and_owner(here, slower):
    every = here.service.alerts.alerts()

    def numbers(*chosen):
        text = words(listed(here, *chosen))
        return {one.id for one in every if f'"/alert/{one.id}"' in text}

    assert slower.id in numbers("open", "linear", "h200", "")
    assert numbers("open", "linear", "h200-locked", "") == numbers("all", "", "", "") != {slower.id}
    assert numbers("muted", "", "", "") == set()
    assert numbers("all", "", "", "nobody") == set()
    assert numbers("open", "kda", "", "") == set()


def test_an_empty_list_says_why():
    text = words(alerts.listed(Page((), 0, 0), "open", 0, "", now_ms()))
    assert "Nothing is open." in text
    assert "three commits" in text


def test_a_loss_that_is_probably_not_the_codes_is_folded_below_the_others(here, slower):
    members = tuple(replace(member, cause=Cause("machine", "")) for member in slower.alert.members)
    apart = replace(slower, id=77, alert=replace(slower.alert, members=members))
    text = words(alerts.listed(Page((slower, apart), 2, 1, 1), "open", 2, "", now_ms()))
    table, fold = text.split("Probably not the code: 1", 1)
    assert "1 alert." in table
    assert [f'"/alert/{slower.id}"' in part for part in (table, fold)] == [True, False]
    assert ['"/alert/77"' in part for part in (table, fold)] == [False, True]
    alone = words(alerts.listed(Page((apart,), 1, 0, 1), "open", 1, "", now_ms()))
    assert "0 alerts." in alone
    assert '"/alert/77"' in alone.split("Probably not the code: 1", 1)[1]


def test_a_search_without_a_match_does_not_say_that_nothing_is_open(here):
    asked = ("open", None, None, None, "nothing like this", "urgent", None)
    text = words(call(here.client, "alerts-list.children", asked).json["response"]["alerts-list"])
    assert "No alert matches the filters." in text
    assert "Nothing is open." not in text


def test_a_poll_tells_of_an_act_and_is_small(tmp_path):
    here = place(tmp_path)
    first, again = (here.client.get("/_live") for _ in range(2))
    assert first.json == again.json
    assert len(again.data) < 100
    here.service.alerts.act(1, Act("ack", NAME))
    assert here.client.get("/_live").json["version"] != first.json["version"]


def test_the_page_of_an_alert_shows_cause_evidence_series_and_commits(here, slower):
    text = words(alert.body(slower, here.store.current(), "light"))
    # The page has buttons for what these commands do; a copy of the page has none.
    assert "lockstep alerts mute" not in text
    assert "lockstep alerts mute" in words(alert.body(slower, here.store.current(), "light", source=False))
    order = ["Loss", "worst first", "Since when", "Why", "Who", "What next"]
    assert sorted(order, key=text.index) == order
    for told in (
        "own commit",
        "machine code",
        "linear.triton M=8,K=64 cold",
        "Commit 12",
        here.commits[12],
        "h200-locked",
    ):
        assert told in text, told
    assert re.search(r"/compare\?bm=[^\"]+&quantity=(speedup|latency)&suite=linear\"", text), "the alert's own quantity"
    ends = f"--base {here.commits[11][:12]} --head {here.commits[12][:12]}"
    assert f"lockstep gate {ends} --family linear --case M=" in text


def test_a_count_has_the_time_of_its_case_beside_it(here, slower):
    """A launch more, counted without a GPU, was reported without the time that it costs where it was measured."""
    member, results = slower.alert.members[0], here.store.current()
    assert alert_story.time_beside(results, slower.alert) == ""
    count = replace(member, series=replace(member.series, machine="sm_90", l2="", quantity="launches"), old=1, new=2)
    counted = replace(slower.alert, machine="sm_90", members=(count,))
    assert re.search(r"[\d.]+ → [\d.]+ µs \(\+[67]\.\d %\) cold on h200\b", alert_story.time_beside(results, counted))
    elsewhere = replace(count, series=replace(count.series, case="M=7"))
    assert alert_story.time_beside(results, replace(counted, members=(elsewhere,))) == "measured on no machine"


def test_the_source_before_and_after_is_read_when_it_is_asked_for(here, slower):
    def shown(chosen, number=slower.id):
        return call(here.client, "alert-source-rows.children", [chosen], [number])

    text = words(shown("range").json["response"]["alert-source-rows"])
    assert here.commits[11][:8] in text
    assert "kernels/" in text
    assert '"type": "Details"' in text
    assert '"open": true' in text, "few lines differ"
    assert shown(None).json["response"]["alert-source-rows"]["children"] == [], "the page has just been drawn"
    assert shown("range", 10**6).status_code == 400
    assert shown("HEAD").status_code == 400, "not a suspect"


def test_the_source_of_each_suspect_is_read_alone(here, slower):
    [note] = slower.alert.notes
    other = replace(note, commit=here.commits[11], subject="Commit 11")
    wide = replace(slower.alert, notes=(note, other), commits=tuple(here.commits[11:13]), before=here.commits[10])
    text = words(alert.body(replace(slower, alert=wide), here.store.current(), "light"))
    assert [f'"value": "{value}"' in text for value in ("range", *here.commits[11:13])] == [True] * 3
    answer = call(here.client, "alert-source-rows.children", [note.commit], [slower.id])
    text = words(answer.json["response"]["alert-source-rows"])
    assert f'"{note.commit[:8]}^"' in text
    assert "kernels/linear" in text


def test_the_page_of_a_series_leads_to_the_alert_of_its_change(here, slower):
    stored = vars(SeriesAddress("h200", "linear", "triton", "M=8,K=64", "cold"))
    answer = call(here.client, "series-found.children", ["speedup", "", "order", "light", None], [stored])
    assert f'"/alert/{slower.id}"' in words(answer.json["response"]["series-found"])


def test_an_alert_says_that_later_commits_did_not_measure_its_worst_series(here, slower, tmp_path):
    assert "did not measure it" not in words(alert.body(slower, here.store.current(), "light"))
    commits, root = commits_of(tmp_path / "repo", 5), tmp_path / "repo" / "results"
    write_history(root, "h200", commits[:3], lambda n: Here())
    write_history(root, "h200", commits, lambda n: Here(), suite="kda", first=3)
    text = words(alert.body(slower, open_store(root).current(), "light"))
    assert f"at {commits[2][:8]}; 2 later commits did not measure it" in text


def test_the_chart_is_that_of_the_worst_series_with_the_range_shaded(here, slower):
    results = here.store.current()
    parts = alert.body(slower, results, "light")
    card = next(part for part in parts if getattr(part, "className", "") == "card series")
    [graph] = card.children[1].children
    go.Figure(graph.figure)
    key = keys_by_name(results, "h200")[slower.alert.members[0].series]
    before, after = (trace for trace in graph.figure["data"] if trace.get("name") == key.variant)
    assert (before["x"], after["x"]) == (list(range(12)), list(range(12, 16))), "no line leads across the range"
    assert np.median(before["y"]) / np.median(after["y"]) == pytest.approx(1.06, abs=0.01)
    [shade] = [shape for shape in graph.figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert (shade["x0"], shade["x1"]) == (11.5, 12.5)
    assert any("▼ +" in sign for trace in graph.figure["data"] if trace["mode"] == "text" for sign in trace["text"])


def test_the_line_breaks_at_every_step_of_the_series_not_only_at_the_alerts_own(tmp_path):
    commits = commits_of(tmp_path / "repo", 24)
    root = tmp_path / "repo" / "results"
    write_history(root, "h200", commits, lambda n: Here(slower=1.3 if n >= 16 else 1.1 if n >= 8 else 1.0))
    store = open_store(root, repo=tmp_path / "repo")
    results, found = analyse_store(store, Thresholds(), tmp_path / "repo")
    findings = Findings(store.cache, tmp_path / "repo").of_machine(results, "h200")
    first, later = sorted((one for one in found.alerts if one.members), key=lambda one: commits.index(one.after))
    for own in (first, later):
        figure = alert.trend_of_worst(
            results, own, keys_by_name(results, "h200")[own.members[0].series], "light", findings
        )
        lines = [trace["x"] for trace in figure["data"] if trace.get("name") == "triton"]
        assert [(line[0], line[-1]) for line in lines] == [(0, 7), (8, 15), (16, 23)]
        [signs] = [trace for trace in figure["data"] if trace["mode"] == "text"]
        assert sorted(signs["x"]) == [7.5, 15.5], "each step is marked once, the alert's own too"


def test_no_line_leads_to_a_copy_of_a_later_commit_across_the_step(tmp_path):
    """The first commit of the new level may be a copy, which the detector does not see."""
    commits = commits_of(tmp_path / "repo", 20)
    root = tmp_path / "repo" / "results"
    write_history(root, "h200", commits, lambda n: Here(slower=1.3 if n >= 9 else 1.0, copies=12 if n == 9 else None))
    store = open_store(root, repo=tmp_path / "repo")
    results, found = analyse_store(store, Thresholds(), tmp_path / "repo")
    findings = Findings(store.cache, tmp_path / "repo").of_machine(results, "h200")
    own = next(one for one in found.alerts if one.members)
    key = keys_by_name(results, "h200")[own.members[0].series]
    for figure in (
        alert.trend_of_worst(results, own, key, "light", findings),
        series_figure(view(results, SeriesAddress(*key), findings), "light"),
    ):
        lines = [trace["x"] for trace in figure["data"] if trace.get("name") == "triton"]
        assert [(line[0], line[-1]) for line in lines] == [(0, 8), (9, 19)]


def test_the_samples_before_and_after_stand_over_one_another(tmp_path):
    from dashboard.charts.series_figure import before_and_after

    commits = commits_of(tmp_path / "repo", 12)
    write_foreign(tmp_path / "r", "runner", commits, lambda n: 1.2e-3 if n >= 6 else 1e-3)
    store = open_store(tmp_path / "r", repo=tmp_path / "repo")
    results, found = analyse_store(store, Thresholds(), tmp_path / "repo")
    figure = before_and_after(results, next(one for one in found.alerts if one.members), "light")
    go.Figure(figure)
    after, before = figure["data"]
    assert (before["name"], after["name"]) == (f"before {commits[5][:8]}", f"after {commits[6][:8]}")
    assert (min(before["x"]), min(after["x"])) == (pytest.approx(1000, rel=0.05), pytest.approx(1200, rel=0.05))
    assert len(before["x"]) == len(after["x"]) == 8
    assert figure["layout"]["xaxis"]["title"]["text"].endswith("µs")


def test_what_somebody_does_is_done_and_signed(tmp_path):
    here, header = place(tmp_path), KNOWN  # other tests read the alerts of ``here``
    client = here.client
    [number] = (one.id for one in here.service.alerts.alerts(machine="h200", family="linear"))
    assert act(client, number, "ack", "looking", headers=header) == f"Alert {number} is acknowledged."
    assert act(client, number, "comment", "it is the tile size", headers=header) == "Comment added."
    assert act(client, number, "mute", "waits for a release", "2999-01-31", header).endswith("muted until 2999-01-31.")
    assert act(client, number, "reopen", headers=header).endswith("is reopened.")
    said = act(client, number, "new-baseline", "exact rounding", headers=header)
    assert said.endswith("resolved (new baseline).")
    assert act(client, number, "reopen", headers=header).endswith("is reopened.")
    assert act(client, number, "no-change", "the room was hot", headers=header).endswith("resolved (no change).")
    assert act(client, number, "reopen", headers=header).endswith("is reopened.")
    log = [(event.who, event.what, event.note) for event in here.service.alerts.log(number)]
    assert (NAME, "comment", "it is the tile size") in log
    assert (NAME, "acknowledged", "looking") in log
    assert "exact rounding" in words(alert.history(here.service.alerts.log(number)))


@pytest.mark.parametrize(
    ("doing", "because", "until", "said"),
    [
        ("mute", "", "2999-01-31", "a mute needs a reason"),
        ("mute", "why", "soon", "'soon' is not a date; write a day such as 2027-01-31"),
        ("mute", "why", "2020-01-01", "a mute needs its last day"),
        ("new-baseline", " ", "", "the ending 'new baseline' needs a reason"),
        ("no-change", " ", "", "the ending 'no change' needs a reason"),
        ("comment", "", "", "write the comment first"),
    ],
)
def test_an_action_that_lacks_something_is_refused(here, slower, known, doing, because, until, said):
    client, header = known
    before = here.service.alerts.log(slower.id)
    answer = act(client, slower.id, doing, because, until, header)
    assert said in answer
    assert "--" not in answer
    assert here.service.alerts.log(slower.id) == before


@pytest.mark.parametrize("number", ["0", "999999", "x", "1e3", "-1", "9" * 30])
def test_a_number_without_an_alert_is_reported(here, number):
    answer = call(here.client, "page.children", [f"/alert/{number}"], ("",))
    assert "There is no" in answer.text


def test_the_overview_distinguishes_new_from_acknowledged_alerts(tmp_path):
    here = place(tmp_path)
    [one] = here.service.alerts.alerts(OPEN, machine="h200", family="linear")

    def shown():
        inputs = ("h200", "cold", "all", "time", 0, None)
        answer = call(here.client, "overview-cards.children", inputs)
        return words(answer.json["response"]["overview-cards"])

    assert f'"/alert/{one.id}"' in shown()
    assert "acknowledged" not in shown()
    here.service.alerts.act(one.id, Act("ack", NAME))
    assert "acknowledged" in shown()


def test_the_overview_lists_no_alert_that_is_muted(tmp_path):
    here = place(tmp_path)
    analyse_store(here.store, Thresholds(), here.root)
    for one in here.service.alerts.alerts(OPEN):
        here.service.alerts.act(one.id, Act("mute", NAME, "known", datetime.date(2999, 1, 31)))
    inputs = ("h200", "cold", "all", "time", 0, None)
    answer = call(here.client, "overview-cards.children", inputs)
    text = words(answer.json["response"]["overview-cards"])
    assert "linear on h200" not in text


def test_the_overview_does_not_deny_alerts_before_an_analysis_has_stored_them(tmp_path):
    here = place(tmp_path)
    analyse_store(here.store, Thresholds(), here.root)
    options = ["--results", str(here.root), "--cache", str(tmp_path / "cache")]
    state = str(tmp_path / "none.sqlite")
    runner = AnalysisRunner(options, state, tmp_path / "turn")
    service = AlertService(AlertStore(Database(state)))
    findings = Findings(here.store.cache, here.root, runner=runner)
    client = create_app(here.store, service, findings=findings).server.test_client()
    inputs = ("h200", "cold", "all", "time", 0, None)

    def shown():
        return words(call(client, "overview-cards.children", inputs).json["response"]["overview-cards"])

    assert "linear on h200" not in shown()
    before = findings.version(here.store.current())
    runner.request_analysis(here.store.current())
    runner.wait(60)
    assert findings.version(here.store.current()) != before
    assert "linear on h200" in shown()


def test_in_a_browser_an_alert_is_found_read_and_acknowledged(visit, tmp_path):
    here = place(tmp_path)
    [one] = here.service.alerts.alerts(machine="h200", family="linear")
    with serving(here.app) as address:
        page = visit.page
        page.context.set_extra_http_headers(KNOWN)
        page.goto(f"{address}/alerts")
        page.get_by_role("link", name="linear on h200-locked:").wait_for()
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.className").endswith("row")
        page.get_by_label("Machine").first.click()
        page.get_by_role("option", name="h200-locked").click()
        expect(page.locator(".table tbody tr")).to_have_count(1)
        page.wait_for_url("**/alerts?state=open&machine=h200-locked")
        page.goto(f"{address}/alert/{one.id}")
        page.locator(".js-plotly-plot .points path").first.wait_for()
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.locator("#alert-body > .counts .copy").click()
        page.get_by_role("button", name="Copied").wait_for()
        told = page.evaluate("navigator.clipboard.readText()").splitlines()
        assert told[0].startswith("# linear on h200 slower by")
        assert "| linear.triton M=8,K=64 cold | ▼ " in "".join(told)
        assert told[-1] == f"{address}/alert/{one.id}"
        commands = page.locator("#alert-body dd pre").first.text_content().strip()
        assert f"```\n{commands}\n```" in "\n".join(told)
        card = page.get_by_role("region", name="History")
        card.hover()
        card.get_by_role("button", name="Copy as Markdown").click()
        card.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()").startswith("| When (UTC) | Who | What | Why |\n| --- |")
        page.evaluate("document.body.dataset.kept = 'yes'")
        page.get_by_role("link", name="Act on this alert").click()
        reason = page.get_by_role("textbox", name="Reason or comment")
        page.get_by_role("button", name="Mute").click()
        page.get_by_text("Write it here.").wait_for()
        assert reason.get_attribute("aria-invalid") == "true"
        # What fails is told in view of the buttons, which stand far below the top of the page.
        # In one step, because the next answer of the server hides it.
        told = """() => {
            const notice = document.getElementById("failed");
            Object.assign(notice, { hidden: false, textContent: "It failed." });
            const { top, bottom } = notice.getBoundingClientRect();
            notice.hidden = true;
            return scrollY > 0 && top >= 0 && bottom < innerHeight;
        }"""
        assert page.evaluate(told)
        page.keyboard.press("a")
        page.get_by_text(f"Alert {one.id} is acknowledged.").wait_for()
        page.get_by_role("cell", name=NAME).wait_for()
        assert here.service.alerts.alert(one.id).state == "acknowledged"
        assert page.evaluate("document.body.dataset.kept") == "yes", "a link to a part of the page loads nothing"
        page.set_viewport_size({"width": 390, "height": 844})
        page.reload()
        page.locator(".js-plotly-plot .points path").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.goto("about:blank")
