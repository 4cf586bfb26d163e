"""A step that several alerts show is one row of a list, and one message."""

from dataclasses import replace

import pytest
from alerting import COMMITS, alerts, queued, series, step, told
from verb import run_verb

from lockstep.alerts.alert_ranking import doubted, rank_of
from lockstep.alerts.analysis.grouping import group
from lockstep.alerts.cause.found_change import Cause
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.listing import Choice
from lockstep.alerts.database.states_and_actions import OPEN, Act
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import AnalysisResult
from lockstep.alerts.story import tell
from lockstep.alerts.text import also
from lockstep.notify.outbox import Outbox
from lockstep.notify.receivers import receivers

MACHINES = ("h200", "b200", "h100")


def foreign(family, machine="h200"):
    """Return a series of another project's benchmark."""
    return series(variant="time_it", l2="", family=family, machine=machine, quantity="seconds")


def stories(*steps, owners=()):
    """Return the families and machines of each story, the gravest first."""
    every = zip(told(*steps), owners or [""] * len(steps), strict=True)
    return of_changes([replace(one, owner=owner) for one, owner in every])


def of_changes(changes):
    """Return the families and machines of each story of these changes, the gravest first."""
    found = sorted(group(changes, COMMITS), key=rank_of, reverse=True)
    gathered = {}
    for one in found:
        gathered.setdefault(one.story or one.fingerprint, []).append(f"{one.family} {one.machine}")
    return list(gathered.values())


def test_a_step_of_several_machines_is_one_story():
    first, second, third = (
        step(10, by=by, name=series(machine=name)) for by, name in zip((0.3, 0.2, 0.1), MACHINES, strict=True)
    )
    later = step(15, by=0.05, name=series(machine="b200"))
    found = sorted(group(told(first, second, third, later), COMMITS), key=rank_of, reverse=True)
    assert stories(first, second, third, later) == [["linear h200", "linear b200", "linear h100"], ["linear b200"]]
    assert [also(one) for one in found] == ["also: b200, h100", "also: h100, h200", "also: b200, h200", ""]
    assert tell(found[0]).since.endswith("; also: b200, h100")


def test_a_list_of_places_ends_after_a_line_and_says_how_many_are_left_out():
    """Three of four places that django's history named in one alert took 300 characters."""
    [alert] = group(told(step(10)), COMMITS)
    benchmarks = [f"query_benchmarks.query_{name}.benchmark.Query{name.title()}" for name in ("all", "delete", "get")]
    places = tuple(f"{name}{on}" for name in benchmarks for on in ("", " on ubuntu-latest (conda-py3.12)"))
    assert also(replace(alert, also_on=places)) == f"also: {places[0]} and 5 more"
    assert also(replace(alert, also_on=places[1:])) == f"also: {places[1]} and 4 more"
    assert also(replace(alert, also_on=("x" * 200,))) == f"also: {'x' * 200}"
    machines = tuple(f"machine-{number}" for number in range(20))
    assert also(replace(alert, also_on=machines)) == f"also: {', '.join(machines[:9])} and 11 more"


def test_a_range_that_overlaps_is_the_same_step_but_one_place_has_it_once():
    wide = [step(9, 12, by=0.3), step(8, 10, name=series(machine="b200")), step(11, 14, name=series(machine="b200"))]
    assert stories(*wide) == [["linear h200", "linear b200"], ["linear b200"]]


def test_families_that_one_commit_slows_are_one_story():
    steps = [step(10, by=0.3), step(10, by=0.2, name=series(family="kda")), step(11, name=series(family="hgemm"))]
    assert stories(*steps) == [["linear h200", "kda h200"], ["hgemm h200"]]
    wide = [step(9, 12, by=0.3), step(9, 12, by=0.2, name=series(family="kda"))]
    assert len(stories(*wide)) == 2, "two of the commits may be the culprits"


def test_classes_of_one_module_that_become_slower_in_one_range_are_one_story():
    steps = [step(9, 12, by=0.3, name=foreign("io.Read")), step(10, 12, by=0.2, name=foreign("io.Write"))]
    steps += [step(9, 12, by=0.1, name=foreign("io.Write", "b200")), step(9, 12, name=foreign("text.Read"))]
    assert stories(*steps) == [["io.Read h200", "io.Write h200", "io.Write b200"], ["text.Read h200"]]
    functions = [step(9, 12, by=0.3, name=foreign("io.csv")), step(9, 12, by=0.2, name=foreign("io.hdf"))]
    assert len(stories(*functions)) == 2, "the modules of a package have little to do with each other"


def test_a_toolchain_slows_all_families_of_its_machine():
    steps = [step(9, 12, by=by, name=series(family=name)) for by, name in ((0.3, "linear"), (0.2, "kda"))]
    told_steps = [
        replace(one, before=replace(one.before, toolchain={"python": "3.12", "torch": "2.10"})) for one in steps
    ]
    assert stories(*told_steps) == [["linear h200", "kda h200"]]
    assert len(stories(told_steps[0], steps[1])) == 2, "the commit slowed the second"


def test_most_modules_of_a_machine_that_move_in_one_range_are_one_story_unless_their_code_changed():
    """GitHub's runners got slower for ten classes of django at once: they were ten rows."""
    steps = [step(9 + at % 2, 12, by=0.1, name=foreign(f"m{at}.Read"), touched=None) for at in range(3)]
    unknown = [step(*ends, name=foreign("m4.Read"), touched=None) for ends in ((15,), (17, 18))]
    changes = [replace(one, cause=Cause("unknown cause", "")) for one in told(*steps, *unknown)]
    assert sorted(len(story) for story in of_changes(changes)) == [1, 1, 3]
    assert sorted(len(story) for story in of_changes(changes[:2])) == [1, 1]
    own = [replace(one, cause=Cause("own commit", "")) for one in changes]
    assert {len(story) for story in of_changes(own)} == {1}


