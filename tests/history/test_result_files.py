"""Result files are read number by number, and nothing that lies in a folder can stop the reading."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from asv_runner.statistics import compute_stats
from trees import COMMIT, DATE, MACHINE, edit, every_row, points_in, read, record, write_measurement


def test_every_number_of_a_record_reaches_its_row(tmp_path):
    write_measurement(tmp_path, [record()])
    results = read(tmp_path)
    assert results.problems == ()
    [row] = every_row(results)
    [run] = results.runs
    assert (run.machine, run.commit, run.date, run.environment) == (MACHINE, COMMIT, DATE, "existing")
    assert row.key.machine == MACHINE
    assert (row.suite, row.variant, row.case, row.l2) == ("linear", "splitk", "M=8,K=4096,N=2048", "cold")
    assert (row.state, row.mde, row.sm_mhz) == ("ok", 0.004, 1500.0)
    assert (row.latency.value, row.latency.low, row.latency.high) == (5e-6, 4.9e-6, 5.2e-6)
    assert (row.speedup.value, row.speedup.low, row.speedup.high) == (1.9, 1.87, 1.92)


def test_rates_follow_from_cost_and_latency(tmp_path):
    write_measurement(tmp_path, [record()])
    [row] = every_row(read(tmp_path))
    assert row.measured("latency").value == pytest.approx(5.0)
    assert row.measured("bandwidth").value == pytest.approx(16.8e6 / 5e-6 / 1e9)
    assert row.measured("compute").value == pytest.approx(2 * 8 * 4096 * 2048 / 5e-6 / 1e12)
    floor = row.measured("floor")
    assert (floor.value, floor.low, floor.high) == pytest.approx((78.4, 100 * 3.92 / 5.2, 80.0))
    assert row.bound == "bandwidth"


def test_a_large_product_is_bound_by_compute(tmp_path):
    write_measurement(tmp_path, [record(flops=2 * 4096.0**3, bytes=3 * 2 * 4096.0**2)])
    assert every_row(read(tmp_path))[0].bound == "compute"


def test_an_op_is_read_from_the_name_of_the_benchmark(tmp_path):
    write_measurement(tmp_path, [record(suite="grouped.mlp_backward")], proof=False)
    [row] = every_row(read(tmp_path))
    assert row.suite == "grouped.mlp_backward"


def test_without_provenance_asvs_numbers_are_shown_and_marked(tmp_path):
    write_measurement(tmp_path, [record(), record(variant="cublas", speedup=None)], proof=False)
    rows = {row.variant: row for row in every_row(read(tmp_path))}
    assert rows["splitk"].state == "bare"
    assert (rows["splitk"].latency.value, rows["splitk"].speedup.value) == (5e-6, 1.9)
    assert (rows["splitk"].latency.low, rows["splitk"].latency.high) == (4.9e-6, 5.2e-6)
    assert rows["splitk"].measured("floor") is None
    assert rows["cublas"].state == "bare"
    assert rows["cublas"].speedup is None


@pytest.mark.parametrize("proof", [True, False])
def test_failed_and_not_supported_are_told_apart(tmp_path, proof):
    failed = record(variant="broken", state="failed", reason="wrong result: off by 0.3", latency=None, speedup=None)
    absent = record(variant="blackwell", state="na", reason="needs sm_100", latency=None, speedup=None)
    write_measurement(tmp_path, [record(), failed, absent], proof=proof)
    rows = {row.variant: row for row in every_row(read(tmp_path))}
    assert rows["broken"].state == "failed"
    assert rows["blackwell"].state == "na"
    if proof:
        assert rows["broken"].reason == "wrong result: off by 0.3"
        assert rows["blackwell"].reason == "needs sm_100"


def test_a_plain_asv_benchmark_keeps_its_name_and_parameters(tmp_path):
    path = write_measurement(tmp_path, [record()], proof=False)
    values = [[1e-6, 2e-6, float("nan"), None], [["100", "200"], ["'d'", "'z'"]], "v"]
    edit(path, lambda data: data.update(results={"blas.Dot.time_dot": values, "blas.time_one": [[3e-6]]}))
    table = {"blas.Dot.time_dot": {"unit": "seconds", "param_names": ["size", "variant"]}, "version": 2}
    (tmp_path / "benchmarks.json").write_text(json.dumps(table))
    results = read(tmp_path)
    assert results.problems == ()
    assert [(row.suite, row.variant, row.case, row.state) for row in every_row(results)] == [
        ("blas.Dot.time_dot", "d", "size=100", "bare"),
        ("blas.Dot.time_dot", "z", "size=100", "bare"),
        ("blas.Dot.time_dot", "d", "size=200", "na"),
        ("blas.Dot.time_dot", "z", "size=200", "failed"),
        ("blas.time_one", "", "", "bare"),
    ]


def test_bytes_are_never_shown_as_seconds(tmp_path):
    path = write_measurement(tmp_path, [record()], proof=False)
    edit(path, lambda data: data.update(results={"a.peakmem_x": [[1e6]], "a.count": [[7]]}))
    (tmp_path / "benchmarks.json").write_text(json.dumps({"a.count": {"unit": "items", "param_names": []}}))
    results = read(tmp_path)
    assert {(row.suite, row.unit) for row in every_row(results)} == {("a.peakmem_x", "MB"), ("a.count", "items")}
    assert {one.benchmark: [point.value for point in points_in(results, one)] for one in results.series()} == {
        "a.peakmem_x": [1e6],
        "a.count": [7.0],
    }
    assert {name: one.unit for name, one in results.benchmarks.items()} == {"a.peakmem_x": "bytes", "a.count": "items"}


def test_provenance_of_another_ruler_does_not_vouch_for_a_number(tmp_path):
    path = write_measurement(tmp_path, [record(), record(variant="cublas")])
    edit(path, lambda data: [row.__setitem__(2, "ruler2") for row in data["results"].values()])
    results = read(tmp_path)
    assert [row.state for row in every_row(results)] == ["bare", "bare"]
    assert "another benchmark version" in results.problems[0].what
    assert "1 more" in results.problems[0].what


def text(content):
    return lambda path: path.write_text(content)


def change(**entries):
    return lambda path: edit(path, lambda data: data.update(entries))


def column(index, value):
    return lambda path: edit(path, lambda data: data["results"]["linear.latency"].__setitem__(index, value))


BROKEN_RESULTS = {
    "empty": text(""),
    "truncated": lambda path: path.write_text(path.read_text()[:-40]),
    "html": text("<html><script>alert(1)</script></html>"),
    "not utf-8": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "a list": text("[1, 2]"),
    "deep": text("[" * 100_000),
    "endless number": text('{"version": ' + "9" * 10_000 + "}"),
    "version 3": change(version=3),
    "version is true": change(version=True),
    "hash with a path": change(commit_hash="../../../../etc/passwd"),
    "hash is null": change(commit_hash=None),
    "no machine": change(params={"cpu": "a processor"}),
    "params is a list": change(params=[]),
    "results is a list": change(results=[]),
    "columns is text": change(result_columns="result"),
}

BROKEN_BENCHMARKS = {
    "a row is text": lambda path: edit(path, lambda data: data["results"].update({"linear.latency": "fast"})),
    "values is a number": column(0, 5),
    "an interval is a number": column(5, 1.0),
    "params is text": column(1, "M"),
    "params holds numbers": column(1, [1, 2, 3]),
    "a bomb": lambda path: edit(
        path, lambda data: data["results"].update({"linear.latency": [None, [["1"] * 1000] * 9, "v"]})
    ),
}


@pytest.mark.parametrize("breaking", BROKEN_RESULTS.values(), ids=BROKEN_RESULTS)
def test_a_broken_result_is_named_and_the_others_are_read(tmp_path, breaking):
    write_measurement(tmp_path, [record()], machine="other")
    breaking(write_measurement(tmp_path, [record()]))
    results = read(tmp_path)
    assert list(results.machines) == ["other"]
    assert {problem.path for problem in results.problems} == {f"{MACHINE}/{COMMIT[:8]}-existing.json"}
    json.dumps([problem.what for problem in results.problems], ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize("breaking", BROKEN_BENCHMARKS.values(), ids=BROKEN_BENCHMARKS)
def test_a_broken_benchmark_is_named_and_the_others_are_read(tmp_path, breaking):
    breaking(write_measurement(tmp_path, [record()], proof=False))
    results = read(tmp_path)
    assert [row.speedup.value for row in every_row(results)] == [1.9]
    assert [row.latency for row in every_row(results)] == [None]
    [problem] = results.problems
    assert "linear.latency" in problem.what
    assert problem.weight == "part"
    assert "linear.latency" not in problem.kind


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "-1.0", "0", '"5"', "true", "9" * 400, "1e300", "1e-300", "[]"]
)
def test_what_is_not_a_positive_number_is_no_latency(tmp_path, number):
    path = write_measurement(tmp_path, [record()], proof=False)
    path.write_text(path.read_text().replace("[[5e-06]", f"[[{number}]"))
    [row] = every_row(read(tmp_path))
    assert row.latency is None
    assert row.state == ("na" if number == "NaN" else "failed")


@pytest.mark.parametrize("low", [float("-inf"), None, "x", 6e-6])
def test_an_interval_that_is_none_is_dropped(tmp_path, low):
    column(5, [low])(write_measurement(tmp_path, [record()], proof=False))
    [row] = every_row(read(tmp_path))
    assert (row.latency.value, row.latency.low, row.latency.high) == (5e-6, None, None)


@pytest.mark.parametrize(
    ("samples", "shown"),
    [
        ([1, 2, 3, 6, 9], False),
        ([1.0, 1.1, 1.2, 1.3, 1.4], True),
        ([0, 0, 1, 5, 9], False),
        ([0] * 9 + [1] * 11, True),
        ([-0.2, -0.1, 0.1, 0.3, 0.4], True),
        ([-0.4, -0.3, -0.1, 0.1, 0.2], True),
    ],
)
def test_no_interval_reaches_where_a_quarter_of_the_samples_shows_no_number(tmp_path, samples, shown):
    """asv's interval of few samples is symmetric: times of 1, 2, 3, 6 and 9 s give −1.58 … 9.98 s."""
    path = write_measurement(tmp_path, [record()], proof=False)
    value, stats = compute_stats(samples, 1)
    named = ("ci_99_a", "ci_99_b", "q_25", "q_75")
    columns = ["result", "params", *(f"stats_{name}" for name in named)]
    row = [[value], [], *([stats[name]] for name in named)]
    edit(path, lambda data: data.update(result_columns=columns, results={"sorting.quantity": row}))
    [point] = read(tmp_path).at(COMMIT)
    interval = (stats["ci_99_a"], stats["ci_99_b"]) if shown else (None, None)
    assert (point.value, point.low, point.high) == (value, *interval)


