"""The whole chain on a CPU: commits of a tiny project measured through asv, and the verbs beside it."""

import json
import math
import os
import re
import signal
import time
from pathlib import Path

import pytest
from project import BROKEN, KERNELS, SUITE, json_rows, make_project

from lockstep.record.file import read_records

M2, M3, GPU_ONLY = (f"M={rows},K=1024,N=512" for rows in (2, 3, 4096))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "project"


def asv_file(project, commit):
    """asv's result file of a commit: benchmark to {(variant, case, l2): value}."""
    [path] = (project.root / "results").glob(f"*-cpu/{commit[:8]}-lockstep.json")
    stored = json.loads(path.read_text())
    values = {}
    for name, row in stored["results"].items():
        named = dict(zip(stored["result_columns"], row, strict=False))
        keys = [tuple(value.strip("'") for value in key) for key in combinations(named["params"])]
        values[name] = dict(zip(keys, named["result"], strict=True)) if named["result"] else {}
    return values


def combinations(params):
    keys = [()]
    for axis in params:
        keys = [(*key, value) for key in keys for value in axis]
    return keys


def provenance(project, commit):
    """Records of a commit by (suite, variant, case, l2)."""
    [path] = (project.root / "results").glob(f"*-cpu/{commit[:8]}-lockstep.provenance.jsonl")
    told, records = read_records(path)
    assert told.commit == commit
    assert told.clock_state == "cpu"
    assert told.harness.removesuffix("+dirty") == project.git("rev-parse", "HEAD")
    assert {"check", "draw", "capture", "time", "controls", "rest"} <= told.spent_s.keys()
    return {record.key: record for record in records}


def test_broken_kernels_are_told_apart_and_everything_else_is_measured(root):
    # One case, to keep it short: a death costs the start of a worker, the hang its limit.
    project = make_project(root, timeout=10.0)
    project.write("toy/product.py", KERNELS + BROKEN)
    head = project.commit("Break")
    done = project.lockstep("run", "HEAD^!", "--bench", rf"(latency|speedup)\(.*'{M2}', 'warm'")

    assert done.returncode == 2, done.stdout
    reasons = {
        "wrong": r"WrongResult: wrong output 0 is off by 0\.01 of its norm at M=2,K=1024,N=512, accepted is 1e-05",
        "unwritten": r"WrongResult: unwritten output 0 is NaN or infinite in .*",
        "raises": r"RuntimeError: no such thing \(at toy/product\.py:\d+\)",
        "hangs": r"hung for 10 s in its check",
        "killed": r"killed by SIGKILL in its check",
        "dies_while_timed": r"killed by SIGSEGV while (timing|its calls were captured)",
        "hungry": r"RuntimeError: .*can't allocate memory.*",
    }
    for name, reason in reasons.items():
        [line] = re.findall(rf"^ *failed: product {name} {M2} warm: (.*)$", done.stdout, re.MULTILINE)
        assert re.fullmatch(reason, line)
    assert "Traceback" not in done.stdout
    assert re.search(rf"^{head[:8]}: \d+ s: .*time \d+ s \(\d+ %\)", done.stdout, re.MULTILINE)

    values, records = asv_file(project, head), provenance(project, head)
    states = {variant: record.state for (_, variant, _, _), record in records.items()}
    assert states == dict.fromkeys(("plain", "twice", "limited"), "ok") | dict.fromkeys(reasons, "failed") | {
        "elsewhere": "na"
    }
    assert records["product", "elsewhere", M2, "warm"].reason == "needs Blackwell"
    for quantity in ("latency", "speedup"):
        stored = values[f"product.{quantity}"]
        for variant, state in states.items():
            value = stored[variant, M2, "warm"]
            assert {"ok": value and value > 0, "failed": value is None, "na": value != value}[state], (variant, value)
        # What was not asked for is not told to have failed.
        assert all(math.isnan(stored[variant, M3, "warm"]) for variant in states)
    ok = records["product", "twice", M2, "warm"]
    assert ok.speedup.low < ok.speedup.value < ok.speedup.high
    # It does the work twice, but other work on the machine may favour one variant throughout. Both numbers see that.
    plain = records["product", "plain", M2, "warm"]
    assert ok.speedup.value == pytest.approx(plain.latency.value / ok.latency.value, rel=0.5)
    assert 0.1 < ok.latency.value / values["product.latency"]["twice", M2, "warm"] < 10
    assert (ok.epochs >= 4, ok.rounds >= 12, ok.flops, ok.check_error < 1e-5) == (True, True, 2 * 2 * 1024 * 512, True)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_interrupted_it_leaves_valid_files_and_goes_on_where_it_was(root, number):
    project = make_project(root)
    project.write("benchmarks/again.py", SUITE.replace("toy.product", "toy.again"))
    # The check at M=3 does not end, the first time, so that the interruption falls into it.
    waiting = (
        'if x.shape[0] == 3 and os.path.exists(os.environ["HOME"] + "/wait"):\n            time.sleep(1000)\n        '
    )
    slow = KERNELS.replace(
        "    return torch.mm(x, weight, out=out)\n\n\n    def twice",
        f"    {waiting}return torch.mm(x, weight, out=out)\n\n\n    def twice",
    )
    assert slow != KERNELS
    project.write("toy/product.py", slow)
    project.write("toy/again.py", KERNELS)
    head = project.commit("Add another family")
    wait = root.parent / "home" / "wait"
    wait.parent.mkdir(exist_ok=True)
    wait.touch()

    process = project.popen("run", "HEAD^!")
    shown, sent = "", False
    for line in process.stdout:
        shown += line
        # Once: an interrupted line may be written again.
        if f"product {M2} warm: 2 series" in line and not sent:
            second = project.lockstep("run", "HEAD^!")
            process.send_signal(number)
            sent = True
    process.stdout.close()
    assert process.wait(timeout=60) == 130, shown
    # Two runs would disturb each other's times.
    assert (second.returncode, "another run measures on this machine" in second.stdout) == (3, True), second.stdout
    assert "Interrupted: the records are kept; the same command with --skip-existing continues" in shown
    before = provenance(project, head)
    assert not list((project.root / "results").glob(f"*/{head[:8]}-lockstep.json"))  # asv's file ends a commit
    assert before["product", "plain", M2, "warm"].state == "ok"
    assert ("product", "plain", M3, "warm") not in before
    assert before["again", "plain", M3, "warm"].state == "ok"
    assert "Traceback" not in shown, shown

    wait.unlink()
    done = project.lockstep("run", "HEAD^!", "--skip-existing")
    assert done.returncode == 0, done.stdout
    after, last = provenance(project, head), asv_file(project, head)
    # What was done is as it was: not measured again.
    assert {key: after[key] for key in before} == before
    assert after["product", "plain", M3, "warm"].state == "ok"
    assert set(last) == {
        f"{family}.{one}" for family in ("again", "product") for one in ("latency", "speedup", "track_answer")
    }
    assert last["product.latency"]["plain", M3, "warm"] > 0
    # An ordinary asv benchmark ran in the worker.
    assert last["product.track_answer"] == {(): 42}


