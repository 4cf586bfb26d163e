"""Nobody writes who is not known, from a page that is not ours, or too often; no stranger's script runs."""

import argparse
import getpass
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import KNOWN, SECRET, act, call, place
from trees import open_store, record, write_measurement

from dashboard.auth.credentials import Access, AccessError, access_of, is_own, read_networks
from dashboard.auth.request_checks import RATES, RequestCounts
from dashboard.pages.alert_actions import ACTIONS
from dashboard.server.app import create_app
from dashboard.server.command import Dashboard

PROXY = {"X-Lockstep-User": f"{SECRET} Ana Proxy"}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return place(tmp_path_factory.mktemp("security"), Access(read_networks(["10.1.0.0/16"]), SECRET))


@pytest.fixture
def number(here):
    return here.service.alerts.alerts(machine="h200")[0].id


def app_of(tmp_path, access=None):
    write_measurement(tmp_path / "results", [record()])
    return create_app(open_store(tmp_path / "results"), None, access)


def test_the_policy_lets_only_our_scripts_run(here):
    policy = here.client.get("/").headers["Content-Security-Policy"]
    [scripts] = re.findall(r"script-src ([^;]+)", policy)
    assert re.fullmatch(r"'self'( 'sha256-[A-Za-z0-9+/=]+')+", scripts)
    assert "unsafe-eval" not in policy
    for part in ("default-src 'self'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
        assert part in policy


def test_every_answer_carries_the_headers(here):
    for path in ("/", "/_dash-layout", "/nowhere.txt"):
        headers = here.client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert headers["Referrer-Policy"] == "no-referrer", path
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin", path
        assert "Set-Cookie" not in headers, path


def test_a_stranger_cannot_act(here, number):
    said = act(here.client, number, "ack")
    assert said == "Only people who are signed in can change alerts; use the authenticating proxy."
    assert here.service.alerts.alert(number).state == "new"


def test_the_proxys_word_counts_from_the_proxy_alone(here, number):
    said = act(here.client, number, "comment", "x", headers=PROXY, remote="10.2.0.1")
    assert "Only people who are signed in" in said
    said = act(here.client, number, "comment", "x", headers=PROXY, remote="10.1.2.3")
    assert said == "Comment added."
    assert here.service.alerts.log(number)[-1].who == "Ana Proxy"


@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, False),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://localhost:8051"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://bench.example.org"}, True),
        ({"Origin": "http://localhost"}, True),
        ({}, True),
    ],
    ids=str,
)
def test_a_page_of_another_site_cannot_act_as_the_reader(here, number, headers, ours):
    before = here.service.alerts.log(number)
    said = act(here.client, number, "comment", "x", headers=PROXY | headers, remote="10.1.2.3")
    assert said.startswith("Comment added" if ours else "A page of another site cannot change alerts")
    assert (here.service.alerts.log(number) == before) is not ours


def test_the_client_is_the_last_address_that_is_not_a_proxys():
    access = Access(read_networks(["10.1.0.0/16"]))

    def client(forwarded, remote="10.1.2.3"):
        return access.client(remote, {"X-Forwarded-For": forwarded})

    assert client("192.0.2.7") == "192.0.2.7"
    # What a stranger puts before the address that the proxy adds is not believed, nor is a second proxy a client.
    assert client("192.0.2.9, 192.0.2.7") == "192.0.2.7"
    assert client("192.0.2.7, 10.1.9.9") == "192.0.2.7"
    # From elsewhere nothing is believed.
    assert client("192.0.2.7", "198.51.100.1") == "198.51.100.1"


def test_too_many_requests_get_a_retry_after(tmp_path, monkeypatch):
    most = 20
    monkeypatch.setitem(RATES, "api", f"{most} per hour")
    client = app_of(tmp_path).server.test_client()
    answers = [client.get("/api/v1/machines") for _ in range(most + 1)]
    assert {one.status_code for one in answers[:most]} == {200}
    assert answers[most].status_code == 429
    assert 1 <= int(answers[most].headers["Retry-After"]) <= 3601
    assert "Too many requests" in answers[most].json["error"]
    assert client.get("/healthz").status_code == 200