def lines(change):
    """Change the lines of the provenance file as parsed JSON."""

    def apply(path):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        change(rows)
        path.write_text("\n".join(map(json.dumps, rows)))

    return apply


BROKEN_PROVENANCE = {
    "empty": text(""),
    "truncated": lambda path: path.write_text(path.read_text()[:-5]),
    "html": text("<html>"),
    "not utf-8": lambda path: path.write_bytes(b"\xff\xfe"),
    "deep": text("[" * 100_000),
    "newer schema": lines(lambda rows: rows[0].update(schema=99)),
    "other commit": lines(lambda rows: rows[0].update(commit="f" * 40)),
    "unknown state": lines(lambda rows: rows[1].update(state="<b>fine</b>")),
    "a variant that is a list": lines(lambda rows: rows[1].update(variant=["a"])),
    "a latency that is text": lines(lambda rows: rows[1]["latency"].update(value="fast")),
    "a latency that is null": lines(lambda rows: rows[1].update(latency=None)),
    "a latency that is NaN": lines(lambda rows: rows[1]["latency"].update(value=float("nan"))),
    "a latency that is a number": lines(lambda rows: rows[1].update(latency=5e-6)),
    "clocks is a number": lines(lambda rows: rows[1].update(clocks=5)),
    "samples of text": lines(lambda rows: rows[1].update(latency_samples=["x"])),
}