@pytest.mark.thorough
def test_quick_looks_at_every_commit_and_saves_nothing(root):
    project = make_project(root)
    # As the kernels of another repository are before it hears of Lockstep.
    project.git("reset", "-q", "HEAD^")
    project.write("toy/product.py", KERNELS.split("    VARIANTS = ")[0])
    project.commit("Name no variants")
    project.write("toy/product.py", KERNELS)
    project.commit("Name them")
    done = project.lockstep("run", "ALL", "--quick", "--bench", "latency")
    assert done.returncode == 0, done.stdout
    # The first commit lacks the family, which is no failure; the second has no VARIANTS and takes those of today.
    assert re.findall(f"product {M2} warm: (.) series", done.stdout) == ["2", "2"], done.stdout
    assert done.stdout.count("2 cases not measured: this commit has no toy.product") == 1, done.stdout
    assert "failed" not in done.stdout
    assert list((root / "results").glob("*/*-lockstep*")) == []


OWN = """
    from lockstep import Cost, Suite, grid, variant


    class Own(Suite):
        baseline = "torch"
        cases = quick = grid(M=[2])

        def draw(self, new, M):
            return {"x": new.normal(M, M, dtype="float32")}

        def reference(self, x):
            return x.double() @ x.double()

        def cost(self, M):
            return Cost(2 * M**3, 8 * M**2)

        @variant
        def torch(self, x):
            return x @ x

        @variant
        def ours(self, x):
            from toy.product import plain

            return plain(x, x)
"""