def test_a_machine_is_the_cause_of_what_moves_there_together_and_on_no_other_machine():
    """newton-physics/newton's benchmarks on one machine with Windows pass between two states; its twin does not."""
    here = told(*(step(9, 12, by=0.1, name=foreign(f"m{at}.Read"), touched=None) for at in range(3)))
    [twin] = told(step(10, 12, by=0.1, name=foreign("m0.Read", "b200"), touched=None))
    unknown = Cause("unknown cause", "")

    def causes(changes, measured, families=("m0.Read", "m2.Read")):
        levels = {("b200", family): (measured[2], measured[-3]) for family in families}
        found = group([replace(one, cause=unknown) for one in changes], COMMITS, levels)
        return [(one.cause.kind, doubted(one)) for one in found if (one.family, one.machine) == ("m0.Read", "h200")]

    assert causes(here, COMMITS) == [("machine", True)]
    recovered = [here[0], *(replace(one, left=0.0) for one in here[1:])]
    assert causes(recovered, COMMITS) == [("machine", True)], "the others have recovered since"
    assert causes(here, COMMITS, ("m1.Read", "m2.Read")) == [("machine", True)], "it measures most of what moved"
    certain = [("unknown cause", False)]
    assert causes([*here, twin], COMMITS) == certain, "the other machine shows it"
    assert causes(here, COMMITS[:14]) == causes(here, COMMITS[7:]) == certain, "it did not measure both levels"
    assert causes(here, COMMITS, ("m0.Read", "m9.Read")) == certain, "it measures other benchmarks"
    assert causes(here[:2], COMMITS) == certain, "two modules are few"


@pytest.mark.parametrize("quantity", ["host", "error"])
def test_a_host_time_and_a_wrong_result_are_stories_of_their_own(quantity):
    assert len(stories(step(10, by=0.3), step(10, name=series(machine="b200", quantity=quantity)))) == 2


def test_each_owner_has_a_story():
    steps = [step(10, by=0.3), step(10, by=0.2, name=series(family="kda"))]
    assert len(stories(*steps, owners=("ada", "bob"))) == 2


@pytest.fixture
def store(tmp_path):
    database = Database(tmp_path / "alerts.sqlite")
    yield AlertStore(database)
    database.close()


def sync(store, machines=MACHINES):
    """Store a step of these machines, the gravest on the first, and a step of another commit."""
    steps = [step(10, by=0.3 / (place + 1), name=series(machine=name)) for place, name in enumerate(machines)]
    other = step(15, name=series(family="kda"))
    store.sync(AnalysisResult(alerts(*steps, other), dict.fromkeys(machines, COMMITS)))


def rows(store, **filters):
    page = store.page(Choice(OPEN, **filters))
    assert page.total == page.slower == len(page.alerts)
    return [(one.alert.family, one.alert.machine, one.state) for one in page.alerts]


def test_a_list_has_one_row_a_story_and_a_filter_shows_the_gravest_of_its_machine(store):
    sync(store)
    assert rows(store) == [("linear", "h200", "new"), ("kda", "h200", "new")]
    assert rows(store, machine="b200") == [("linear", "b200", "new")]
    assert len(store.page(Choice(OPEN), apart=True).alerts) == 4
    [first, *_] = store.page(Choice(OPEN)).alerts
    assert [one.alert.machine for one in store.same_step(first)] == ["b200", "h100"]
    assert [one.alert.machine for one in store.open_on("b200", 5).first] == ["b200"]


def test_acknowledging_and_muting_apply_to_the_story_and_an_ending_to_its_alert(store):
    sync(store)
    [first, other] = store.page(Choice(OPEN)).alerts
    store.act(first.id, Act("ack", "ada", "looking"))
    assert rows(store) == [("kda", "h200", "new"), ("linear", "h200", "acknowledged")]
    mate = store.same_step(first)[0]
    assert store.log(mate.id)[-1].note == f"the same step as alert {first.id}: looking"
    store.act(first.id, Act("resolve", "ada"))
    assert [one.state for one in store.same_step(first)] == ["acknowledged"] * 2
    assert store.alert(other.id).state == "new"


def test_the_verb_says_which_alerts_an_action_applies_to(store, tmp_path, monkeypatch, capsys):
    sync(store)
    [first, other] = store.page(Choice(OPEN)).alerts
    mates = ", ".join(str(one.id) for one in store.same_step(first))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for alert, joined in [(first, f", with {mates} of the same step"), (other, "")]:
        assert run_verb("alerts", "ack", alert.id, "--state", tmp_path / "alerts.sqlite") == 0
        assert capsys.readouterr().out == f"alert {alert.id} is acknowledged{joined}\n"


def test_a_story_has_one_message_also_when_another_machine_joins_later(store):
    to, now = receivers({"LOCKSTEP_NOTIFY": "json://127.0.0.1/hook"}), 0
    sync(store, MACHINES[:2])
    outbox = Outbox(store)
    assert outbox.write_alerts(to, "", now) == 2
    sync(store, ("b300", *MACHINES))
    assert outbox.write_alerts(to, "", now) == 0
    assert sorted(row.title.split(" slower")[0] for row in queued(store, "due")) == ["kda on h200", "linear on h200"]
    assert outbox.write_digest(receivers({"LOCKSTEP_NOTIFY_DIGEST": "json://127.0.0.1/d"}), "", now) == 1
    [body] = [row.body for row in queued(store, "due") if row.alert_id is None]
    assert body.count("- new: ") == 2
