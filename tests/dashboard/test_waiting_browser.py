"""What a page shows while it waits, when it has nothing, and when it fails; and that every page fills in the end."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from served import place, serving
from trees import analysed, open_store

from dashboard import pages
from dashboard.server.app import create_app, page
from lockstep.history.store import StoreError

#: Modules of pages, by the functions that each has.
PAGES = sorted(path.stem for path in Path(pages.__file__).parent.glob("*.py") if "\ndef layout(" in path.read_text())

#: Words of a page that knows that there is nothing.
NONE = ("No series", "Nothing is", "No alert", "Nothing to show", "No number")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return place(tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def sites(here, tmp_path_factory):
    """Two trees: kernels on three machines, and ten rates of another project."""
    rates = tmp_path_factory.mktemp("rates")
    ten = open_store(write_rates(rates / "results"))
    apps = {
        "kernels": here.app,
        "rates": create_app(ten, findings=analysed(ten, rates)),
    }
    with ExitStack() as served:
        yield {name: served.enter_context(serving(app)) for name, app in apps.items()}


def write_rates(root):
    """Ten series of another asv project, each of which falls by 30 % in the middle of 40 commits."""
    names = [f"simulation.bench_heightfield.HeightfieldCollisionPipeline.track_{number}" for number in range(10)]
    (root / "box").mkdir(parents=True)
    table = {name: {"name": name, "unit": "GB/s", "type": "track", "param_names": [], "params": []} for name in names}
    table = {name: entry | {"version": "1"} for name, entry in table.items()}
    (root / "benchmarks.json").write_text(json.dumps(table | {"version": 2}))
    facts = {"machine": "box", "cpu": "c", "python": "3.11"}
    (root / "box" / "machine.json").write_text(json.dumps(facts | {"version": 1}))
    for number in range(40):
        commit, date = f"{number + 1:040x}", 1_700_000_000_000 + number * 86_400_000
        value = (100.0 if number < 20 else 70.0) * (1 + 0.002 * (number % 3))
        content = {
            "commit_hash": commit,
            "env_name": "virtualenv",
            "date": date,
            "params": facts,
            "python": "3.11",
            "requirements": {},
            "env_vars": {},
            "result_columns": ["result", "params", "version", "started_at", "duration"],
            "results": {name: [[value], [], "1", date, 1.0] for name in names},
            "durations": {},
            "version": 2,
        }
        (root / "box" / f"{commit[-8:]}-virtualenv.json").write_text(json.dumps(content))
    return root


class Held:
    """Requests of a page that its test answers: those of its parts, and its polls."""

    def __init__(self, opened):
        self.page = opened
        self.parts, self.polls = [], []
        self.hold = self.hold_polls = True
        opened.route("**/_dash-update-component*", self._part)
        opened.route("**/_live", self._poll)

    def _part(self, route):
        whole_page = "page.children" in json.loads(route.request.post_data)["output"]
        self.parts.append(route) if self.hold and not whole_page else route.continue_()

    def _poll(self, route):
        self.polls.append(route) if self.hold_polls else route.continue_()

    def until(self, requests, number=1):
        """Wait for requests. The page sends them one after another, so that none are lost."""
        for _ in range(2_000):
            if len(requests) >= number:
                return
            self.page.wait_for_timeout(10)
        raise AssertionError(f"{len(requests)} of {number} requests")

    def release(self):
        """Answer the parts that wait, and all later ones."""
        self.hold = False
        while self.parts:
            self.parts.pop(0).continue_()

    def poll(self, version=None, soon=True):
        """Answer the next poll: with a version, or as the server does."""
        self.until(self.polls)
        route = self.polls.pop(0)
        route.continue_() if version is None else route.fulfill(json={"version": version, "soon": soon})


def slow_polls(held):
    """No poll is ever answered."""
    held.until(held.parts)
    held.until(held.polls)
    held.release()


def restless_polls(held):
    """Each poll brings another version while a part loads, and after it."""
    held.until(held.parts)
    for number in range(3):
        held.poll(f"v{number}")
    held.release()
    held.poll("v4")
    held.poll("v4")


def other_colours(held):
    """The reader switches the colours while a part loads, and a poll is out."""
    held.until(held.parts)
    held.until(held.polls)
    held.page.locator("#scheme").click()
    held.release()


def slow_computer(held):
    """The reader's computer is four times slower."""
    held.page.context.new_cdp_session(held.page).send("Emulation.setCPUThrottlingRate", {"rate": 4})
    held.release()
    held.poll("v1")


