"""Variants that break what measures them: each fails by its rule, and the others are measured."""

import pytest
from project import KERNELS, json_rows, make_project

from lockstep.timing.rules.rule import Rule

ROGUES = """
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
    assert process.returncode == 2, shown
    assert "Traceback" not in shown
    return {row["variant"]: row for row in json_rows(shown)}


@pytest.mark.timeout(600)
def test_each_rogue_is_named_and_the_rest_is_measured(root):
    project = make_project(root, timeout=10.0)
    project.write("toy/product.py", KERNELS + ROGUES)
    rows = measured(project)
    assert {name for name, row in rows.items() if row["state"] == "ok"} == {"plain", "twice"}, rows
    assert {name: row["rule"] for name, row in rows.items() if row["rule"]} == {
        "endures": Rule.HUNG,
    }
    assert "printed more than 64 MiB in its check" in rows["prints"]["reason"]
    assert "wrote to the harness's own pipe in its check" in rows["scribbles"]["reason"]
    assert "KeyboardInterrupt" in rows["interrupts"]["reason"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("line", "reason", "rule"),
    [
        ("raise SystemExit(0)", "toy.product cannot be imported: SystemExit: 0", ""),
        pytest.param("os._exit(0)", "ended with exit status 0 in its import", "", marks=pytest.mark.thorough),
        ("time.sleep(1000)", "hung for 10 s in its import", Rule.HUNG),
    ],
)
def test_an_import_that_does_not_return_fails_its_suite_once(root, line, reason, rule):
    project = make_project(root, timeout=10.0)
    project.write("toy/product.py", f"{KERNELS}\n    {line}\n")
    told = {name: (row["state"], row["reason"], row["rule"]) for name, row in measured(project).items()}
    assert told == dict.fromkeys(("plain", "twice"), ("failed", reason, rule))
