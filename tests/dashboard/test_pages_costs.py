"""Pages and the API of costs: each cost is a quantity of its suite, with its changes, and links to the others."""

import pytest
from history import Here, commits_of, write_history
from served import words
from trees import analysed, open_store

from dashboard.address import FamilyAddress, SeriesAddress
from dashboard.pages import family, family_trends, series
from dashboard.pages.compare_cases import compare_table
from dashboard.pages.series_data import view
from dashboard.server.app import create_app
from lockstep.compare.read_rows import newest_rows
from lockstep.compare.two_sides import Side, compare
from lockstep.history.model import SeriesKey
from lockstep.record.quantity import COSTS
from lockstep.suite.thresholds import Pattern, Rule, Thresholds

MACHINE, CASE = "h200", "M=8,K=64"
HOST, SLOWER = SeriesKey(MACHINE, "linear.host", "triton", CASE, "cold"), 10


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    repo = tmp_path_factory.mktemp("costs") / "repo"
    commits = commits_of(repo, 20)
    ones = dict.fromkeys(COSTS, 1.0)
    write_history(repo / "results", MACHINE, commits, lambda n: Here(costs=ones | {"host": 1.3 if n >= SLOWER else 1}))
    store = open_store(repo / "results")
    findings = analysed(store, repo)
    results = store.current()
    return results, commits, findings.of_machine(results, MACHINE), create_app(store, findings=findings)


@pytest.fixture
def shown(tree):
    return tree[:3]


@pytest.fixture
def served(tree):
    return tree[3].server.test_client(), tree[1]


def test_the_page_of_a_family_leads_to_every_cost(shown):
    results, _, picture = shown
    text = words(family.layout(results, FamilyAddress(MACHINE, "linear")))
    for quantity in ("host", "behind", "behind_speedup", "energy", "compile"):
        assert FamilyAddress(MACHINE, f"linear.{quantity}").link() in text
    address = FamilyAddress(MACHINE, "linear.host", (CASE,), "cold", ("value",), ("torch", "triton"))
    assert '"Host"' in words(family.layout(results, address))
    latest = words(family.latest(results, address, "light"))
    assert '"triton"' in latest
    assert r"\u00b5s" in latest, "in JSON"
    [chart] = family_trends.trends(results, address, "light", picture)
    assert r"Host \u00b5s" in words(chart), "in JSON"


def test_the_page_of_a_series_marks_its_change(shown):
    results, commits, picture = shown
    seen = view(results, SeriesAddress(*HOST, "value"), picture)
    [change] = seen.changes
    assert change.after == commits[SLOWER]
    assert (seen.what.label, seen.what.unit) == ("Host", "µs")
    assert seen.analysis is not None
    linked = words(series.layout(results, SeriesAddress(*HOST)))
    assert SeriesAddress(MACHINE, "linear.energy", "triton", CASE, "cold").link() in linked
    latency = view(results, SeriesAddress(MACHINE, "linear", "triton", CASE, "cold", "speedup"), picture)
    assert latency.changes == ()


def facts_of(shown, quantity):
    """The facts of a series' page, by label: the number and what is said of it."""
    results, _, picture = shown
    seen = view(results, SeriesAddress(*HOST._replace(suite=f"linear.{quantity}")), picture)
    told = (tuple(part.children for part in fact.children) for fact in series.facts(seen, picture))
    return {label: (number, said) for label, number, said in told}


@pytest.mark.parametrize("quantity", ["host", "behind", "behind_speedup", "energy", "compile"])
def test_the_page_of_a_cost_says_its_noise_and_what_would_show(shown, quantity):
    facts = facts_of(shown, quantity)
    name = "behind speedup" if quantity.startswith("behind") else quantity
    assert facts["Noise"][1].endswith(f"run to run, of the {name}")
    noise, seen, once = (float(facts[label][0].split()[0]) for label in ("Noise", "MDE", "MDE of one run"))
    assert 0 < noise < seen
    # The interval of five values is 1 % either way, of the compile time 3 % and behind a kernel 0.3 or 0.1 %: 3.30
    # standard errors, of which a change must have 3.72 to be seen.
    wide = {"compile": 3.0, "behind": 0.3, "behind_speedup": 0.1}.get(quantity, 1.0)
    assert once == pytest.approx(wide * 3.72 / 3.30, rel=0.05)
    assert facts["MDE of one run"][1].startswith("5 % false alarms, 80 % power; it has ")


def test_a_row_of_a_cost_has_its_unit_and_direction(shown):
    rows = {row.key: row for row in newest_rows(shown[0], MACHINE)}
    units = {
        quantity: rows[HOST._replace(suite=f"linear.{quantity}")].unit for quantity in ("host", "energy", "compile")
    }
    assert units == {"host": "µs", "energy": "mJ", "compile": "s"}
    assert rows[HOST._replace(suite="linear.behind_speedup")].better == "higher"
    assert rows[HOST].value.value == pytest.approx(52.0, rel=0.05), "µs"
    assert rows[HOST].value.error == pytest.approx(0.01 / 3.3, rel=0.01), "an interval of 1 % from five epochs"


def test_the_api_gives_its_series_and_its_changes(served):
    client, commits = served
    [one] = client.get(f"/api/v1/trends/{MACHINE}/linear.host?variant=triton&case={CASE}").json["series"]
    assert (one["quantity"], one["unit"], len(one["value"])) == ("host", "seconds", 20)
    assert one["value"][-1] == pytest.approx(52e-6, rel=0.05)
    listed = {row["quantity"] for row in client.get(f"/api/v1/series/{MACHINE}").json}
    assert {"latency", "speedup", "host", "behind", "behind_speedup", "energy", "compile"} <= listed
    compared = f"bm={MACHINE}&bc={commits[SLOWER - 1]}&hm={MACHINE}&hc={commits[SLOWER]}&suite=linear.host"
    [slower] = [row for row in client.get(f"/api/v1/compare?{compared}").json["cases"] if row["verdict"] == "slower"][
        :1
    ]
    assert (slower["suite"], slower["unit"]) == ("linear.host", "seconds")


def test_a_comparison_calls_it_slower_by_the_threshold_of_its_quantity(shown):
    results, commits, _ = shown
    sides = [Side(MACHINE, commit) for commit in (commits[SLOWER - 1], commits[SLOWER])]

    def verdicts(thresholds):
        pairs = compare(results, *sides, "latency", thresholds)
        return {pair.verdict for pair in pairs if pair.suite == "linear.host" and pair.head_variant == "triton"}

    assert verdicts(Thresholds()) == {"slower"}
    assert "slower" not in verdicts(Thresholds(rules=(Rule(Pattern(quantity="host"), min_effect=0.5),)))
    assert verdicts(Thresholds(rules=(Rule(Pattern(suite="linear", quantity="latency"), min_effect=0.5),))) == {
        "slower"
    }
    text = words(compare_table(compare(results, *sides, "latency", Thresholds()), sides[1].machine))
    assert "linear.host" in text
    assert " \\u00d7" in text, "a ratio has one sign on all pages"
    assert ' x"' not in text
