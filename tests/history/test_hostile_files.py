"""Whatever lies in a results folder: a line for what is wrong, and the rest is served."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trees import COMMIT, DATE, MACHINE, newest_points, open_store, points_in, record, write_measurement

from lockstep.history import asv_file
from lockstep.history.store import Store

HOSTILE = '<img src=x onerror="alert(1)">'

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-(10**400), 10**400),
    st.sampled_from([0, -1, 1e308, 5e-324, 2**63, 2**64]),
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from([HOSTILE, "../../etc/passwd", "\x1b[2J", "a\nb", "\ud800", "x" * 5000, "'", "'\\ud800'", "NaN"]),
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def places(value, path=()):
    """Every path into a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def put(value, path, new):
    if not path:
        return new
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A good machine, and one whose files a test may break."""
    root = tmp_path_factory.mktemp("hostile") / "results"
    write_measurement(root, [record()], machine="good", commit="a" * 40)
    path = write_measurement(root, [record(), record(variant="cublas")])
    beside = path.with_name(path.name.replace(".json", ".provenance.jsonl"))
    return open_store(root), path, json.loads(path.read_text()), beside, beside.read_text().splitlines()


def look(store):
    """Everything that pages and alerts would ask for."""
    results = store.current()
    assert [point.value for point in results.at("a" * 40, "good")] == [5e-6, 1.9]
    for problem in results.problems:
        assert problem.what
        assert f"{problem.path}{problem.what}".isprintable()
        assert str(store.root) not in problem.what
    for machine in results.machines:
        newest_points(results, machine)
    points = points_in(results, *results.series())
    assert sum(map(len, results.trends())) == len(points)
    for point in points:
        assert point.value is None or point.value == point.value
        assert point.series.text.isprintable()
    json.dumps([[point.series.text, point.reason, point.note, point.value] for point in points], allow_nan=False)
    return results


FUZZ = settings(max_examples=15, suppress_health_check=list(HealthCheck))


@FUZZ
@given(st.data())
def test_any_value_anywhere_in_asvs_file(folder, data):
    store, path, content, beside, lines = folder
    beside.write_text("\n".join(lines))
    broken = put(content, data.draw(st.sampled_from(list(places(content)))), data.draw(ANYTHING))
    path.write_text(json.dumps(broken), encoding="utf-8", errors="surrogatepass")
    look(store)


@FUZZ
@given(st.data())
def test_any_value_anywhere_in_the_provenance(folder, data):
    store, path, content, beside, lines = folder
    path.write_text(json.dumps(content))
    number = data.draw(st.integers(0, len(lines) - 1))
    row = json.loads(lines[number])
    broken = put(row, data.draw(st.sampled_from(list(places(row)))), data.draw(ANYTHING))
    beside.write_text("\n".join([*lines[:number], json.dumps(broken), *lines[number + 1 :]]))
    look(store)


@FUZZ
@given(st.integers(0, 3000), st.integers(0, 200), st.binary(max_size=50), st.booleans())
def test_any_bytes_anywhere(folder, start, length, new, ours):
    store, path, content, beside, lines = folder
    path.write_text(json.dumps(content))
    beside.write_text("\n".join(lines))
    broken = beside if ours else path
    before = broken.read_bytes()
    broken.write_bytes(before[:start] + new + before[start + length :])
    look(store)


def test_a_million_parameters_are_one_problem(tmp_path, monkeypatch):
    monkeypatch.setattr(asv_file, "MOST_POINTS", 2000)
    path = write_measurement(tmp_path, [record()], proof=False)
    data = json.loads(path.read_text())
    axis = [str(number) for number in range(1000)]
    data["results"]["a.time_all"] = [None, [axis, axis]]
    data["results"]["a.time_one"] = [[1.0], []]
    # Each is small enough, together they are not.
    data["results"] |= {f"b.time_{number}": [None, [axis]] for number in range(3)}
    path.write_text(json.dumps(data))
    results = open_store(tmp_path).current()
    assert [problem.what for problem in results.problems] == [
        "in benchmark 'a.time_all', the parameters have 1000000 combinations, over the limit of "
        f"{asv_file.MOST_SERIES}",
        "in benchmark 'b.time_1', the numbers exceed the limit of 2000 for one file and are left out",
        "in benchmark 'b.time_2', the numbers exceed the limit of 2000 for one file and are left out",
    ]
    assert len(results.series(benchmark="a.time_one")) == 1


@pytest.mark.parametrize("name", [HOSTILE, "..", "a b", "é", "#?&"])
def test_a_name_is_only_a_name(tmp_path, name):
    machine = name.replace("/", "") if name != ".." else "...."
    write_measurement(tmp_path / "results", [record(variant=name, note=HOSTILE)], machine=machine)
    results = open_store(tmp_path / "results").current()
    assert results.problems == ()
    assert list(results.machines) == [machine]
    assert {one.axis("variant") for one in results.series()} == {name}
    assert {path.name for path in tmp_path.iterdir()} == {"results", "results-cache"}


def test_long_and_unprintable_values_are_cut_and_told_apart(tmp_path):
    path = write_measurement(tmp_path, [record()], proof=False)
    data = json.loads(path.read_text())
    long = ["'" + "x" * 400 + f"{end}'" for end in "ab"]
    data["results"] = {"a.time_it": [[1.0, 2.0, 3.0], [[*long, "array([1,\n 2])"]]]}
    path.write_text(json.dumps(data))
    results = open_store(tmp_path).current()
    assert results.problems == ()
    values = [one.axis("param1") for one in results.series()]
    assert len(set(values)) == 3
    assert all(len(value) <= 300 and value.isprintable() for value in values)


def test_a_value_that_is_text_of_escapes_stays_escaped(tmp_path):
    path = write_measurement(tmp_path, [record()], proof=False)
    data = json.loads(path.read_text())
    data["results"] = {"a.time_it": [[1.0], [["'\\x1b[31m'"]]]}
    path.write_text(json.dumps(data))
    [series] = open_store(tmp_path).current().series()
    assert series.axis("param1") == "'\\x1b[31m'"


def test_a_bomb_of_empty_lists_is_too_large(tmp_path):
    path = write_measurement(tmp_path, [record()], proof=False)
    path.write_text("[" + "[]," * (12 * 2**20) + "[]]")
    [problem] = open_store(tmp_path).current().problems
    assert "is larger than 32 MiB" in problem.what


def test_names_of_files_that_are_no_text_are_named(tmp_path):
    write_measurement(tmp_path, [record()])
    (tmp_path / MACHINE / "dead\nbeef.json").write_text("{}")
    (tmp_path / MACHINE / b"\xff\xfe.json".decode("utf-8", "surrogateescape")).write_text("{}")
    results = open_store(tmp_path).current()
    assert len(results.problems) == 2
    assert all(f"{problem.path}{problem.what}".isprintable() for problem in results.problems)
    assert results.at(COMMIT)


def test_old_files_that_asv_cannot_convert_say_what_to_do(tmp_path):
    path = write_measurement(tmp_path, [record()], date=DATE, proof=False)
    path.write_text('{"version": 1, "results": {}}')
    [problem] = Store.open(tmp_path, cache=tmp_path.parent / "old-cache").current().problems
    assert "asv update" in problem.what


def test_texts_and_numbers_that_the_cache_cannot_hold(tmp_path):
    path = write_measurement(tmp_path / "results", [record()])
    beside = path.with_name(path.name.replace(".json", ".provenance.jsonl"))
    head, *lines = beside.read_text().splitlines()
    broken = json.loads(head) | {"protocol": 10**400, "host": {"\0": "\x1b"}, "controls": {"\0": {"rate": 1e300}}}
    beside.write_text("\n".join([json.dumps(broken), *lines]))
    folder = tmp_path / "results" / b"\xff".decode("utf-8", "surrogateescape")
    folder.mkdir()
    (folder / "benchmarks.json").write_text("{}")
    (folder / "machine.json").write_text("{}")
    for _ in range(2):  # the cache is written, and read by another process
        results = Store.open(tmp_path / "results", cache=tmp_path / "cache").current()
        assert results.at(COMMIT)[0].run.host == {"\0": "\x1b"}
