"""The published site loads nothing from elsewhere and works in a browser."""

import base64
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import asv
import pytest
from asv.config import Config
from asv.results import Results
from asv.runner import BenchmarkResult
from asv.util import UserError
from browser import served

from lockstep.asv.publish_offline import COPIES, VENDOR, make_local

ROOT = Path(__file__).parents[2]
ASV_PAGES = Path(asv.__file__).parent / "www"
COMMITS = 8
VARIANTS = ["bmm", "triton"]
CASES = ["M=1,K=64", "M=8,K=64"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A published project whose latency and speedup both step up by half at its fifth commit."""
    project = tmp_path_factory.mktemp("project")
    own = Config.load(str(ROOT / "asv.conf.json"))
    config = {
        "version": 1,
        "project": "toy",
        "repo": ".",
        "branches": ["main"],
        "plugins": [".lockstep.asv"],
        "regressions_first_commits": own.regressions_first_commits,
        "regressions_thresholds": own.regressions_thresholds,
    }
    (project / "asv.conf.json").write_text(json.dumps(config))
    git(project, "init", "-q", "-b", "main")
    benchmarks = {name: benchmark(name, unit) for name, unit in [("toy.latency", "seconds"), ("toy.speedup", "x")]}
    machine = {"machine": "gpu0", "arch": "x86_64", "version": 1}
    write(project / "results/benchmarks.json", benchmarks | {"version": 2})
    write(project / "results/gpu0/machine.json", machine)
    for number in range(COMMITS):
        commit = git(project, "commit", "-q", "--allow-empty", "-m", f"Commit {number}", day=number + 1)
        results = Results(
            {"machine": "gpu0", "python": "3.12"},
            {},
            commit,
            1_700_000_000_000 + number * 86_400_000,
            "3.12",
            "env",
            {},
        )
        level = 1.5 if number >= COMMITS // 2 else 1.0
        for entry, unit in zip(benchmarks.values(), [1e-5, 1.0], strict=True):
            measured = [level * unit * (1 + index) for index in range(4)]
            outcome = BenchmarkResult(measured, [None] * 4, [None] * 4, 0, "", None)
            results.add_result(entry, outcome, datetime.datetime(2026, 1, number + 1, tzinfo=datetime.UTC))
        results.save(str(project / "results"))
    publish(project)
    return project / "html"


@pytest.fixture(scope="module")
def address(site):
    with served(site) as address:
        yield address


def benchmark(name, unit):
    return {
        "name": name,
        "code": "",
        "type": "track",
        "unit": unit,
        "version": "1",
        "timeout": 60,
        "param_names": ["variant", "case"],
        "params": [[repr(name) for name in VARIANTS], [repr(label) for label in CASES]],
    }


def git(project, *arguments, day=1):
    when = f"2026-01-{day:02}T12:00:00Z"
    identity = ["-c", "user.name=Toy", "-c", "user.email=toy@example.com"]
    environment = os.environ | {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    subprocess.run(["git", *identity, *arguments], cwd=project, env=environment, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, capture_output=True, text=True)
    return head.stdout.strip()


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def publish(project, *options, command="asv.main"):
    subprocess.run(
        [sys.executable, "-c", f"from {command} import main; main()", "publish", "--no-pull", *options],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )


class Loads(HTMLParser):
    """Collects what a page loads by itself, and the tags that carry an integrity attribute."""

    def __init__(self, page):
        super().__init__()
        self.addresses = []
        self.integrity = {}
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        address = values.get("src") or (values.get("href") if tag == "link" else None)
        if address:
            self.addresses.append(address)
        if "integrity" in values or "crossorigin" in values:
            self.integrity[address] = values.get("integrity", "")


def test_pages_load_only_files_that_are_there(site):
    pages = sorted(site.glob("*.html"))
    assert [page.name for page in pages] == ["error.html", "index.html"]
    for page in pages:
        loads = Loads(page)
        assert loads.integrity == {}
        assert [address for address in loads.addresses if not (site / address).is_file()] == []
    used = {address for address in Loads(site / "index.html").addresses if address.startswith("vendor/")}
    assert used == {f"vendor/{name}" for name in COPIES.values()}


def test_pages_differ_from_asvs_in_nothing_else(site):
    restored = (site / "index.html").read_text()
    for url, name in COPIES.items():
        restored = restored.replace(f"vendor/{name}", url)
    original = (ASV_PAGES / "index.html").read_text()
    assert restored == re.sub(r' (integrity|crossorigin|referrerpolicy)="[^"]*"', "", original)


def test_lockstep_publish_gives_the_same_pages(site, tmp_path):
    publish(site.parent, "--html-dir", str(tmp_path / "html"), command="lockstep.commands.cli")
    assert (tmp_path / "html/index.html").read_text() == (site / "index.html").read_text()


def test_copies_are_the_files_asv_names():
    named = Loads(ASV_PAGES / "index.html").integrity
    different = []
    for url, name in COPIES.items():
        algorithm, _, digest = named[url].partition("-")
        found = hashlib.new(algorithm, (VENDOR / name).read_bytes()).digest()
        if base64.b64encode(found).decode() != digest:
            different.append(name)
    # The same release, not minified: see the README beside it.
    assert different == ["stupidtable-1.0.1.js"]


def test_readme_lists_every_copy_with_its_digest_and_licence():
    table = re.findall(r"^\| `([^`]+)` \| .*\(licences/([^)]+)\) \| `([0-9a-f]{64})` \|$", readme(), re.MULTILINE)
    listed = {name: digest for name, _, digest in table}
    assert listed == {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in COPIES.values()}
    assert {licence for _, licence, _ in table} == {path.name for path in (VENDOR / "licences").iterdir()}


def readme():
    return (VENDOR / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("index.html", '<script src="https://cdn.example/new-1.0.js" integrity="sha256-x"></script>'),
        ("error.html", "<img\n  src='//cdn.example/new-1.0.js'>"),
        ("index.html", "<link rel=stylesheet href=https://cdn.example/new-1.0.js>"),
        ("index.html", "<style>@import 'https://cdn.example/new-1.0.js';</style>"),
        ("asv.css", "body { background: url(https://cdn.example/new-1.0.js) }"),
    ],
)
def test_unknown_address_stops_publishing_by_name(tmp_path, name, text):
    known = f'<script src="{next(iter(COPIES))}"></script>'
    (tmp_path / "other.html").write_text(known)
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=rf"{re.escape(name)}: \S*//cdn\.example/new-1\.0\.js"):
        make_local(tmp_path)
    assert (tmp_path / "other.html").read_text() == known
    assert not (tmp_path / "vendor").exists()


def test_links_to_other_hosts_stay(tmp_path):
    page = tmp_path / "index.html"
    page.write_text('<a class="x" href="https://example.org/">there</a>')
    make_local(tmp_path)
    assert page.read_text() == '<a class="x" href="https://example.org/">there</a>'


def test_rising_speedup_is_no_regression(site):
    found = json.loads((site / "regressions.json").read_text())["regressions"]
    assert len(found) == len(VARIANTS) * len(CASES)
    assert {entry[0].partition("(")[0] for entry in found} == {"toy.latency"}


def test_grid_list_graph_and_regressions_show_in_a_browser(address, visit):
    page = visit.page
    page.goto(f"{address}/index.html")
    page.wait_for_selector("#summarygrid-display .benchmark-container canvas")
    assert page.locator("#summarygrid-display .benchmark-container").count() == 2

    page.click("text=Benchmark list")
    rows = page.locator("#summarylist-body tbody tr")
    rows.first.wait_for()
    assert rows.count() == 2 * len(VARIANTS) * len(CASES)
    # stupidtable sorts on a click.
    before = rows.all_inner_texts()
    page.click("#summarylist-body thead th:has-text('Value')")
    page.wait_for_function("first => $('#summarylist-body tbody tr')[0].innerText != first", arg=before[0])
    assert sorted(rows.all_inner_texts()) == sorted(before)

    page.goto(f"{address}/index.html#toy.latency")
    canvas = page.locator("#main-graph canvas.flot-base")
    canvas.wait_for()
    assert canvas.bounding_box()["height"] > 100
    assert page.locator("#graphdisplay-navigation").is_visible()

    page.click("text=Regressions")
    page.locator("#regressions-body tbody tr").first.wait_for()
    assert page.locator("#regressions-body tbody tr").count() == len(VARIANTS) * len(CASES)
