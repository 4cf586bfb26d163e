"""Databases that earlier commits wrote open with everything that people did in them."""

import datetime
import sqlite3
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from alerting import postgres
from history import Here, write_history
from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError
from trees import open_store

from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.listing import Choice
from lockstep.alerts.database.schema import METADATA
from lockstep.alerts.database.store import AlertStore
from lockstep.suite.thresholds import Thresholds

DUMPS = Path(__file__).with_name("older_databases")
COMMITS = [f"{number:02x}" * 20 for number in range(1, 31)]
#: When each family changed, counted in commits.
CHANGED = {"linear": 8, "kda": 12, "norm": 16, "grouped": 20, "hgemm": 23, "int4": 24}
TODAY = datetime.date(2026, 11, 26)
STATES = {
    "grouped": ("new", "", None),
    "hgemm": ("resolved", "fixed", None),
    "int4": ("resolved", "recorded", None),
    "kda": ("muted", "", datetime.date(2027, 1, 31)),
    "linear": ("acknowledged", "", None),
    "norm": ("resolved", "intended", None),
}
SAID = {
    ("linear", "ada", "acknowledged", "looking"),
    ("kda", "bob", "muted", "until 2027-01-31: known driver issue"),
    ("norm", "ada", "resolved", "a more precise sum"),
    ("grouped", "mira", "comment", "seen on two machines"),
    ("hgemm", "bob", "resolved", "reverted"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    # Not below pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with postgres(Path(folder) / "pg") as url:
            yield url


@pytest.fixture(params=sorted(path.name for path in DUMPS.glob("*.sql")))
def url(request, tmp_path):
    """The address of a database with the content of a dump."""
    dump = (DUMPS / request.param).read_text()
    if request.param.endswith(".sqlite.sql"):
        path = tmp_path / "alerts.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(dump)
        return str(path)
    server, name = request.getfixturevalue("server"), f"t{time.time_ns()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(url) as connection:
        connection.execute(dump)
    return url


@pytest.fixture
def store(url):
    database = Database(url)
    yield AlertStore(database)
    database.close()


def states(store):
    return {one.alert.family: (one.state, one.ending, one.muted_until) for one in store.alerts() if one.alert.family}


def said(store):
    return {
        (one.alert.family, line.who, line.what, line.note)
        for one in store.alerts()
        for line in store.log(one.id)
        if line.who != "lockstep"
    }


def test_nothing_is_lost(store):
    assert len(store.alerts()) == 12
    assert states(store) == STATES
    assert said(store) == SAID
    with store.database.read() as connection:
        assert connection.scalar(text("SELECT count(*) FROM outbox WHERE state = 'due'")) == 8


def test_the_lists_find_what_the_alerts_hold(store):
    [one] = store.page(Choice(search="M=64 KDA")).alerts
    assert (one.alert.family, one.state) == ("kda", "muted")
    assert store.page(Choice(), "largest").alerts[0].alert.family == "linear"


def layout(database):
    with database.read() as connection:
        found = inspect(connection)
        return {
            name: (
                {(column["name"], str(column["type"]), column["nullable"]) for column in found.get_columns(name)},
                {(index["name"], tuple(index["column_names"])) for index in found.get_indexes(name)},
                {(key["name"], tuple(key["column_names"])) for key in found.get_unique_constraints(name)},
                {(key["name"], key["referred_table"]) for key in found.get_foreign_keys(name)},
            )
            for name in found.get_table_names()
        }


def test_the_layout_is_that_of_a_new_database(store, url, tmp_path, request):
    if url.endswith(".sqlite"):
        new = Database(tmp_path / "new.sqlite")
    else:
        server = request.getfixturevalue("server")
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("CREATE DATABASE fresh")
        new = Database(server.replace("/postgres?", "/fresh?"))
    assert set(layout(new)) == set(METADATA.tables)
    assert layout(store.database) == layout(new)
    new.close()


def test_the_log_still_refuses_changes(store):
    for statement in ("UPDATE alert_event SET who = 'eve'", "DELETE FROM alert_event"):
        with pytest.raises(DBAPIError, match="append-only"), store.database.write() as connection:
            connection.execute(text(statement))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What an analysis finds in the results that the databases are about."""
    results = tmp_path_factory.mktemp("analysed") / "results"
    for suite, at in CHANGED.items():
        factor = 0.9 if suite == "int4" else 1.08
        write_history(
            results,
            f"h200-{suite}",
            COMMITS,
            lambda n, at=at, by=factor: Here(slower=by if n >= at else 1),
            suite=suite,
        )
    return analyse_store(open_store(results), Thresholds(), results)[1]


def test_an_analysis_of_the_same_results_leaves_what_people_did(store, found):
    assert store.sync(found, TODAY).opened == ()
    assert states(store) == STATES
    assert said(store) == SAID


def test_several_processes_may_open_it_at_once(url):
    with ThreadPoolExecutor(4) as pool:
        databases = list(pool.map(Database, [url] * 4))
    assert [states(AlertStore(database)) for database in databases] == [STATES] * 4
    for database in databases:
        database.close()
