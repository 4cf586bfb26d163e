"""Whatever asv's own loader reads is read here, and every number is the one that asv would show.

Each kind of file was found in a public results tree, named beside it; the files themselves are made here.
"""

import copy
import itertools
import json
import math

import pytest
from asv.results import Results, iter_results
from history import write_foreign
from trees import newest_points, open_store

from lockstep.history import display_names as names

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "89abcdef0123456789abcdef0123456789abcdef"
DATE = 1_700_000_000_000
COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"]
COLUMNS += ["stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples", "profile"]
RESULTS = {
    "sorting.time_sort": [[1.5, 2.5], [["10", "200"]], "v1", DATE + 1000, 3.0, [1.4, 2.4], [1.6, 2.6]],
    "sorting.track_size": [[7], [], "v1", DATE + 2000],
}


def file(**changes):
    """The content of a result file as asv 0.6 writes it."""
    base = {
        "version": 2,
        "commit_hash": COMMIT,
        "env_name": "virtualenv-py3.12",
        "date": DATE,
        "params": {"machine": "runner", "cpu": "a processor", "python": "3.12"},
        "python": "3.12",
        "requirements": {},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": RESULTS,
        "durations": {},
    }
    return copy.deepcopy(base | changes)


def with_results(**changes):
    return file(results=RESULTS | {f"sorting.{name}": value for name, value in changes.items()})


def put(root, path, content, machine="runner"):
    where = root / path
    where.parent.mkdir(parents=True, exist_ok=True)
    if machine is not None:
        (where.parent / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}))
    where.write_text(content if isinstance(content, str) else json.dumps(content))
    return where


USUAL = "runner/01234567-virtualenv-py3.12.json"

#: Where the file lies, its content, the machine that machine.json names, and how many notes it gets.
KINDS = {
    # numpy and scipy (pv/numpy-bench, pv/scipy-bench), django/django-asv, OpenMathLib/BLAS-Benchmarks
    "as asv writes it": (USUAL, file(), "runner", 0),
    # newton-physics/newton-asv: a nightly job puts the time in front, and once more when it runs again
    "time in front of the commit": ("runner/1763519380_01234567-virtualenv-py3.12.json", file(), "runner", 1),
    "two times in front": ("runner/1763616282_1763519380_01234567-virtualenv-py3.12.json", file(), "runner", 1),
    "environment in front of the commit": ("runner/virtualenv-py3.12-01234567.json", file(), "runner", 1),
    # newton-physics/newton-asv: folders renamed after the hardware, machine.json and params left alone
    "renamed folder": ("host (NVIDIA GB10)/01234567-virtualenv-py3.12.json", file(), "runner", 1),
    "a folder in a folder": ("group/runner/01234567-virtualenv-py3.12.json", file(), "runner", 0),
    # astropy/photutils-benchmarks: numbers and null among the machine's strings
    "numbers and null in params": (
        USUAL,
        file(params={"machine": "runner", "num_cpu": 8, "numpy": None, "ram": 17179869184}),
        "runner",
        0,
    ),
    "requirements are a list": (USUAL, file(requirements=["numpy"]), "runner", 0),
    "python and environment are null": (USUAL, file(python=None, env_name=None, env_vars=None), "runner", 0),
    "a long environment": (
        USUAL,
        file(env_name="conda-py3.8-" + "-".join(f"package{n}1.0" for n in range(40))),
        "runner",
        0,
    ),
    # astropy/astropy-benchmarks and others from before asv 0.4 have no env_vars and no durations
    "without env_vars": (USUAL, {k: v for k, v in file().items() if k not in ("env_vars", "durations")}, "runner", 0),
    # `asv run --set-commit-hash` takes any text
    "a short hash": ("runner/0123456-virtualenv-py3.12.json", file(commit_hash="0123456"), "runner", 1),
    "a tag for a hash": ("runner/v1.2.3-virtualenv-py3.12.json", file(commit_hash="v1.2.3"), "runner", 1),
    "a date that is null": (USUAL, file(date=None), "runner", 1),
    "a date with a fraction": (USUAL, file(date=DATE + 0.5), "runner", 0),
    "a date far away": (USUAL, file(date=10**30), "runner", 1),
    "null for a result": (USUAL, with_results(time_sort=[None, [["10", "200"]], "v1"]), "runner", 0),
    "null among the results": (USUAL, with_results(time_sort=[[None, 2.5], [["10", "200"]], "v1"]), "runner", 0),
    "NaN and infinity": (USUAL, with_results(time_sort=[[math.nan, math.inf], [["10", "200"]]]), "runner", 0),
    "infinite interval": (
        USUAL,
        with_results(time_sort=[[1.5], [], "v1", DATE, 3.0, [-math.inf], [math.inf]]),
        "runner",
        0,
    ),
    "columns cut off": (USUAL, with_results(time_sort=[[1.5], []]), "runner", 0),
    "null columns": (USUAL, with_results(time_sort=[[1.5], [], *[None] * 11]), "runner", 0),
    "more values than columns": (USUAL, with_results(time_sort=[[1.5], [], *[None] * 14]), "runner", 0),
    "fewer values than parameters": (USUAL, with_results(time_sort=[[1.5], [["10", "200"]]]), "runner", 1),
    "more values than parameters": (USUAL, with_results(time_sort=[[1.5, 2.5, 3.5], [["10", "200"]]]), "runner", 1),
    "a value of a parameter twice": (USUAL, with_results(time_sort=[[1.5, 2.5], [["f", "f"]]]), "runner", 1),
    "parameters that are numbers": (USUAL, with_results(time_sort=[[1.5, 2.5], [[10, 200]]]), "runner", 0),
    "a name over two lines": (USUAL, file(results={"a.time_\nb": [[1.5], []]}), "runner", 0),
    "no results": (USUAL, file(results={}), "runner", 0),
}