def test_a_failure_leaves_its_traceback_in_the_log_under_the_id_of_its_answer(tmp_path, capfd):
    server = app_of(tmp_path, Access(read_networks(["10.1.0.0/16"]))).server
    server.add_url_rule("/api/broken", endpoint="one", view_func=lambda: 1 // 0)
    server.add_url_rule("/broken", endpoint="other", view_func=lambda: 1 // 0)
    client = server.test_client()
    answer = client.get("/broken")
    number = answer.headers["X-Request-Id"]
    assert (answer.status_code, number in answer.text) == (500, True)
    by_proxy = {"headers": {"X-Request-Id": "from-a-proxy"}, "environ_base": {"REMOTE_ADDR": "10.1.0.1"}}
    answer = client.get("/api/broken", **by_proxy)
    assert (answer.json["request_id"], answer.headers["X-Request-Id"]) == ("from-a-proxy", "from-a-proxy")
    logged = capfd.readouterr().err
    for one in (number, "from-a-proxy"):
        assert f"request {one}: Exception on /" in logged
    assert logged.count("ZeroDivisionError") == 2
    assert "line" in logged
    # A stranger's id could be another request's.
    assert client.get("/", headers={"X-Request-Id": "made-up"}).headers["X-Request-Id"] != "made-up"


#: What no page sends; the names of parts are those of the callback that shows a page.
MALFORMED = [
    "", "[]", "{}", "null", '"x"', "{", '{"output":5}', '{"output":"no.such"}', "[" * 5000,
    '{"output":"@","inputs":{}}', '{"output":"@","inputs":[1]}', '{"output":"@","inputs":[],"state":[]}',
    '{"output":"@","inputs":[{"id":"url","property":"hash"}],"state":[{"id":"url","property":"search"}]}',
]  # fmt: skip


@pytest.mark.parametrize("body", MALFORMED)
def test_a_malformed_callback_is_a_mistake_of_who_sends_it(here, body):
    output = next(
        one["output"] for one in here.client.get("/_dash-dependencies").json if "page.children" in one["output"]
    )
    answer = here.client.post(
        "/_dash-update-component", data=body.replace("@", output), content_type="application/json"
    )
    assert answer.status_code == 400


#: How often each button of an alert's page was pressed.
CLICKS = [0] * (len(ACTIONS) + 1)

STRANGE = [None, 5, -1, 1e308, True, "x", "\ud800", "\x00", [], {}, [1], {"a": 1}, 10**30, [[]], [None], [{}]]


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_no_callback_breaks_on_values_that_no_page_has(here, value):
    client = here.client
    for one in client.get("/_dash-dependencies").json:
        if one["clientside_function"]:
            continue
        names = one["output"].strip(".").split("...")
        outputs = [dict(zip(("id", "property"), name.split(".", 1), strict=True)) for name in names]
        body = {
            "output": one["output"],
            "outputs": outputs if len(outputs) > 1 else outputs[0],
            "inputs": [dict(part, value=value) for part in one["inputs"]],
            "state": [dict(part, value=value) for part in one["state"]],
            "changedPropIds": [f"{one['inputs'][0]['id']}.{one['inputs'][0]['property']}"],
        }
        answer = client.post("/_dash-update-component", data=json.dumps(body), content_type="application/json")
        assert answer.status_code in (200, 204, 400), (one["output"], answer.text)
        if value == "\ud800":
            assert answer.status_code == 400, one["output"]


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_a_strange_comment_of_somebody_signed_in_is_a_mistake_of_who_sends_it(here, number, value):
    for state in ((value, "", number), ("x", value, number), ("x", "", value)):
        for doing in ("comment", "mute"):
            pressed = f"alert-{doing}.n_clicks"
            answer = call(here.client, "alert-said.children", CLICKS, state, pressed, PROXY, "10.1.2.3")
            wrong = not isinstance(state[0], str | None) or not isinstance(state[1], str | None)
            wrong = wrong or not isinstance(state[2], int) or isinstance(state[2], bool) or state[2] > 1 << 63
            assert answer.status_code == (400 if wrong or value == "\ud800" else 200), (state, answer.text)


def test_writes_are_limited(tmp_path):
    here = place(tmp_path)
    number = here.service.alerts.alerts()[0].id
    client = here.client
    most = int(RATES["write"].split()[0])
    began = time.monotonic()
    said = [act(client, number, "comment", "again", headers=KNOWN) for _ in range(most + 1)]
    if time.monotonic() - began > 50:
        pytest.skip("too busy to tell: so many writes took as long as the limit counts")
    assert set(said[:most]) == {"Comment added."}
    assert said[most] == "Too many requests: wait a minute."


def test_a_name_that_was_made_to_point_here_gets_no_answer(tmp_path):
    client = app_of(tmp_path, Access(hosts=("localhost", "127.0.0.1"))).server.test_client()
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"Host": "localhost:8050"}).status_code == 200