@pytest.mark.parametrize("breaking", BROKEN_PROVENANCE.values(), ids=BROKEN_PROVENANCE)
def test_broken_provenance_leaves_asvs_number(tmp_path, breaking):
    path = write_measurement(tmp_path, [record()])
    beside = path.with_name(path.name.replace(".json", ".provenance.jsonl"))
    breaking(beside)
    results = read(tmp_path)
    [row] = every_row(results)
    assert (row.state, row.latency.value) == ("bare", 5e-6)
    [problem] = results.problems
    assert problem.path == f"{MACHINE}/{beside.name}"
    assert str(tmp_path) not in problem.what


def test_what_is_wrong_with_a_record_is_told_by_line_and_field_and_the_others_are_read(tmp_path):
    variants = ("best", "torch", "cublas", "triton")
    path = write_measurement(tmp_path, [record(variant=variant, work=variant) for variant in variants])
    beside = path.with_name(path.name.replace(".json", ".provenance.jsonl"))
    head, common, *own = beside.read_text().splitlines()
    odd = {"bytes": -5, "floor_s": 1e300, "mde": 1e-300, "started_at": "3"}
    own = [json.dumps(json.loads(own[0]) | odd), json.dumps(json.loads(own[1]) | {"note": 7}), own[2][:-9], own[3]]
    beside.write_text("\n".join([head, common, *own[:2], common, own[3], own[2]]))
    results = read(tmp_path)
    assert {problem.what.partition(":")[0] for problem in results.problems} == {"line 4", "line 7"}
    assert "line 4: note: Input should be a valid string" in [problem.what for problem in results.problems]
    rows = {row.variant: row for row in every_row(results)}
    assert [rows[variant].state for variant in variants] == ["ok", "bare", "bare", "ok"]
    row = rows["best"]
    assert (row.bytes, row.floor_s, row.mde, row.latency.value) == (0.0, None, None, 5e-6)
    # After a line that is not JSON, it is not known which fields records share.
    beside.write_text("\n".join([head, common[:-9], *own]))
    rows = {row.variant: row for row in every_row(read(tmp_path))}
    assert [rows[variant].state for variant in variants] == ["bare"] * 4