@pytest.mark.parametrize(("path", "content", "machine", "notes"), KINDS.values(), ids=KINDS)
def test_every_number_that_asv_reads_is_read(tmp_path, path, content, machine, notes):
    root = tmp_path / "results"
    put(root, path, content, machine)
    results = open_store(root).current()
    assert (len(results.notes), results.problems) == (notes, ())
    [asv] = iter_results(str(root))
    assert {(run.commit, run.named) for run in results.runs} <= {(asv.commit_hash, "runner")}
    points = {(point.series.benchmark, point.series.axes): point for point in results.at(asv.commit_hash)}
    for name in asv.get_all_result_keys():
        params = asv.get_result_params(name) or []
        values = asv.get_result_value(name, params)
        shown = name.replace("\n", "\\n")
        wanted = {}
        for combination, value in zip(itertools.product(*params), values, strict=True):
            texts = [one if isinstance(one, str) else json.dumps(one) for one in combination]
            wanted[names.axes(results.benchmarks[shown], texts)] = value
        for axes, value in wanted.items():
            point = points.pop((shown, axes))
            usable = isinstance(value, int | float) and math.isfinite(value)
            assert point.value == (value if usable else None)
    assert points == {}


def test_old_files_are_read_as_asv_updates_them(tmp_path):
    # conda/conda-benchmarks, astropy/photutils-benchmarks, emsig/emg3d-bench, GridTools/gt4py-benchmarks: version 1
    root = tmp_path / "results"
    old = {
        "version": 1,
        "commit_hash": COMMIT,
        "date": DATE,
        "params": {"machine": "runner"},
        "python": "3.8",
        "requirements": {"numpy": "1.20"},
        "results": {
            "sorting.time_one": 1.5,
            "sorting.time_many": {
                "result": [2.5, None],
                "params": [["10", "200"]],
                "stats": [{"ci_99": [2.4, 2.6], "q_25": 2.45, "q_75": 2.55, "number": 3, "repeat": 10}, None],
            },
        },
        "started_at": {"sorting.time_one": DATE + 1000},
        "benchmark_version": {"sorting.time_one": "1"},
    }
    path = put(root, "runner/01234567-py3.8-numpy1.20.json", old)
    results = open_store(root).current()
    points = {(one.series.benchmark, one.series.text): one for one in results.at(COMMIT)}
    [note] = results.notes
    assert "asv update" in note.what
    assert [(key, one.value, one.low, one.high) for key, one in sorted(points.items())] == [
        (("sorting.time_many", "param1=10"), 2.5, 2.4, 2.6),
        (("sorting.time_many", "param1=200"), None, None, None),
        (("sorting.time_one", ""), 1.5, None, None),
    ]
    assert [run.requirements for run in results.runs] == [{"numpy": "1.20"}]
    Results.update(str(path))
    converted = {(one.series.benchmark, one.series.text): one for one in open_store(root).current().at(COMMIT)}
    assert {key: (one.value, one.low, one.version) for key, one in converted.items()} == {
        key: (one.value, one.low, one.version) for key, one in points.items()
    }


