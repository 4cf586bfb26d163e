"""What programs read says what the files say, refuses nothing it should answer, and carries no script."""

import json
import math
import re
from xml.etree import ElementTree

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import call, place
from trees import MACHINE, open_store, record, write_measurement

from dashboard.server.app import create_app
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.analysis.runner import AnalysisRunner


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return place(tmp_path_factory.mktemp("api"))


@pytest.fixture
def get(here):
    def ask(path, status=200):
        answer = here.client.get(path)
        assert answer.status_code == status, answer.text
        return answer

    return ask


def test_machines_and_commits_are_listed(here, get):
    machines = {one["name"]: one for one in get("/api/v1/machines").json}
    assert {name: (one["commits"], one["series"]) for name, one in machines.items()} == {
        "b200": (8, 12), "h200": (16, 12), "h200-locked": (16, 12),
    }  # fmt: skip
    commits = get("/api/v1/commits/b200").json
    assert [one["hash"] for one in commits] == here.commits[::2]
    assert [one["toolchain"]["torch"] for one in commits] == ["2.11.0"] * 4 + ["2.13.0"] * 4
    assert commits[0]["subject"] == "Commit 0"


def test_trends_are_the_stores(here, get):
    told = get("/api/v1/trends/h200/linear.latency?variant=triton&case=M=8,K=64").json
    [one] = told["series"]
    results = here.store.current()
    [series] = results.series(machine="h200", benchmark="linear.latency", axes=one["parameters"])
    [trend] = results.trends([series])
    assert one["value"] == trend.value.tolist()
    assert one["low"] == trend.low.tolist()
    assert told["commits"] == here.commits
    assert one["state"] == ["ok"] * 16


def test_points_of_a_commit_are_found_by_the_beginning_of_its_hash(here, get):
    full = get(f"/api/v1/points/h200/{here.commits[-1]}").json
    assert len(full) == 12
    assert get(f"/api/v1/points/h200/{here.commits[-1][:8]}").json == full == get("/api/v1/points/h200/latest").json
    [value] = {one["log_ratio"] for one in full if one["parameters"]["variant"] == "torch"}
    assert value == 0.0


def test_a_comparison_has_its_cases(here, get):
    told = get(f"/api/v1/compare?bm=h200&bc={here.commits[11]}&hm=h200&hc=latest").json
    assert told["verdicts"] == {"slower": 3}
    assert told["geomean"] == pytest.approx(1.06, abs=0.005)
    assert all(case["low"] < case["log"] < case["high"] for case in told["cases"])


def test_alerts_have_their_log(here, get):
    every = get("/api/v1/alerts").json
    assert [one["id"] for one in every] == [one.id for one in here.service.alerts.alerts()]
    one = get(f"/api/v1/alerts/{every[0]['id']}").json
    assert one["link"] == f"https://bench.example.org/alert/{one['id']}"
    assert one["log"][0]["what"] == "opened"
    assert get("/api/v1/alerts?state=muted").json == []
    assert {one["machine"] for one in get("/api/v1/alerts?machine=h200").json} == {"h200"}


@pytest.mark.parametrize(
    "path",
    [
        "machine",
        "commits/nowhere", "trends/h200/nothing", "points/h200/zzzz", "points/h200/", "alerts/999", "compare",
        "alerts/99999999999999999999", "compare?bm=h200&bc=latest&hm=h200&hc=",
    ],
)  # fmt: skip
def test_a_missing_thing_is_answered_as_json(get, path):
    assert re.search("unknown|has no results|several", get(f"/api/v1/{path}", 404).json["error"])


def test_nothing_can_be_written(here):
    for path in ("/api/v1/alerts", "/api/v1/alerts/1", "/feed.atom"):
        assert here.client.post(path).status_code == 405, path


def test_numbers_that_json_has_not_are_null(tmp_path):
    write_measurement(tmp_path / "results", [record(), record(variant="b", state="failed", latency=None)])
    client = create_app(open_store(tmp_path / "results")).server.test_client()
    text = client.get(f"/api/v1/trends/{MACHINE}/linear.latency").text
    assert "NaN" not in text
    assert "null" in text


def test_the_feed_is_atom_with_an_entry_an_alert(here, get):
    feed = ElementTree.fromstring(get("/feed.atom").data)
    atom = "{http://www.w3.org/2005/Atom}"
    assert feed.tag == f"{atom}feed"
    assert len(feed.findall(f"{atom}entry")) == len(here.service.alerts.alerts())


def test_an_alerts_number_below_the_list_leads_to_its_page(get):
    answer = get("/alerts/13", 302)
    assert answer.headers["Location"] == "/alert/13"
    get("/alerts")


def test_health_and_metrics(here, get, tmp_path):
    assert get("/healthz").json == {"status": "ok", "machines": 3}
    broken = open_store(tmp_path / "results", cache=tmp_path / "a file")
    (tmp_path / "a file").write_text("")
    answer = create_app(broken).server.test_client().get("/healthz")
    assert (answer.status_code, answer.json["status"]) == (503, "broken")