def waits_says_what_failed_then_fills(held):
    """A page says so while it waits, then what failed, and fills by itself once the server answers."""
    held.until(held.parts)
    held.page.get_by_text("Loading …").first.wait_for()
    shown = held.page.locator("#page").inner_text()
    assert [words for words in NONE if words in shown] == []
    parts = len(held.parts)
    text = "The alert database cannot be used: no space left."
    for route in held.parts[:parts]:
        route.fulfill(status=503, body=text, content_type="text/plain; charset=utf-8")
    del held.parts[:parts]
    held.page.get_by_role("alert").get_by_text(text).wait_for()
    held.page.locator(".waiting").first.wait_for(state="hidden")
    held.release()
    held.poll()
    held.hold_polls = False
    held.page.locator("#failed").wait_for(state="hidden")
    held.page.locator("#page :is(tbody tr, .ag-row)").first.wait_for()
    assert held.page.locator(".waiting").count() == 0


@pytest.mark.parametrize(
    ("tree", "course"),
    [
        ("kernels", slow_polls),
        ("rates", restless_polls),
        ("kernels", other_colours),
        pytest.param("rates", slow_computer, marks=pytest.mark.thorough),
    ],
)
def test_every_first_visit_fills_the_overview(window, sites, tree, course):
    held = Held(window.open(1400, 900))
    held.page.goto(sites[tree])
    course(held)
    held.page.locator(".grid .ag-center-cols-container .ag-row").first.wait_for()
    held.page.locator(".families .cell").first.wait_for()
    assert held.page.locator(".waiting").count() == 0
    # Not even in what is read out.
    assert "No series here" not in held.page.locator("body").inner_text()
    held.page.close()


def test_long_names_do_not_widen_the_page(window, sites):
    page = window.open(1400, 900)
    page.goto(f"{sites['rates']}/?since=all")
    page.get_by_text("HeightfieldCollisionPipeline").first.wait_for()
    page.locator(".families", has_text="HeightfieldCollisionPipeline").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_server_that_is_gone_is_called_so(window, sites):
    held = Held(window.open(1400, 900))
    held.page.goto(sites["rates"])
    held.release()
    held.page.locator(".grid .ag-row").first.wait_for()
    held.until(held.polls)
    held.polls.pop().abort()
    held.page.get_by_text("The server does not answer. Start it again with: lockstep dashboard.").wait_for()
    held.page.close()


def test_every_page_is_tested(here):
    assert sorted(here.pages) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_an_empty_page_says_what_to_run(here, name, tmp_path):
    empty = open_store(tmp_path / "results")
    if name.startswith("alert"):
        pytest.skip("alerts outlive their results: test_pages_alerts.py")
    path, _, search = here.pages[name].partition("?")
    shown, _ = page(empty, path, f"?{search}")
    assert "lockstep run HEAD" in json.dumps(shown.to_plotly_json(), default=vars)


def test_results_that_cannot_be_read_are_the_answer(here, monkeypatch):
    def broken():
        raise StoreError("the cache at /var/cache cannot be used: no space left: choose another folder with --cache")

    monkeypatch.setattr(here.store, "current", broken)
    answer = here.client.get("/_live")
    assert (answer.status_code, answer.mimetype) == (503, "text/plain")
    assert answer.text.endswith("choose another folder with --cache.")