def test_links_pipes_and_strays_are_named(tmp_path):
    root = tmp_path / "results"
    path = write_measurement(root, [record()])
    elsewhere = write_measurement(tmp_path / "elsewhere", [record()], commit="a" * 40, proof=False)
    (path.parent / elsewhere.name).symlink_to(elsewhere)
    os.mkfifo(path.parent / "bbbbbbbb-existing.json")
    (path.parent / "cccccccc-existing.provenance.jsonl").write_text("{}")
    (root / "linked").symlink_to(tmp_path)
    results = read(root)
    assert len(every_row(results)) == 1
    assert {problem.path.removeprefix(f"{MACHINE}/") for problem in results.problems} == {
        "aaaaaaaa-existing.json",
        "bbbbbbbb-existing.json",
        "cccccccc-existing.provenance.jsonl",
        "linked",
    }


def test_without_a_repository_commits_are_ordered_by_date(tmp_path):
    for index, digit in enumerate("cab"):
        write_measurement(tmp_path, [record()], commit=digit * 40, date=DATE + index)
    assert [commit.short[0] for commit in read(tmp_path).commits()] == ["c", "a", "b"]


def test_git_tells_order_and_subjects(tmp_path):
    def git(*arguments, date=""):
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
        names = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *names, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | dates).stdout

    git("init", "-q")
    hashes = []
    # The second commit's clock is behind: its parent still comes first.
    for second, subject in ((50, "Add <b>split-K</b>"), (10, "Tune it"), (90, "")):
        git(
            "commit",
            "-q",
            "--allow-empty",
            "--allow-empty-message",
            "-m",
            subject,
            date=f"{1_790_000_000 + second} +0000",
        )
        hashes.append(git("rev-parse", "HEAD").strip())
    for commit, second in zip(reversed(hashes), (90, 10, 50), strict=True):
        write_measurement(tmp_path / "results", [record()], commit=commit, date=DATE + second * 1000)
    write_measurement(tmp_path / "results", [record()], commit="f" * 40, date=DATE + 70_000)
    commits = read(tmp_path / "results").commits()
    assert [commit.hash for commit in commits] == [hashes[0], hashes[1], "f" * 40, hashes[2]]
    assert [commit.subject for commit in commits] == ["Add <b>split-K</b>", "Tune it", "", ""]


def test_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    write_measurement(tmp_path, [record()])
    listing = os.scandir

    def refuse(folder):
        if Path(folder).name == MACHINE:
            raise PermissionError(13, "Permission denied")
        return listing(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    [problem] = read(tmp_path).problems
    assert (problem.path, problem.what) == (MACHINE, "Permission denied")
