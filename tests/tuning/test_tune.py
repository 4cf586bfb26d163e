"""``lockstep tune`` on a CPU: right candidates only, the fastest wins, and only if it is faster than what is there."""

import json
import signal

import pytest
from busy import skip_if_unsure

from lockstep.record.model import CostEstimate, Estimate, Record
from lockstep.suite.definition import PROTOCOL_VERSION
from lockstep.tuning.tune_case import ratio_of
from tests.project import json_rows, make_project

KERNELS = """
    import functools
    import json
    import time
    from pathlib import Path
    from typing import NamedTuple

    import torch

    TABLES = Path(__file__).with_name("tables")


    class Repeats(NamedTuple):
        times: int


    class SearchSpace(NamedTuple):
        choice: str
        sizes: dict
        configs: tuple


    class Table:
        @functools.cache
        def times(self):
            [path] = TABLES.glob("*.json")
            return json.loads(path.read_text())["times"]

        def note(self):
            return "tuned by hand"

        def applied(self, gpu, name, sizes):
            return Repeats(self.times())

        def save(self, gpu, about, tuned):
            (choice, sizes, config), *kept = tuned
            [path] = TABLES.glob("*.json")
            path.write_text(json.dumps({"times": config.times, "choice": choice, "sizes": sizes, "gpu": gpu, **about}))
            return path


    TABLE = Table()


    def plain(x, weight, *, out=None, config=None):
        times = config.times if config else TABLE.times()
        if times > 99:
            raise NotImplementedError("too many")
        for _ in range(times):
            result = torch.mm(x, weight)
        return torch.mm(x, weight) if times else x @ weight * 1.5


    def twice(x, weight, *, out=None):
        return torch.mm(x, weight, out=out)


    def offer(M, K):
        return SearchSpace("repeats", {"M": 1}, tuple(map(Repeats, (20, 1, 0, 400))))


    VARIANTS = {"plain": plain, "twice": twice}
    CANDIDATES = {"plain": offer}
"""


@pytest.fixture
def project(tmp_path):
    made = make_project(tmp_path / "toy")
    made.write("toy/product.py", KERNELS)
    made.write("toy/tables/cpu.json", '{"times": 30, "by": "hand"}')
    return made


def table(project):
    return json.loads((project.root / "toy/tables/cpu.json").read_text())


def test_an_interrupted_run_shows_what_it_has_and_says_so(project):
    each_case = KERNELS.replace('{"M": 1}', '{"M": M}')
    assert each_case != KERNELS
    project.write("toy/product.py", each_case)
    process = project.popen("tune", "product", "--json")
    shown = ""
    for line in process.stdout:
        shown += line
        if line.startswith("{"):
            process.send_signal(signal.SIGTERM)
            break
    shown += process.communicate(timeout=120)[0]
    assert process.returncode == 130, shown
    assert "interrupted: 1 of 2 cases are missing" in shown


def test_what_is_faster_is_written_and_found_again(project):
    done = project.lockstep("tune", "product", "--json")
    assert done.returncode == 0, done.stdout
    [one] = json_rows(done.stdout)
    if one["ratio"]["low"] <= 1 < one["ratio"]["high"]:
        skip_if_unsure("unsure")
    # Both quick cases have the same sizes: they are tuned once.
    assert (one["choice"], one["case"], one["tried"]) == ("repeats", "M=2,K=1024,N=512", 2)
    assert one["best"] == {"times": 1}
    assert one["won"]
    assert one["ratio"]["low"] > 1
    assert one["best_s"] < one["previous_s"]
    # A CPU has no floor.
    assert one["floor_s"] is None
    assert one["refused"].keys() == {"times=0", "times=400"}
    assert "WrongResult" in one["refused"]["times=0"]
    assert one["refused"]["times=400"] == "too many"
    written = table(project)
    assert (written["times"], written["sizes"], written["protocol"]) == (1, {"M": 1}, PROTOCOL_VERSION)

    again = project.lockstep("tune", "product", "--case", "M=3", "--json", "--dry-run")
    [second] = json_rows(again.stdout)
    # One product in place of thirty. Other work on the machine decides whether a configuration seems to beat itself.
    assert second["previous_s"] < one["previous_s"], "the written configuration is the current one"
    assert second["best"] == {"times": 1}
    assert table(project) == written
    measured = project.lockstep("measure", "product", "--quick", "--json")
    notes = [row["note"] for row in json_rows(measured.stdout)]
    # A busy machine adds a note of its own.
    assert notes
    assert all(note.split("; ")[0] == "tuned by hand" for note in notes)


@pytest.mark.thorough
def test_the_time_behind_a_fixed_kernel_counts_too(project):
    done = project.lockstep("tune", "product", "--behind", "--json")
    assert done.returncode == 0, done.stdout
    [tuned] = json_rows(done.stdout)
    assert tuned["best"] == {"times": 1}
    # One product instead of thirty. A busy machine may widen the intervals beyond 1.
    assert tuned["behind"]["value"] > 1
    assert tuned["ratio"]["value"] > 1
    assert (table(project).get("source") == "lockstep tune --behind") is tuned["won"]


def test_the_ratio_of_two_regimes_is_their_geometric_mean():
    chain, behind = Estimate(1.2, 1.1, 1.3), CostEstimate(0.9, 0.8, 1.0, 5)
    record = Record("s", "v", "c", "cold", "ok", "1", speedup=chain, costs={"behind_speedup": behind})
    assert ratio_of(record, False) == chain
    both = ratio_of(record, True)
    assert (both.value, both.low, both.high) == pytest.approx((1.08**0.5, 0.88**0.5, 1.3**0.5))
    # Without a time behind the kernel there is nothing to compare.
    assert ratio_of(Record("s", "v", "c", "cold", "ok", "1", speedup=chain), True).value == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("product", "--variant", "twice"), "'twice' has no candidates"),
        (("product", "--case", "M=5"), "has no case 'M=5'"),
        (("products",), "did you mean product"),
    ],
)
def test_a_wrong_name_is_told_before_anything_runs(project, arguments, message):
    done = project.lockstep("tune", *arguments)
    assert done.returncode == 4, done.stdout
    assert message in done.stdout
    assert "Traceback" not in done.stdout


def test_the_budget_ends_between_cases(project):
    done = project.lockstep("tune", "product", "--budget", "0")
    assert (done.returncode, "0 s are over: 1 of 1 cases were not started" in done.stdout) == (3, True), done.stdout
    assert table(project)["times"] == 30


def test_a_candidate_that_never_returns_ends_the_run_and_is_named(tmp_path):
    project = make_project(tmp_path / "toy", timeout=10.0)
    project.write(
        "toy/product.py",
        KERNELS.replace("if times > 99:", "if times == 20:\n            time.sleep(1000)\n        if times > 99:"),
    )
    project.write("toy/tables/cpu.json", '{"times": 30, "by": "hand"}')
    process = project.popen("tune", "product", before="import lockstep.commands.tune as verb; verb.LIMIT_S = 0")
    shown, _ = process.communicate(timeout=200)
    assert (process.returncode, "hung for 10 s: times=20 (check)" in shown) == (3, True), shown
