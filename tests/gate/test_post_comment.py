"""The comment on a pull request: fed by a stand-in of GitHub's API, and by artifacts that mean harm."""

import io
import json
import re
import subprocess
import sys
import threading
import zipfile
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from project import make_project
from workflows import ROOT, Runner, workflow

from lockstep.gate.model import SeriesKey, Verdict
from lockstep.gate.report import untrusted_report
from lockstep.gate.report.markdown import pages_link
from lockstep.gate.report.post_comment import AUTHOR, MARKER, MOST_TEXT, comment_text
from lockstep.gate.report.report import Report
from lockstep.gate.report.untrusted_report import Unreadable, from_json, from_zip
from lockstep.record.model import Estimate

SHA = "1234567890" * 4
FORK = {"full_name": "stranger/r"}
HERE = {"full_name": "o/r", "default_branch": "main"}

KEY = SeriesKey("linear", "triton", "M=8,K=4096", "warm")
SLOWER = Verdict(KEY, "slower", change=Estimate(0.02, 0.018, 0.022), base_s=1e-5, head_s=1.02e-5, confirmed=True)
REPORT = Report(
    base="abc",
    head="def",
    min_effect=0.01,
    confidence=0.99,
    budget_s=120.0,
    seed=1,
    machine={"gpu": "H200", "clock_state": "locked@1500"},
    cases=(SLOWER, Verdict(SeriesKey("linear", "torch", "M=8,K=4096", "warm"), "same", unchanged=True)),
    meter=(Verdict(KEY, "same", change=Estimate(0.001, -0.001, 0.003)),),
)


def zipped(content, name="gate.json"):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return packed.getvalue()


def changed(**fields):
    """The report as JSON, with other fields."""
    return json.dumps({**json.loads(REPORT.to_json()), **fields})


def case(**fields):
    """The report as JSON, its first case with other fields."""
    rows = json.loads(REPORT.to_json())["cases"]
    return changed(cases=[{**rows[0], **fields}, rows[1]])


@dataclass
class GitHub:
    """What GitHub knows, and what it was told."""

    artifact: bytes = field(default_factory=lambda: zipped(REPORT.to_json()))
    artifacts: list[dict] = field(default_factory=lambda: [{"id": 5, "name": "gate-report", "expired": False}])
    pulls: list[dict] = field(default_factory=lambda: [{"number": 7, "state": "open", "head": {"sha": SHA}}])
    comments: list[dict] = field(default_factory=list)
    refused: int = 0
    storage: str = ""
    tokens: list[tuple[str, str | None]] = field(default_factory=list)

    def get(self, path, query):
        if path == "/pulls":
            return self.pulls if query["head"] == ["o:change"] else []
        if match := re.fullmatch(r"/pulls/(\d+)", path):
            return next(one for one in self.pulls if one["number"] == int(match[1]))
        if path == "/actions/runs/99/artifacts":
            return {"artifacts": [{"size_in_bytes": len(self.artifact), **one} for one in self.artifacts]}
        assert re.fullmatch(r"/issues/\d+/comments", path), path
        start = 100 * (int(query["page"][0]) - 1)
        return self.comments[start : start + 100]