def test_todays_variants_run_over_commits_that_know_nothing_of_them(root):
    project = make_project(root)  # the first commit has no toy.product
    project.write("benchmarks/own.py", OWN)
    done = project.lockstep("run", "ALL", "--bench", "^own")
    assert done.returncode == 0, done.stdout
    first, second = (project.git("rev-parse", commit) for commit in ("HEAD~1", "HEAD"))
    before, after = provenance(project, first), provenance(project, second)
    assert {key[:2]: record.state for key, record in before.items() if key[3] == "warm"} == {
        ("own", "torch"): "ok",
        ("own", "ours"): "na",
    }
    assert before["own", "ours", "M=2", "warm"].reason == (
        "this commit has no such module or name: No module named 'toy.product'"
    )
    assert {record.state for key, record in after.items() if key[3] == "warm"} == {"ok"}
    assert set(asv_file(project, second)) == {"own.latency", "own.speedup"}


def test_other_benchmarks_may_be_called_as_ours_are(root):
    project = make_project(root)
    project.write(
        "benchmarks/own.py",
        """
        class Suite:
            def track_latency(self):
                return 1


        def track_speedup():
            return 2


        def time_latency():
            pass


        def some_latency():
            raise RuntimeError("a helper, no benchmark")
        """,
    )
    project.commit("Add benchmarks of asv's own")
    done = project.lockstep("run", "HEAD^!", "--bench", "own")
    assert done.returncode == 0, done.stdout
    [stored] = [json.loads(path.read_text()) for path in (root / "results").glob("*/*-lockstep.json")]
    assert {name: row[0] for name, row in stored["results"].items() if "track" in name} == {
        "own.Suite.track_latency": [1],
        "own.track_speedup": [2],
    }
    assert set(stored["results"]) == {"own.Suite.track_latency", "own.track_speedup", "own.time_latency"}


def test_unknown_names_are_answered_with_the_known_ones(root):
    project = make_project(root)
    for arguments, code, answer in [
        (["run", "HEAD^!", "--bench", "produkt"], 4, "--bench 'produkt' matches no series; did you mean product?"),
        (["measure", "produkt"], 4, "no family 'produkt'; did you mean product?"),
        (["measure", "product", "--variants", "twcie"], 4, "product has no variant 'twcie'; did you mean twice?"),
        (["measure", "product", "--case", "M=7"], 4, f"suite product has no case 'M=7'; it has\n  {M2}\n  {M3}"),
        (["noise", "produkt"], 4, "no family 'produkt'; did you mean product?"),
        (["noise", "product", "--variants", "twcie"], 4, "product has no variant 'twcie'; did you mean twice?"),
    ]:
        done = project.lockstep(*arguments)
        assert done.returncode == code, done.stdout
        assert answer in done.stdout
        assert "Traceback" not in done.stdout
    project.write("toy/product.py", "VARIANTS = dict()")
    done = project.lockstep("run", "HEAD^!")
    assert done.returncode == 4, done.stdout
    assert "product.py: needs VARIANTS = {'name': function, …}" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_package_imported_at_the_top_of_a_suite_gets_one_answer_with_the_remedy(root):
    project = make_project(root)
    project.write("benchmarks/aids.py", "import toy\n")
    project.write(
        "benchmarks/own.py", OWN.replace("from lockstep", "from benchmarks import aids\n    from lockstep", 1)
    )
    answer = "aids.py imports toy, which comes from each commit: import the package under test inside the functions"
    for words in (["check"], ["run", "HEAD^!"], ["measure", "own"], ["gate"], ["code", "diff", "HEAD"]):
        done = project.lockstep(*words)
        assert (done.returncode, answer in done.stdout) == (4, True), done.stdout
        assert "Traceback" not in done.stdout
    project.write("benchmarks/aids.py", "from tyo.product import plain\n")
    done = project.lockstep("measure", "own")
    assert done.returncode == 4, done.stdout
    assert "No module named 'tyo'; import the package under test inside the functions of a suite" in done.stdout


#: Variants that never return, in each stage but the check, where test_rogues.py has one; appended to KERNELS.
ENDLESS = """
    def when_captured(x, weight, calls=[]):
        calls.append(1)
        while len(calls) > 2:
            time.sleep(1.0)
        return x @ weight


    def while_timed(x, weight, calls=[]):
        calls.append(1)
        while len(calls) > 40:
            time.sleep(1.0)
        return x @ weight


    def ends(x):
        os._exit(0)


    VARIANTS = {
        "plain": plain,
        "when_captured": when_captured,
        "while_timed": while_timed,
        "ends": ends,
        "twice": twice,
    }
"""