def test_health_and_metrics_say_how_the_analysis_goes(tmp_path, here):
    turn = tmp_path / "turn"
    # An analysis that cannot work: its thresholds are not there.
    options = ["--results", str(here.root), "--cache", str(tmp_path / "cache"), "--thresholds", str(tmp_path / "none")]
    runner = AnalysisRunner(options, str(tmp_path / "alerts.sqlite"), turn)
    client = create_app(here.store, here.service, findings=Findings(here.store.cache, here.root, runner=runner)).server
    client = client.test_client()
    assert client.get("/api/v1/alerts?machine=nowhere").headers["Lockstep-Analysis"] == "pending"
    assert client.get("/healthz").json["analysis"]["state"] == "pending"
    runner.wait(60)
    assert client.get("/api/v1/alerts?machine=nowhere").headers["Lockstep-Analysis"] == "failing"
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json["status"]) == (200, "degraded")
    assert (answer.json["analysis"]["state"], answer.json["analysis"]["failures"]) == ("failing", 1)
    assert "there is no such file" in answer.json["analysis"]["reason"]
    families = {one.name: one for one in text_string_to_metric_families(client.get("/metrics").text)}
    assert families["lockstep_analysis_failed"].samples[0].value == 1
    assert families["lockstep_analysis_last_success_timestamp_seconds"].samples[0].value == 0
    [failure] = families["lockstep_analysis_failure"].samples
    assert "there is no such file" in failure.labels["reason"]
    controls = [next(iter(here.store.current().machines)), "all", "all", "time", None, None]
    said = call(client, "overview-said.children", controls).json["response"]["overview-said"]["children"]
    assert "The last analysis failed: " in json.dumps(said)


def test_prometheus_reads_the_metrics(here, get):
    families = {one.name: one for one in text_string_to_metric_families(get("/metrics").text)}
    commits = {sample.labels["machine"]: sample.value for sample in families["lockstep_machine_commits"].samples}
    assert commits == {"b200": 8, "h200": 16, "h200-locked": 16}
    told = {sample.labels["topic"]: sample.value for sample in families["lockstep_alerts"].samples}
    assert told["slower"] == 2
    last = families["lockstep_machine_last_report_timestamp_seconds"].samples[0].value
    assert math.isclose(last, max(run.measured_at for run in here.store.current().runs_of("b200")) / 1000)


def test_every_answer_keeps_the_contract_that_the_openapi_document_states(here, get):
    document = get("/api/v1/").json
    [alert, *_] = get("/api/v1/alerts").json
    names = {"machine": "h200", "benchmark": "linear.latency", "commit": "latest", "number": alert["id"]}
    sides = f"base_machine=h200&base_commit={here.commits[11]}&head_machine=h200&head_commit=latest"
    for path, operation in document["paths"].items():
        content = operation["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        answer = get(f"/api/v1{path.format_map(names)}?{sides if path == '/compare' else ''}").json
        assert answer or path in ("/problems", "/notes")
        schema = {**content, "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer)
        parts = answer if isinstance(answer, list) else [answer]
        name = (content.get("items") or content)["$ref"].rpartition("/")[2]
        assert {key for part in parts for key in part} <= document["components"]["schemas"][name]["properties"].keys()


def test_old_names_of_fields_and_queries_are_read(here, get):
    old = get(f"/api/v1/compare?bm=h200&bc={here.commits[11]}&bv=triton&hm=h200&hc=latest&hv=triton").json
    new = f"base_machine=h200&base_commit={here.commits[11]}&base_variant=triton"
    assert get(f"/api/v1/compare?{new}&head_machine=h200&head_commit=latest&head_variant=triton").json == old
    assert old["other_ruler"] == old["other_version"]
    for alert in get("/api/v1/alerts").json:
        assert alert["excuse"] == alert["waiver"]


@pytest.mark.parametrize(
    "query", ["alerts?limit=0", "alerts?limit=x", "notes?cursor=-1", "compare?quantity=size", f"notes?cursor={2**40}"]
)
def test_a_wrong_value_of_a_query_is_named(get, query):
    key, _, value = query.partition("?")[2].partition("=")
    assert get(f"/api/v1/{query}", 400).json["error"].startswith(f"{key} is '{value[:20]}': ")


def test_parts_that_are_data_classes_of_lockstep_keep_their_fields(get):
    """Their names are a contract, though no model repeats them."""
    models = get("/api/v1/").json["components"]["schemas"]
    names = {name: set(models[name]["properties"]) for name in ("CommitNote", "Evidence", "Side", "Waiver")}
    assert names == {
        "CommitNote": {"commit", "author", "day", "subject", "touches", "files"},
        "Evidence": {"what", "before", "after", "kernel"},
        "Side": {"machine", "commit", "variant"},
        "Waiver": {"because", "until"},
    }
    series = {"machine", "family", "suite", "variant", "case", "l2", "quantity"}
    assert set(models["SeriesName"]["properties"]) == series