@pytest.mark.parametrize(
    ("hosts", "host", "status"),
    [
        (("[::1]",), "[::1]:8050", 200),
        (("[::1]",), "[::1]", 200),
        (("[::1]",), "[::2]:8050", 400),
        (("[::1]",), "[::1].evil.example", 400),
        (("[::1]",), "evil.example", 400),
        ((".example.org",), "bench.example.org:80", 200),
        ((".example.org",), "example.org", 200),
        ((".example.org",), "badexample.org", 400),
        (("Bench",), "bench", 200),
        (("localhost",), "localhost:x", 400),
        ((), "anything", 200),
    ],
)
def test_a_host_is_known_by_its_name_without_port(tmp_path, hosts, host, status):
    client = app_of(tmp_path, Access(hosts=hosts)).server.test_client()
    for path in ("/", "/_dash-layout", "/nowhere", "/api/v1/alerts"):
        assert client.get(path, headers={"Host": host}).status_code in ({400} if status == 400 else {200, 404})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--proxy-secret", "good"], "--proxy-secret needs --proxy"),
        (["--proxy", "127.0.0.1", "--proxy-secret", "open"], "chmod 600"),
        (["--proxy", "127.0.0.1", "--proxy-secret", "short"], "16 ASCII characters or more"),
        (["--proxy", "127.0.0.1", "--proxy-secret", "words"], "write one word"),
        (["--proxy", "127.0.0.1", "--proxy-secret", "none"], "none cannot be read: No such file or directory$"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_an_identity_that_a_stranger_could_claim_is_refused_at_the_start(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    for name, text in (("good", SECRET), ("open", SECRET), ("short", "s" * 15), ("words", f"{SECRET} {SECRET}")):
        (tmp_path / name).write_text(f"{text}\n")
        (tmp_path / name).chmod(0o644 if name == "open" else 0o600)
    with pytest.raises(AccessError, match=said):
        access_of(options_of(*options))


def test_a_proxys_address_alone_names_nobody(tmp_path, monkeypatch):
    access = access_of(options_of("--proxy", "127.0.0.1"))
    assert not access.writable
    assert access.client("127.0.0.1", {"X-Forwarded-For": "192.0.2.7"}) == "192.0.2.7"
    assert access.forwarded("127.0.0.1", {"X-Lockstep-User": " ceo", "X-Forwarded-User": "ceo"}) == ""


def test_a_secret_that_systemd_hands_over_may_look_readable_by_a_group(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert access_of(options_of("--proxy", "127.0.0.1", "--proxy-secret", str(tmp_path / "secret"))).secret == SECRET


def options_of(*options):
    parser = argparse.ArgumentParser()
    Dashboard.setup_arguments(parser.add_subparsers())
    return parser.parse_args(["dashboard", *options])


def test_a_network_that_is_none_is_refused():
    with pytest.raises(AccessError, match="--proxy"):
        read_networks(["proxy.example.org"])


class SlowToTell(RequestCounts):
    """Between making its timer and starting it others have the time to make another."""

    STORAGE_SCHEME = ["slow-to-tell"]  # noqa: RUF012

    @property
    def timer(self):
        time.sleep(0.002)
        return self._timer

    @timer.setter
    def timer(self, timer):
        self._timer = timer


def test_requests_of_many_threads_at_once_are_all_counted():
    counts = SlowToTell()
    together = threading.Barrier(8)

    def ask(_):
        for _ in range(5):
            together.wait(timeout=10)
            counts.incr("who", 60)
            time.sleep(0.02)  # the timer of the last has ended

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(8))) == [None] * 8
    assert counts.get("who") == 40


def test_whoever_runs_a_server_alone_may_act_and_nobody_else(tmp_path, monkeypatch):
    """The connection's other end is a process of this account; a stranger's and a forwarded request are not."""
    access = access_of(options_of())
    assert (access.alone, access.writable) == (getpass.getuser(), True)
    for options in (("--host", "0.0.0.0"), ("--proxy", "127.0.0.1"), ("--allow-host", "bench.example.org")):
        assert access_of(options_of(*options)).alone == ""
    here = place(tmp_path, access)
    number, client = here.service.alerts.alerts()[0].id, here.client
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        port = connection.getsockname()[1]
        assert "another site" in act(client, number, "ack", headers={"Origin": "http://evil.example"}, port=port)
        forwarded = {"X-Forwarded-For": "10.0.0.1"}
        assert "Only people who are signed in" in act(client, number, "ack", headers=forwarded, port=port)
        monkeypatch.setattr("os.getuid", lambda: 12345)
        assert "use the account that runs this server" in act(client, number, "ack", port=port)
        monkeypatch.undo()
        assert act(client, number, "ack", port=port) == f"Alert {number} is acknowledged."
    [*_, event] = here.service.alerts.log(number)
    assert (event.who, event.what) == (getpass.getuser(), "acknowledged")


@pytest.mark.parametrize("client", [("127.0.0.1", None), ("127.0.0.1", 1), ("10.0.0.1", 40000), (None, 5), ("x", "y")])
def test_a_connection_that_is_not_known_is_not_this_accounts(client):
    assert not is_own(*client)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_of_this_account_is_known_by_both_protocols(family):
    here = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with (
        socket.create_server((here, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
    ):
        assert is_own(*client.getsockname()[:2])