@pytest.mark.timeout(600)
def test_measure_names_what_never_returns_and_measures_the_rest(root):
    # Three silences last as long as the limit: one while calls are captured, two while timing, because only a variant
    # that is timed alone is known to hang.
    project = make_project(root, timeout=3.0)
    project.write("toy/product.py", KERNELS + ENDLESS)
    before = "import lockstep.commands.measure as verb; verb.CHECK_S = 0.0"
    process = project.popen("measure", "product", "--case", "M=2", "--quick", "--json", before=before)
    shown, _ = process.communicate(timeout=500)
    assert process.returncode == 2, shown
    rows = {row["variant"]: row for row in json_rows(shown)}
    assert rows["when_captured"]["reason"] == "hung for 3 s while its calls were captured"
    assert re.fullmatch("hung for 3 s while (timing|its calls were captured)", rows["while_timed"]["reason"])
    assert rows["ends"]["reason"] == "ended with exit status 0 in its check"
    healthy = [rows[name] for name in ("plain", "twice")]
    if any(row["rule"] == "hung" for row in healthy) and os.getloadavg()[0] > (os.cpu_count() or 1):
        pytest.skip("too busy to tell: a healthy variant was silent for 3 s")
    assert {row["variant"]: row["state"] for row in rows.values()} == {
        **dict.fromkeys(("plain", "twice"), "ok"),
        **dict.fromkeys(("when_captured", "while_timed", "ends"), "failed"),
    }, shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("number", "options"),
    [pytest.param(signal.SIGINT, (), marks=pytest.mark.thorough), (signal.SIGTERM, ("--json",))],
)
def test_measure_ends_at_once_where_it_is_asked_to(root, tmp_path, number, options):
    project = make_project(root)
    hanging = tmp_path / "hanging"
    text = f"""

    def hangs(x, weight):
        if len(x) == 2:
            return x @ weight
        open({str(hanging)!r}, "w").write(str(os.getpid()))
        while True:
            pass


    VARIANTS = {{"plain": plain, "hangs": hangs}}
    """
    project.write("toy/product.py", KERNELS + text)
    process = project.popen("measure", "product", "--quick", "--case", "M=2", "--case", "M=3", *options)
    wait_until(lambda: hanging.exists() and hanging.read_text())
    asked = time.monotonic()
    process.send_signal(number)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130, shown
    first, *lines = shown.splitlines()
    assert first == "measuring 2 cases of product: importing toy"
    assert sum(M2 in line for line in lines) >= 2, shown  # what was measured stands
    assert re.search(r"interrupted after \d+ s: 1 of 2 cases were measured", shown)
    assert "Traceback" not in shown
    assert time.monotonic() - asked < 30
    wait_until(lambda: not Path(f"/proc/{hanging.read_text()}").exists())


def test_measure_that_measures_nothing_says_so(root):
    project = make_project(root)
    done = project.lockstep("measure", "product", "--case", "M=4096")
    assert done.returncode == 3, done.stdout
    assert "nothing was measured" in done.stdout
    project.write("benchmarks/product.py", SUITE + "\n    if __import__('sys').argv[0].endswith('worker.py'): 1 / 0\n")
    done = project.lockstep("measure", "product", "--case", "M=2")
    assert done.returncode == 3, done.stdout
    assert "the worker does not start: ended with exit status 1 at start" in done.stdout


def test_measure_names_what_the_working_tree_lacks(root):
    project = make_project(root)
    project.write("benchmarks/own.py", OWN.replace("toy.product", "toy.prodcut"))
    done = project.lockstep("measure", "own", "--quick")
    assert done.returncode == 2, done.stdout
    assert "a CPU's times change with whatever else runs" in done.stdout
    assert "failed: the working tree has no such module or name: No module named 'toy.prodcut' (ours;" in done.stdout


def test_the_seed_of_measure_is_of_inputs_places_and_order(root):
    project = make_project(root)
    arguments = ("measure", "product", "--case", "M=2", "--quick", "--json")
    values = [
        [row["check_error"] for row in json_rows(project.lockstep(*arguments, *seed).stdout)]
        for seed in (["--seed", "7"], ["--seed", "7"], ["--seed", "8"])
    ]
    assert values[0] == values[1] != values[2]
    assert project.lockstep(*arguments, "--seed", "-1").returncode == 4