def test_a_file_that_asv_skips_is_read_with_a_note_and_never_mixed(tmp_path):
    # nvperflab/newton-asv: one file of another machine in a folder; newton-asv: folders where all files are
    root = tmp_path / "results"
    put(root, USUAL, file())
    put(root, "runner/89abcdef-virtualenv-py3.12.json", file(commit_hash=OTHER, params={"machine": "elsewhere"}))
    put(root, "renamed/01234567-a.json", file(params={"machine": "one"}), machine="another")
    results = open_store(root).current()
    assert {name: [one.hash for one in results.commits(name)] for name in results.machines} == {
        "renamed": [COMMIT],
        "runner": [COMMIT],
        "runner (elsewhere)": [OTHER],
    }
    assert [(one.path, "asv itself skips" in one.what) for one in results.notes] == [
        ("renamed/01234567-a.json", True),
        ("runner/89abcdef-virtualenv-py3.12.json", True),
    ]


def test_the_folder_of_a_machine_can_be_looked_at_alone(tmp_path):
    put(tmp_path, USUAL, file())
    results = open_store(tmp_path / "runner", cache=tmp_path / "cache").current()
    assert list(results.machines) == ["runner"]
    assert len(results.at(COMMIT)) == 3


def test_a_folder_that_asv_does_not_look_at_holds_no_results(tmp_path):
    root = tmp_path / "results"
    put(root, USUAL, file())
    put(root, "runner/profiles/89abcdef-a.json", file(commit_hash=OTHER), machine=None)
    put(root, "stray.json", "{", machine=None)
    results = open_store(root).current()
    assert (len(results.runs), results.files, results.problems) == (1, 1, ())


def repeats(root, values, **changes):
    """Files of one commit and environment, each with other numbers; their paths."""
    paths = []
    for night, value in enumerate(values):
        measured = [value, [], "v1", DATE + 1000 * night, 3.0]
        measured += [
            [None if one is None else one - 0.1 for one in value],
            [None if one is None else one + 0.2 for one in value],
        ]
        content = file(results={"sorting.time_one": measured}, **changes)
        paths.append(put(root, f"runner/{night}_01234567-env.json", content))
    return paths


def test_repeats_of_a_commit_are_their_mean_as_in_asvs_graphs(tmp_path):
    # newton-physics/newton-asv: 151 commits were measured up to 7 times
    from asv.graph import Graph

    root = tmp_path / "results"
    repeats(root, [[1.0], [2.0], [None], [6.0]])
    put(
        root,
        "runner/89abcdef-env.json",
        file(commit_hash=OTHER, date=DATE + 10, results={"sorting.time_one": [[4.0], []]}),
    )
    graph = Graph("sorting.time_one", {})
    for result in iter_results(str(root)):
        graph.add_data_point(
            [COMMIT, OTHER].index(result.commit_hash), result.get_result_value("sorting.time_one", [])[0]
        )
    results = open_store(root).current()
    [trend] = results.trends()
    assert trend.value.tolist() == [value for _, value, _ in graph.get_data()] == [3.0, 4.0]
    assert (trend.low[0], trend.high[0]) == (pytest.approx(2.9), pytest.approx(3.2))
    [point] = results.at(COMMIT)
    assert (point.value, point.note) == (3.0, "mean of 3 measurements of this commit: 1, 2, 6")
    assert [one.value for one in newest_points(results, "runner")] == [4.0]
    [first, _] = results.runs_of("runner")
    assert first.path == "runner/3_01234567-env.json"
    assert {one.kind for one in results.notes if "several" in one.what} == {
        "the file is one of several measurements of its commit in one environment: pages and alerts show the mean"
    }
    assert results.problems == ()


def test_only_measurements_of_the_newest_benchmark_are_averaged(tmp_path):
    root = tmp_path / "results"
    for night, (value, version) in enumerate([(1.0, "old"), (2.0, "new"), (4.0, "new")]):
        content = file(results={"sorting.time_one": [[value], [], version, DATE + night]})
        put(root, f"runner/{night}_01234567-env.json", content)
    [point] = open_store(root).current().at(COMMIT)
    assert (point.value, point.version) == (3.0, "new")


def test_a_repeat_that_comes_later_changes_the_mean(tmp_path):
    root = tmp_path / "results"
    paths = repeats(root, [[1.0], [2.0]])
    last = paths[1].read_bytes()
    paths[1].unlink()
    store = open_store(root)
    before = store.current()
    assert [one.value for one in before.at(COMMIT)] == [1.0]
    paths[1].write_bytes(last)
    after = store.current()
    assert [one.value for one in after.at(COMMIT)] == [1.5]
    assert before.state("runner") != after.state("runner")
    paths[0].unlink()
    assert [one.value for one in store.current().at(COMMIT)] == [2.0]


def test_a_tree_as_asv_writes_it_has_no_notes(tmp_path):
    write_foreign(tmp_path / "results", "tiny", [COMMIT, OTHER], lambda n: 1e-3)
    results = open_store(tmp_path / "results").current()
    assert (results.problems, results.notes) == ((), ())
