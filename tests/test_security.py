"""Nobody writes who is not known, from a page that is not ours, or too often; no stranger's script runs."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import NAME, TOKEN, act, csrf_of, place, sign_in
from trees import open_store, record, write_measurement

from dashboard.access import Access, AccessError, read_networks, read_tokens
from dashboard.app import create_app
from dashboard.request_counts import RequestCounts
from dashboard.security import RATES

PROXY = {"X-Forwarded-User": "Ana Proxy"}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return place(tmp_path_factory.mktemp("security"), Access(read_networks(["10.1.0.0/16"]), tokens={TOKEN: NAME}))


@pytest.fixture
def number(here):
    return here.desk.alerts.alerts(machine="h200")[0].id


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
    for path in ("/", "/sign-in", "/_dash-layout", "/nowhere.txt"):
        headers = here.client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert headers["Referrer-Policy"] == "no-referrer", path
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin", path


def test_a_stranger_cannot_act(here, number):
    client = here.client
    said = act(client, number, "ack", headers={"X-CSRFToken": csrf_of(client)})
    assert said == "Only people who are known can do that; sign in."
    assert here.desk.alerts.alert(number).state == "new"


def test_the_proxys_word_counts_from_the_proxy_alone(here, number):
    client, https = here.client, "https://localhost"
    header = {**PROXY, "X-CSRFToken": csrf_of(client, https)}
    said = act(client, number, "comment", "x", headers=header, remote="10.2.0.1", base=https)
    assert "Only people who are known" in said
    said = act(client, number, "comment", "x", headers=header, remote="10.1.2.3", base=https)
    assert said == "Comment added."
    assert here.desk.alerts.log(number)[-1].who == "Ana Proxy"
    for cookie in client.get("/_dash-layout", base_url=https).headers.getlist("Set-Cookie"):
        assert "Secure" in cookie
        assert "SameSite=Strict" in cookie


def test_a_page_of_another_site_cannot_act_as_the_reader(tmp_path):
    here = place(tmp_path)
    number = here.desk.alerts.alerts()[0].id
    client = here.client
    sign_in(client)
    for header in ({}, {"X-CSRFToken": "made up"}):
        assert act(client, number, "ack", headers=header) == "This page is too old to act from: load it again."
    assert act(client, number, "ack", headers={"X-CSRFToken": csrf_of(client)}).endswith("acknowledged.")
    assert client.post("/sign-in", data={"token": TOKEN}).status_code == 400


def test_a_wrong_token_is_nobodys_and_cannot_be_tried_for_long(tmp_path):
    client = app_of(tmp_path, Access(tokens={TOKEN: NAME})).server.test_client()
    most = int(RATES["sign in"].split()[0])
    statuses = [sign_in(client, "a-token-of-nobody-at-all").status_code for _ in range(most + 2)]
    assert statuses == [403] * most + [429] * 2
    assert sign_in(client).status_code == 429


def test_writes_are_limited(tmp_path):
    here = place(tmp_path)
    number = here.desk.alerts.alerts()[0].id
    client = here.client
    sign_in(client)
    header = {"X-CSRFToken": csrf_of(client)}
    most = int(RATES["write"].split()[0])
    said = [act(client, number, "comment", "again", headers=header) for _ in range(most + 1)]
    assert set(said[:most]) == {"Comment added."}
    assert said[most] == "That is too often: wait a minute."


def test_a_dashboard_to_read_sets_no_cookie_and_has_no_sign_in(tmp_path):
    client = app_of(tmp_path).server.test_client()
    assert "Set-Cookie" not in client.get("/_dash-layout").headers
    assert 'type="password"' not in client.get("/sign-in").text


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


def test_tokens_are_read_from_a_file_of_its_owners(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# people\nMira Example {TOKEN}\n\nBo {'b' * 20}\n")
    path.chmod(0o600)
    assert read_tokens(path) == {TOKEN: "Mira Example", "b" * 20: "Bo"}
    path.chmod(0o644)
    with pytest.raises(AccessError, match="chmod 600"):
        read_tokens(path)


@pytest.mark.parametrize("text", ["Mira short\n", f"{TOKEN}\n", f"A {TOKEN}\nB {TOKEN}\n", "# nobody\n"])
def test_a_token_file_that_would_let_the_wrong_ones_in_is_refused(tmp_path, text):
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(AccessError, match="tokens"):
        read_tokens(path)


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