def wait_until(done, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_measure_tells_of_the_working_tree(root):
    project = make_project(root)
    # Not committed: measure looks at the files as they are.
    project.write(
        "toy/product.py", KERNELS.replace('"twice": twice', '"twice": twice, "bad": lambda x, weight: x @ weight + 1')
    )
    done = project.lockstep("measure", "product", "--case", "M=2", "--quick", "--json", "--again")
    assert done.returncode == 2, done.stdout
    rows = {row["variant"]: row for row in json_rows(done.stdout)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "plain": "ok",
        "plain~again": "ok",
        "twice": "ok",
        "twice~again": "ok",
        "bad": "failed",
    }
    assert {row["case"] for row in rows.values()} == {M2}
    # One short look says little of how fast it is; what a whole measurement says is looked at above.
    assert rows["twice"]["speedup"]["low"] <= rows["twice"]["speedup"]["value"] <= rows["twice"]["speedup"]["high"]
    assert rows["plain"]["speedup"]["value"] == 1
    table = project.lockstep("measure", "product", "--case", "M=2", "--quick", "--variants", "bad").stdout
    assert re.search(r"plain +│ M=2,K=1024,N=512 │ warm │ +[\d.]+ │", table)
    assert re.search(r"failed: WrongResult: bad output 0 is off by .* \(bad; M=2,K=1024,N=512 warm\)", table)
    assert "twice" not in table


def test_another_environment_type_says_what_is_needed(root, monkeypatch):
    project = make_project(root)
    repository = project._environment()["PYTHONPATH"]
    monkeypatch.setenv("ASV_PYTHONPATH", f"{repository}:{root}")
    bench = rf"latency\('twice', '{M2}', 'warm'"
    project.lockstep("machine", "--yes", "--machine", "here")
    done = project.lockstep("run", "-E", "existing:same", "--quick", "--machine", "here", "--bench", bench)
    assert done.returncode == 2, done.stdout
    assert 'suites need "environment_type": "lockstep" in asv.conf.json' in done.stdout


def test_a_dry_run_writes_nothing_below_the_results(root):
    """asv writes its table of benchmarks and the facts of the machine in a dry run too."""
    project = make_project(root)
    (root / "results").mkdir()
    table = root / "results/benchmarks.json"
    table.write_text('{"version": 2}')
    done = project.lockstep("run", "HEAD^!", "--quick", "--bench", rf"latency\('plain', '{M2}', 'warm'")
    assert (done.returncode, "plain" in done.stdout) == (0, True), done.stdout
    assert [path for path in (root / "results").rglob("*") if path.is_file()] == [table]
    assert table.read_text() == '{"version": 2}'


def test_git_takes_nothing_of_the_checkout_that_asv_makes(root):
    project = make_project(root)
    project.write(".gitignore", "__pycache__\n")
    done = project.lockstep("run", "HEAD^!", "--dry-run", "--quick", "--bench", rf"latency\('plain', '{M2}', 'warm'")
    assert done.returncode == 0, done.stdout
    assert list((root / ".asv/env").glob("*/project/toy"))
    assert ".asv/env" not in project.git("status", "--porcelain", "-uall")


def test_a_changed_suite_of_the_same_version_is_named(root):
    project = make_project(root)
    one = ("--bench", rf"latency\('plain', '{M2}', 'warm'")
    assert "still" not in project.lockstep("run", "HEAD^!", *one).stdout
    suite = project.root / "benchmarks/product.py"
    suite.write_text(suite.read_text().replace("2 * M * K * N", "3 * M * K * N"))
    warning = (
        rf"suite product: benchmarks/product\.py differs from commit {project.git('rev-parse', 'HEAD')[:8]} in "
        r"Product\.cost, but its version is still 1\. If its numbers cannot be compared any more, raise the version"
    )
    for verb in (
        ("run", "HEAD^!", "--quick", *one),
        ("measure", "product", "--quick", "--case", M2, "--variants", "plain"),
        ("gate", "--quick", "--budget", "1s", "--case", M2, "--plain"),
    ):
        shown = project.lockstep(*verb).stdout
        assert len(re.findall(warning, shown)) == 1, shown
    suite.write_text(suite.read_text().replace('baseline = "plain"', 'baseline = "plain"; version = "2"'))
    done = project.lockstep("measure", "product", "--quick", "--case", M2, "--variants", "plain", "--json")
    assert "still" not in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["version"] == "6.2"
