"""A few of the kills of ``tests/bench/kill_everything.py``, of the verbs that take little time."""

import random

import pytest
from killing import VERBS, Server, Tally, kill_once, make_place, run_whole, survivors


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("kills") / "place", commits=6, series=120)


@pytest.mark.parametrize(
    ("name", "kills"), [("ingest", 1), ("alerts list", 1), pytest.param("measure", 1, marks=pytest.mark.thorough)]
)
def test_a_kill_leaves_nothing_behind_and_the_next_run_works(place, name, kills):
    tally, draw = Tally(), random.Random(name)
    seconds, trouble = run_whole(place, VERBS[name])
    assert not trouble
    for _ in range(kills):
        kill_once(place, VERBS[name], seconds, draw, tally)
    assert tally.wrong == []
    assert run_whole(place, VERBS[name])[1] == ""


def test_a_killed_dashboard_leaves_nothing_behind(place):
    server = Server(place)
    server.get("/healthz")
    server.process.kill()
    server.process.wait()
    assert survivors(server.token) == {}
