"""Write the gate's report as a comment on its pull request, and edit this comment later: the job of ``comment.yml``.

The job holds a token that may write comments, and reads an artifact that the change under test may have forged. So the
pull request comes from GitHub and never from the artifact. A run that a fork's own workflow file could have shaped gets
no comment. The artifact is data of bounded size (``lockstep.gate.report.untrusted_report``), and its text is escaped.
Only the standard library is used, so that no installed package can read the token.

Exit status: 0 if the comment is written, or there is no pull request; 1 if the comment says that the report cannot be
read; 3 if GitHub does not answer.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from lockstep.gate.report.markdown import PAGES, pages_link, to_markdown
from lockstep.gate.report.untrusted_report import MOST_ZIPPED, Unreadable, from_zip

COMMENTED, UNREADABLE, NO_ANSWER = 0, 1, 3

#: The workflow whose runs get a comment, and the workflow's artifact (.github/actions/gate/action.yml).
WORKFLOW, ARTIFACT = ".github/workflows/gate.yml", "gate-report"

#: First line of the comment, by which the next run finds the comment, and its author. Other authors' comments are
#: ignored.
MARKER, AUTHOR = "<!-- lockstep gate -->", "github-actions[bot]"

#: Maximum characters of a comment; GitHub accepts 65,536.
MOST_TEXT = 60_000

#: Maximum pages of a hundred comments that are searched.
MOST_PAGES = 30

TIMEOUT_S = 30.0


class GitHub:
    """Sends the requests to GitHub's REST API (https://docs.github.com/rest) that writing the comment needs.

    Args:
        repository: "owner/name".
        token: may read runs and write comments of pull requests.
    """

    def __init__(self, url: str, repository: str, token: str) -> None:
        self._root, self._token = f"{url}/repos/{repository}", token

    def get(self, path: str, **query: str | int) -> Any:
        """Return the JSON answer to a GET request."""
        return json.loads(self._ask("GET", f"{path}?{urlencode(query)}" if query else path))

    def send(self, method: str, path: str, content: Mapping[str, Any]) -> None:
        """Send ``content`` as JSON in a request that changes something, such as a POST."""
        self._ask(method, path, json.dumps(content).encode())

    def download(self, path: str, most: int) -> bytes:
        """Return a file, cut after ``most`` + 1 bytes: the caller can then tell a file that is too long."""
        return self._ask("GET", path, most=most + 1)

    def _ask(self, method: str, path: str, content: bytes | None = None, most: int = 1 << 25) -> bytes:
        request = urllib.request.Request(f"{self._root}{path}", content, method=method)
        request.add_header("Accept", "application/vnd.github+json")
        # GitHub redirects artifacts to another host, which must not see the token.
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            read: bytes = answer.read(most)
        return read


def tell(github: GitHub, event: Mapping[str, Any]) -> int:
    """Write or edit the comment on the pull request of a ``workflow_run`` event of GitHub; return the exit status.

    Raise ``OSError`` if GitHub does not answer, or refuses.
    """
    run = event["workflow_run"]
    pull = find_pull(github, run, event["repository"])
    if pull is None:
        print("no comment: no open pull request is at this run's commit, or the run is not trusted")
        return COMMENTED
    try:
        findings = to_markdown(from_zip(_artifact(github, run["id"])))
        code = COMMENTED
    except Unreadable as error:
        findings = f"### ⚠️ The gate left no report: {error}.\n"
        code = UNREADABLE
    _upsert(github, pull, comment_text(findings, pull["head"]["sha"], run["html_url"], os.environ.get(PAGES, "")))
    print(f"wrote the comment of pull request {pull['number']}")
    return code


def find_pull(github: GitHub, run: Mapping[str, Any], repository: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the open pull request of a run, if it is still at the commit that was judged; else ``None``.

    A fork's pull request runs the fork's workflow file, which can claim anything, so such a run is not trusted. For a
    run started by hand, the run's title names pull request and commit. The workflow file of the default branch sets
    this title.
    """
    # GitHub sends null for a deleted fork or user.
    same_repository = (run["head_repository"] or {}).get("full_name") == repository["full_name"]
    if run["path"].partition("@")[0] != WORKFLOW or not same_repository:
        return None
    if run["event"] == "pull_request":
        owner = repository["full_name"].partition("/")[0]
        pulls = github.get("/pulls", state="open", head=f"{owner}:{run['head_branch']}")
        return next((pull for pull in pulls if pull["head"]["sha"] == run["head_sha"]), None)
    title = re.fullmatch(r"Gate #(\d{1,9}) at ([0-9a-f]{40})", run["display_title"])
    by_hand = run["event"] == "workflow_dispatch" and run["head_branch"] == repository["default_branch"]
    if not by_hand or title is None:
        return None
    pull = github.get(f"/pulls/{title[1]}")
    return pull if pull["state"] == "open" and pull["head"]["sha"] == title[2] else None


def comment_text(findings: str, sha: str, run_url: str, pages: str = "") -> str:
    """Return the comment: the marker by which a later run finds it, findings, commit, and links to run and pages."""
    footer = f"\n[All of it, with the JSON report]({quote(run_url, safe=':/')}), for {sha}{pages_link(pages)}\n"
    lines, remaining = [], MOST_TEXT - len(footer)
    for line in findings.splitlines(keepends=True):
        remaining -= len(line)
        if remaining < 0:
            lines.append("\n… cut\n")
            break
        lines.append(line)
    return f"{MARKER}\n{''.join(lines)}{footer}"


def main() -> int:
    """Read the event, write the comment and return the exit status."""
    github = GitHub(os.environ["GITHUB_API_URL"], os.environ["GITHUB_REPOSITORY"], os.environ["GITHUB_TOKEN"])
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    try:
        return tell(github, event)
    except urllib.error.HTTPError as error:
        print(f"::error::GitHub refused {error.url}: {error.code} {error.reason}")
    except OSError as error:
        print(f"::error::GitHub does not answer: {error}")
    return NO_ANSWER


def _artifact(github: GitHub, run: int) -> bytes:
    """Return the newest report of a run, as a zip file."""
    listed = github.get(f"/actions/runs/{run}/artifacts", name=ARTIFACT)["artifacts"]
    artifacts = [artifact for artifact in listed if artifact["name"] == ARTIFACT and not artifact["expired"]]
    if not artifacts:
        raise Unreadable("the run ended before it wrote a report")
    newest = max(artifacts, key=lambda artifact: artifact["id"])
    if newest["size_in_bytes"] > MOST_ZIPPED:
        raise Unreadable(f"the artifact has more than {MOST_ZIPPED >> 20} MiB, the limit: judge fewer cases at once")
    return github.download(f"/actions/artifacts/{newest['id']}/zip", MOST_ZIPPED)


def _upsert(github: GitHub, pull: Mapping[str, Any], text: str) -> None:
    for comment in _comments(github, pull):
        if (comment["user"] or {}).get("login") == AUTHOR and comment["body"].startswith(MARKER):
            return github.send("PATCH", f"/issues/comments/{comment['id']}", {"body": text})
    return github.send("POST", f"/issues/{pull['number']}/comments", {"body": text})


def _comments(github: GitHub, pull: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for page in range(1, MOST_PAGES + 1):
        listed = github.get(f"/issues/{pull['number']}/comments", per_page=100, page=page)
        yield from listed
        if len(listed) < 100:
            return


if __name__ == "__main__":
    sys.exit(main())
