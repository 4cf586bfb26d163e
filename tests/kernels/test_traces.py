"""The kernels are traced without a GPU, and a family depends on its own files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.machine_code.family_files import family_files
from lockstep.suite.discovery import load_suites

ROOT = Path(__file__).parents[2]

#: Traces a family's variants at one case, as lockstep code does with all cases, and prints why each is not traced.
PROGRAM = """
import json
import sys
from pathlib import Path

from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.trace_suites import Tracer
from lockstep.suite.discovery import load_suites


family, case = sys.argv[1:]
suites = load_suites(Path("benchmarks"))
own = [one for one in suites.values() if one.family == family and case in {shape.label for shape in one.cases}]
for suite in own:
    suite.cases = (suite.case(case),)
tracer = Tracer(suites, Path.cwd(), ("kernels",), Target.parse("sm_90"), lambda *_: None)
print(json.dumps([[row.variant, row.unknown] for row in tracer.trace([suite.name for suite in own], {})]))
"""


@pytest.mark.parametrize(
    ("family", "variant", "case"),
    [
        ("norm_linear", "overlapped", "M=1,K=4096,N=2048"),
        ("w4a16", "best", "M=16,K=8192,N=8192,group=128"),
        ("grouped", "best", "B=256,G=12,K=1024,N=3072"),
    ],
)
def test_a_case_is_traced(family, variant, case):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", PROGRAM, family, case]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert {unknown for name, unknown in json.loads(done.stdout) if name == variant} == {""}


@pytest.mark.parametrize("suite", load_suites(ROOT / "benchmarks").values(), ids=lambda suite: suite.name)
def test_a_change_of_another_family_is_no_change_of_this_one(suite):
    files = family_files(ROOT, ("kernels",), suite).files
    families = {Path(name).parts[1] for name in files if name.endswith(".py") and name.count("/") > 1}
    assert families == {"call_plans", "common", suite.family} | ({"linear"} if suite.family == "norm_linear" else set())