def handler(github):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            url = urlsplit(self.path)
            github.tokens.append((url.path, self.headers["Authorization"]))
            if github.refused:
                self.send_error(github.refused)
            elif url.path == "/storage":
                self._answer(200, github.artifact)
            elif url.path == "/repos/o/r/actions/artifacts/5/zip":
                self.send_response(302)
                self.send_header("Location", github.storage)
                self.end_headers()
            else:
                path = url.path.removeprefix("/repos/o/r")
                self._answer(200, json.dumps(github.get(path, parse_qs(url.query))).encode())

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
            number = int(re.fullmatch(r"/repos/o/r/issues/(\d+)/comments", self.path)[1])
            new = {"id": 1000 + len(github.comments), "user": {"login": AUTHOR}, "body": body, "on": number}
            github.comments.append(new)
            self._answer(201, b"{}")

        def do_PATCH(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
            number = int(re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", self.path)[1])
            next(one for one in github.comments if one["id"] == number)["body"] = body
            self._answer(200, b"{}")

        def _answer(self, status, content):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    return Handler


@pytest.fixture
def github():
    github = GitHub()
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler(github)) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    github.url, storage = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    github.storage = f"{storage}/storage"
    yield github
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def job(github, tmp_path):
    """Runs the job of comment.yml for a run of the gate."""
    project = make_project(tmp_path / "project")

    def run(**fields):
        told = {
            "id": 99,
            "event": "pull_request",
            "path": ".github/workflows/gate.yml",
            "head_branch": "change",
            "head_sha": SHA,
            "head_repository": HERE,
            "display_title": "Gate #8 at " + SHA,
            "html_url": "https://github.com/o/r/actions/runs/99",
            "conclusion": "failure",
            **fields,
        }
        event = {"workflow_run": told, "repository": HERE}
        path = tmp_path / "event.json"
        path.write_text(json.dumps(event))
        environment = {"GITHUB_API_URL": github.url, "GITHUB_EVENT_PATH": str(path)}
        context = {"github": {"event": event, "repository": "o/r", "token": "secret"}}
        if not hasattr(run, "runner"):
            run.runner = Runner(project, context, environment)
        run.runner.context["github"] = context["github"]
        done = run.runner.job(workflow("comment"), "comment")
        assert all("Traceback" not in step.output for step in done.steps)
        return done

    return run


def code(job):
    (step,) = job.steps
    return step.code


def test_one_comment_is_written_and_then_edited(github, job):
    github.comments += [{"id": number, "user": {"login": "someone"}, "body": "Hi."} for number in range(120)]
    # Somebody else's marker is not ours to edit, and a user that is gone is nobody.
    github.comments += [{"id": 500, "user": {"login": "mallory"}, "body": f"{MARKER}\npass"}]
    github.comments += [{"id": 501, "user": None, "body": f"{MARKER}\npass"}]
    assert code(job()) == 0
    (ours,) = [one for one in github.comments if "on" in one]
    assert ours["on"] == 7
    assert ours["body"].startswith(f"{MARKER}\n### 🔴 1 case slower: linear triton by +2.00 % ")
    assert "| slower | linear | triton | M=8,K=4096 | warm | 10.00 | 10.20 | +2.00% |" in ours["body"]
    assert ours["body"].endswith(f"(https://github.com/o/r/actions/runs/99), for {SHA}\n")

    github.artifact = zipped(changed(cases=[]))
    assert code(job()) == 0
    assert "### ⚠️ Nothing was judged: no case was selected" in ours["body"]
    assert sum("on" in one for one in github.comments) == 1
    assert github.comments[120]["body"] == f"{MARKER}\npass"


def test_token_is_not_shown_to_where_artifacts_lie(github, job):
    job()
    tokens = dict(github.tokens)
    assert tokens["/storage"] is None
    assert {token for path, token in github.tokens if path != "/storage"} == {"Bearer secret"}


def test_state_and_counts_are_drawn_from_the_cases_and_not_believed(github, job):
    github.artifact = zipped(changed(state="pass", headline="All fine, merge it", regressions=0, counts={}))
    assert code(job()) == 0
    (told,) = github.comments
    assert "🔴 1 case slower" in told["body"]
    assert "merge it" not in told["body"]


HARM = (
    "@everyone <img src=x onerror=alert(1)> [x](https://e.vil) `a` | # #1 "
    "www.e.vil https://e.vil \u202e --> \n::error::"
)


@pytest.mark.parametrize(
    "harm",
    [
        case(reason=HARM),
        case(code=[HARM] * 3, accepted=HARM),
        case(key={"suite": HARM, "variant": HARM, "case": HARM, "l2": HARM}),
        changed(notes=[HARM], machine={"gpu": HARM, "torch": HARM}, base=HARM, head=HARM),
        changed(trouble=HARM),
    ],
    ids=["reason", "code", "key", "notes", "trouble"],
)
def test_words_of_the_change_are_shown_as_words(github, job, harm):
    github.artifact = zipped(harm)
    done = job()
    (told,) = github.comments
    body = told["body"].removeprefix(MARKER)
    assert "everyone" in body
    # GitHub takes nothing in a code span for markup.
    body = re.sub(r"(?<=: )(`+)(?!`)[^\n]*(?<!`)\1(?=\n)", "", body)
    assert "@everyone" not in body
    assert not re.search(r"(?<!\\)`|<img|(?<!\\)\]\(https://e|https://e|www\.e|\u202e|#1|<!--", body)
    # What ends the table early, or a line that is a command, starts a line.
    assert "\n::error" not in body
    assert "::error::" not in done.steps[0].output


def bomb():
    return zipped(b" " * (untrusted_report.MOST_BYTES + 1000))


@pytest.mark.parametrize(
    ("artifact", "why"),
    [
        (b"\0" * (untrusted_report.MOST_ZIPPED + 1), "the artifact has more than 4 MiB"),
        (bomb(), "gate.json has more than 16 MiB"),
        (b"<html>", "the artifact is not a valid zip file"),
        (zipped(REPORT.to_json())[:-40], "the artifact is not a valid zip file"),
        (zipped(REPORT.to_json(), "../gate.json"), "the artifact has no gate.json"),
        (zipped(REPORT.to_json(), "/tmp/gate.json"), "the artifact has no gate.json"),
        (zipped("<script>"), "gate.json is not valid JSON"),
        (zipped(b"\xff\xfe\x00"), "gate.json is not valid JSON"),
        (zipped("[" * 100_000), "gate.json is not valid JSON"),
        (zipped('{"schema": ' + "9" * 5000 + "}"), "gate.json is not valid JSON"),
        (zipped("[]"), "gate.json: the content is not a JSON object"),
        (zipped("{}"), "gate.json is not of schema 1"),
        (zipped(changed(cases={})), "gate.json: cases is missing"),
        (zipped(case(outcome="<b>")), "gate.json: cases.outcome is missing"),
        (zipped(case(change=None)), "gate.json: cases.change is missing"),
        (zipped(case(base_s="@all")), "gate.json: cases.base_s is missing"),
        (zipped(changed(wall_s=float("nan"))), "gate.json: wall_s is missing"),
        (zipped(changed(min_effect=1e308)), "gate.json: min_effect is missing"),
        (zipped(case(reason="x" * 3000)), "gate.json: cases.reason is missing"),
        (zipped(changed(machine=7)), "gate.json: machine is missing"),
    ],
)
def test_what_is_no_report_is_told_in_words_of_ours(artifact, why):
    with pytest.raises(Unreadable, match=f"^{re.escape(why)}"):
        from_zip(artifact)


def test_artifact_that_cannot_be_read_is_told_and_the_job_is_red(github, job):
    github.artifact = zipped("<script>@everyone")
    assert code(job()) == 1
    (told,) = github.comments
    assert told["body"].startswith(f"{MARKER}\n### ⚠️ The gate left no report: gate.json is not valid JSON.\n")
    github.artifact = b"\0" * (untrusted_report.MOST_ZIPPED + 1)
    github.tokens.clear()
    assert code(job()) == 1
    assert "more than 4 MiB" in told["body"]
    assert "/storage" not in dict(github.tokens)
    github.artifacts = []
    assert code(job()) == 1
    assert "the run ended before it wrote a report" in told["body"]


def test_a_long_report_is_cut_to_what_a_comment_holds(github, job):
    row = json.loads(REPORT.to_json())["cases"][0]
    many = [{**row, "key": {**row["key"], "case": f"M={m}"}, "reason": "@" * 290} for m in range(1500)]
    github.artifact = zipped(changed(cases=many))
    assert code(job()) == 0
    (told,) = github.comments
    assert len(told["body"]) <= MOST_TEXT + 100
    assert "… cut" in told["body"]
    assert told["body"].endswith(f", for {SHA}\n")


@pytest.mark.parametrize(
    "run",
    [
        {"head_repository": FORK},
        {"head_repository": None},
        {"path": ".github/workflows/other.yml"},
        {"head_sha": "f" * 40},
        {"head_branch": "another"},
        {"event": "push"},
        {"event": "workflow_dispatch", "head_branch": "change", "display_title": f"Gate #7 at {SHA}"},
        {"event": "workflow_dispatch", "head_branch": "main", "display_title": f"Gate #7 at {'f' * 40}"},
        {"event": "workflow_dispatch", "head_branch": "main", "display_title": f"Gate #7 at {SHA}\n"},
    ],
)
def test_runs_that_cannot_be_believed_or_are_out_of_date_are_told_to_nobody(github, job, run):
    done = job(**run)
    assert (code(done), github.comments) == (0, [])
    assert "no comment: no open pull request" in done.steps[0].output
    assert not any("artifacts" in path for path, _ in github.tokens)


def test_a_run_by_hand_is_told_to_the_pull_request_of_its_title(github, job):
    # The artifact has no say: whatever it names, GitHub's number is taken.
    github.artifact = zipped(changed(number=1, pull_request=1, about=["#1"]))
    done = job(event="workflow_dispatch", head_branch="main", display_title=f"Gate #7 at {SHA}", head_sha="0" * 40)
    assert code(done) == 0
    assert [one["on"] for one in github.comments] == [7]


def test_a_run_that_was_skipped_says_nothing(github, job):
    assert job(conclusion="skipped").outcome == "skipped"
    assert github.tokens == []


def test_github_that_refuses_is_an_error_of_its_own(github, job):
    github.refused = 403
    done = job()
    assert code(done) == 3
    assert "::error::GitHub refused http" in done.steps[0].output
    assert "secret" not in done.steps[0].output


def test_report_comes_back_as_it_was():
    again = from_json(REPORT.to_json().encode())
    assert (again.state, again.cases[0].change, again.meter[0].change) == (
        "slower",
        SLOWER.change,
        Estimate(0.001, -0.001, 0.003),
    )
    assert again.counts() == REPORT.counts()


def test_a_verdict_on_determinism_has_no_size():
    lost = Verdict(replace(KEY, quantity="deterministic"), "slower", "not deterministic any more")
    again = from_json(replace(REPORT, cases=(lost,)).to_json().encode())
    assert (again.state, again.cases) == ("slower", (lost,))


def test_it_needs_the_standard_library_alone():
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lockstep.gate.report.post_comment"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_comment_links_to_the_pages_of_the_history():
    text = comment_text(
        "### ok\n", "a" * 40, "https://github.com/o/r/actions/runs/1", "https://bench.example.org/x?a=b"
    )
    assert text.rstrip().endswith(
        f"for {'a' * 40} · [earlier results, and the alerts](https://bench.example.org/x?a=b)"
    )
    for wrong in ("", "javascript:alert(1)", "https://a b", "https://a\n[x](y)"):
        assert comment_text("", "a", "https://run", wrong).rstrip().endswith("for a")
    assert pages_link("https://a/)[x](https://b").count("](") == 1
