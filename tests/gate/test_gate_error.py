"""Whether a variant's error grew: fp16 sums within the tolerance are found, and the luck of a draw is not blamed."""

import itertools
import json
import math
import random
import textwrap
from dataclasses import replace

import pytest
from project import KERNELS, make_project
from test_gate_determinism import CASE, KEY, TWIN, judge

from lockstep.gate.measuring.compare_errors import DRAWS, compare_errors
from lockstep.gate.model import ERROR, SeriesKey, Verdict
from lockstep.gate.report.report import Report, headline
from lockstep.gate.report.rows import rows

ROWS = replace(KEY, quantity=ERROR)
OTHER = replace(TWIN, quantity=ERROR)

EXACT = "first = 0"

#: Rounds the summands to float16: an error of about 2e-4, within the tolerance of 1e-3.
ROUNDED = "x = x.half().float(); first = 0"

#: Sums in an order of every call's own, with other rounding errors in each.
ANY_ORDER = "CALLS.append(1); first = 97 * len(CALLS)"


@pytest.mark.parametrize(
    ("base", "head", "outcome", "draws"),
    [(EXACT, EXACT, "same", 1), (EXACT, ROUNDED, "slower", DRAWS), (ROUNDED, EXACT, "faster", DRAWS)],
)
def test_a_larger_error_is_found_and_the_other_variant_stays_the_same(
    tmp_path, monkeypatch, base, head, outcome, draws
):
    found = judge(tmp_path, monkeypatch, base, head, [ROWS, OTHER, KEY])
    assert (found[ROWS].outcome, found[ROWS].epochs) == (outcome, draws)
    assert (found[OTHER].outcome, found[OTHER].change.value) == ("same", 0.0)
    assert found[KEY].outcome == "same", "both give the same bits in every call"


def test_a_verdict_has_both_errors_and_cold_and_warm_share_it(tmp_path, monkeypatch):
    found = judge(tmp_path, monkeypatch, EXACT, ROUNDED, [ROWS, replace(ROWS, l2="cold")])
    worse = found[ROWS]
    assert worse.base_s < 1e-6 < 1e-5 < worse.head_s < 1e-3
    assert (worse.label, worse.blocks) == ("larger", True)
    assert worse.of_cost == f"error {worse.base_s:.2e} → {worse.head_s:.2e}"
    assert found[replace(ROWS, l2="cold")] == replace(worse, key=replace(ROWS, l2="cold"))


def test_the_error_of_a_head_that_fails_is_not_judged(tmp_path, monkeypatch):
    failed = judge(tmp_path, monkeypatch, EXACT, "x = x + 1; first = 0", [ROWS])[ROWS]
    assert (failed.outcome, "WrongResult" in failed.reason) == ("failed", True)


def test_a_head_that_is_wrong_on_another_draw_fails(tmp_path, monkeypatch):
    later = judge(tmp_path, monkeypatch, EXACT, "CALLS.append(1); x = x + (len(CALLS) > 1); first = 0", [ROWS])[ROWS]
    assert (later.outcome, later.reason[:42]) == ("failed", "head fails in a further call: WrongResult:")


def test_nobody_is_blamed_when_the_time_is_over():
    assert compare_errors(ROWS, itertools.repeat((1.0, 2.0)), 0.01, deadline=0.0).outcome == "unsure"


def test_an_exact_base_has_a_finite_change():
    verdict = compare_errors(ROWS, itertools.repeat((0.0, 1e-3)), 0.01, deadline=1e12)
    assert verdict.outcome == "slower"
    assert math.isfinite(verdict.change.value)
    assert compare_errors(ROWS, itertools.repeat((0.0, 1e-20)), 0.01, deadline=1e12).outcome == "same"


def test_unchanged_code_is_rarely_blamed_however_its_errors_scatter():
    """2 ** -8 for each direction, if every draw exceeds the smallest change: 7.8 of 2000 verdicts on average."""
    chance = random.Random(7)
    errors = ((math.exp(chance.gauss(0, 1)), math.exp(chance.gauss(0, 1))) for _ in itertools.count())
    wrong = [compare_errors(ROWS, errors, 0.0, deadline=1e12).outcome for _ in range(2000)].count("slower")
    assert 0 < wrong <= 20  # 20 or fewer with a probability of 99.99 %


def test_the_headline_and_a_row_give_both_errors():
    latency = Verdict(SeriesKey("work", "rows", CASE.label, "warm"), "same", unchanged=False)
    verdict = compare_errors(ROWS, itertools.repeat((1e-4, 3e-4)), 0.01, deadline=1e12)
    report = Report("main", "head", 0.01, 0.99, 60.0, 1, {"device": "cuda"}, (latency, verdict))
    assert report.state == "slower"
    assert headline(report).startswith("1 case: error 1.00e-04 → 3.00e-04: work rows")
    assert "found twice" not in headline(report), "one round of draws judges it"
    [row] = rows(report)
    assert (row.cells[0], row.cells[2], row.cells[5:7]) == ("larger", "rows (error)", ("", ""))
    assert "error 1.00e-04 → 3.00e-04" in row.cells[-1]


def test_the_command_finds_it_in_its_own_quantity_alone(tmp_path):
    project = make_project(tmp_path / "project", timeout=20.0)
    old = "    torch.mm(x, weight, out=out)\n    return torch.mm(x, weight, out=out)"
    coarse = textwrap.dedent(KERNELS).replace(old, f"{old}.mul_(1 + 2.0**-18)")
    assert "2.0**-18" in coarse
    project.write("toy/product.py", coarse)
    path = project.root / "gate.json"
    ask = ("gate", "--json", str(path), "--case", "M=2", "--budget", "40s", "--min-effect", "95%")
    done = project.lockstep(*ask, "--costs", "error", "deterministic")
    assert done.returncode == 1, done.stdout
    found = {(one["key"]["variant"], one["key"]["quantity"]): one for one in json.loads(path.read_text())["cases"]}
    assert found["twice", "error"]["outcome"] == "slower"
    assert found["twice", "deterministic"]["outcome"] == "same"
    assert found["twice", "latency"]["outcome"] != "slower"
    assert (found["plain", "error"]["outcome"], found["plain", "error"]["unchanged"]) == ("same", False)
    assert "--costs error" in done.stdout, "the command that judges the case again"
