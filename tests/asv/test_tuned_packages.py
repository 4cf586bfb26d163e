"""A package whose kernels tune themselves, on a CPU with Triton's interpreter: a number, a history, a verdict."""

import json
import re

import pytest
from project import TUNED_PACKAGE, json_rows, make_project

from lockstep.record.file import read_records

SUITE = """
    from lockstep import Cost, Suite, grid, variant


    class Double(Suite):
        baseline = "eager"
        quick = cases = grid(N=1024)

        def draw(self, new, N):
            return {"x": new.normal(N, dtype="float32")}

        def reference(self, x):
            return 2 * x.double()

        def cost(self, N):
            return Cost(N, 8 * N)

        @variant
        def eager(self, x):
            return 2 * x

        @variant
        def tuned(self, x):
            from toy.double import double

            return double(x)
"""


@pytest.fixture
def project(tmp_path):
    project = make_project(tmp_path / "project")
    project.write("toy/double.py", TUNED_PACKAGE)
    project.write("benchmarks/double.py", SUITE)
    (project.root / "benchmarks/product.py").unlink()
    project.commit("Tune a kernel")
    return project


def run(project, *arguments):
    started = project.popen(*arguments, TRITON_INTERPRET="1", TRITON_PRINT_AUTOTUNING="1")
    out, _ = started.communicate(timeout=200)
    return started.returncode, out


def chosen(out):
    """What the tuned variant's record says of its kernel."""
    return {record["variant"]: record["chosen"] for record in json_rows(out)}


def test_all_runs_take_one_choice(project):
    file = project.root / "results/tuned.choices"
    status, out = run(project, "measure", "double", "--quick", "--json")
    assert status == 0, out
    first = chosen(out)
    assert first == {"eager": {}, "tuned": {"_double": first["tuned"]["_double"]}}
    assert re.fullmatch(r"BLOCK (16|64|256)", first["tuned"]["_double"])
    assert "tuning _double: 3 configurations" in out

    # What was stored is taken, also where it would not be chosen, and by a history as well.
    [stored] = json.loads(file.read_text())["choices"]
    other = "BLOCK 16" if stored["chosen"].startswith("BLOCK 64") else "BLOCK 64"
    file.write_text(re.sub(r'"chosen": "BLOCK \d+', f'"chosen": "{other}', file.read_text()))
    status, out = run(project, "run", "HEAD^!")
    assert status == 0, out
    assert "tuning _double" not in out
    [path] = (project.root / "results").glob("*-cpu/*.provenance.jsonl")
    [record] = [record for record in read_records(path)[1] if (record.variant, record.state) == ("tuned", "ok")]
    assert record.chosen == {"_double": other}


def test_the_gate_says_what_heads_list_lost(project):
    run(project, "measure", "double", "--quick")
    [stored] = json.loads((project.root / "results/tuned.choices").read_text())["choices"]
    size = int(re.match(r"BLOCK (\d+)", stored["chosen"])[1])
    rest = tuple({16, 64, 256} - {size})
    project.write("toy/double.py", TUNED_PACKAGE.replace("(16, 64, 256)", str(rest)))
    _, out = run(project, "gate", "--quick", "--json", "gate.json", "--min-effect", "95%")
    cases = json.loads((project.root / "gate.json").read_text())["cases"]
    [sentence] = next(case["code"] for case in cases if case["key"]["variant"] == "tuned")
    told = rf"_double: head's list lost BLOCK {size}; chosen BLOCK {rest[0]}|{rest[1]} instead of BLOCK {size}"
    assert re.fullmatch(told.replace(f"{rest[0]}|{rest[1]}", f"({rest[0]}|{rest[1]})"), sentence), out
