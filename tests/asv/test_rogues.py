"""Variants that break what measures them: each fails by its rule, and the others are measured."""

import json

import pytest
from project import KERNELS, make_project

from lockstep.timing.rules.rule import Rule

ROGUES = """
    import traceback


    def ticks(*arguments):
        return 0.0


    def stops_the_clock(x, weight, *, out):
        time.perf_counter = ticks
        return plain(x, weight, out=out)


    def later(x, weight, *, out):
        if any(frame.name == "time_rounds" for frame in traceback.extract_stack(limit=12)):
            time.monotonic = ticks
        return plain(x, weight, out=out)


    def prints(x, weight, *, out):
        while True:
            os.write(1, bytes(1 << 16))


    def scribbles(x, weight, *, out):
        for fd in range(3, 20):
            try:
                os.write(fd, b"not an event\\n")
            except OSError:
                pass
        return plain(x, weight, out=out)


    def interrupts(x, weight, *, out):
        raise KeyboardInterrupt


    def endures(x, weight, *, out):
        for number in (1, 2, 15):
            signal.signal(number, signal.SIG_IGN)
        while True:
            try:
                time.sleep(1000)
            except BaseException:
                pass


    VARIANTS = {
        "plain": plain,
        "twice": twice,
        "stops_the_clock": stops_the_clock,
        "later": later,
        "prints": prints,
        "scribbles": scribbles,
        "interrupts": interrupts,
        "endures": endures,
    }
"""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "project"


def measured(project, *arguments, before="import lockstep.commands.measure as verb; verb.CHECK_S = 0.0"):
    process = project.popen("measure", "product", "--case", "M=2", "--quick", "--json", *arguments, before=before)
    shown, _ = process.communicate(timeout=500)
    rows = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert process.returncode == 2, shown
    assert "Traceback" not in shown
    return {row["variant"]: row for row in rows}


@pytest.mark.timeout(600)
def test_each_rogue_is_named_and_the_rest_is_measured(root):
    # What else may be replaced, each in one process: tests/timing/test_trusted.py.
    project = make_project(root, timeout=20.0)
    project.write("toy/product.py", KERNELS + ROGUES)
    rows = measured(project)
    assert {name for name, row in rows.items() if row["state"] == "ok"} == {"plain", "twice"}, rows
    assert {name: row["rule"] for name, row in rows.items() if row["rule"]} == {
        "stops_the_clock": Rule.CHANGED_CLOCK,
        "later": Rule.CHANGED_CLOCK,
        "endures": Rule.HUNG,
    }
    assert "replaced time.perf_counter" in rows["stops_the_clock"]["reason"]
    assert rows["later"]["reason"] == "replaced time.monotonic"
    assert "printed more than 64 MiB in its check" in rows["prints"]["reason"]
    assert "wrote to the harness's own pipe in its check" in rows["scribbles"]["reason"]
    assert "KeyboardInterrupt" in rows["interrupts"]["reason"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("line", "reason", "rule"),
    [
        ("raise SystemExit(0)", "toy.product cannot be imported: SystemExit: 0", ""),
        ("os._exit(0)", "ended with exit status 0 in its import", ""),
        ("time.sleep(1000)", "hung for 20 s in its import", Rule.HUNG),
        ("time.perf_counter = print", "the import of toy.product replaced time.perf_counter", Rule.CHANGED_CLOCK),
    ],
)
def test_an_import_that_does_not_return_fails_its_suite_once(root, line, reason, rule):
    project = make_project(root, timeout=20.0)
    project.write("toy/product.py", f"{KERNELS}\n    {line}\n")
    told = {name: (row["state"], row["reason"], row["rule"]) for name, row in measured(project).items()}
    assert told == dict.fromkeys(("plain", "twice"), ("failed", reason, rule))


ELSEWHERE = """
    import sys


    def only_here(x, weight, *, out):
        return plain(x, weight, out=out) if "lockstep.asv.worker" in sys.orig_argv else out


    VARIANTS = {"plain": plain, "only_here": only_here}
"""


@pytest.mark.timeout(300)
def test_a_judge_in_another_process_has_the_last_word(root):
    project = make_project(root)
    project.write("toy/product.py", KERNELS + ELSEWHERE)
    rows = measured(
        project, "--isolated", before="import lockstep.timing.isolation.trial as trial; trial.MOST_SETS = {'cpu': 4};"
    )
    assert rows["plain"]["state"] == "ok"
    assert "in isolation" in rows["plain"]["note"]
    assert (rows["only_here"]["state"], rows["only_here"]["rule"]) == ("failed", Rule.TIMED_RESULT)
    assert "seen from another process" in rows["only_here"]["reason"]
