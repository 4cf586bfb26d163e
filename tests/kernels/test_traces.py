"""The kernels are traced without a GPU, and a family depends on its own files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.suite.discovery import load_suites
from lockstep.suite.family_files import family_files

ROOT = Path(__file__).parents[2]

#: Traces the variants of families at one case each, as lockstep code does with all cases, and prints why each variant
#: is not traced.
PROGRAM = """
import json
import sys
from pathlib import Path

from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.trace_suites import Tracer
from lockstep.suite.discovery import load_suites


suites = load_suites(Path("benchmarks"))
for family, case in json.loads(sys.argv[1]):
    own = [one for one in suites.values() if one.family == family and case in {shape.label for shape in one.cases}]
    for suite in own:
        suite.cases = (suite.case(case),)
    tracer = Tracer(suites, Path.cwd(), ("kernels",), Target.parse("sm_90"), lambda *_: None)
    rows = tracer.trace([suite.name for suite in own], {})
    print(json.dumps([[key.variant, code.unknown] for key, code, _ in rows]))
"""

TRACED = [
    ("norm_linear", "overlapped", "M=1,K=4096,N=2048"),
    ("w4a16", "best", "M=16,K=8192,N=8192,group=128"),
    ("grouped", "best", "B=256,G=12,K=1024,N=3072"),
]


def test_a_case_of_each_of_three_families_is_traced():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", PROGRAM, json.dumps([(family, case) for family, _, case in TRACED])]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    for (family, variant, _), line in zip(TRACED, done.stdout.splitlines(), strict=True):
        assert {unknown for name, unknown in json.loads(line) if name == variant} == {""}, family


@pytest.mark.parametrize("suite", load_suites(ROOT / "benchmarks").values(), ids=lambda suite: suite.name)
def test_a_change_of_another_family_is_no_change_of_this_one(suite):
    files = family_files(ROOT, ("kernels",), suite).files
    families = {Path(name).parts[1] for name in files if name.endswith(".py") and name.count("/") > 1}
    assert suite.family in families
    assert families <= {"call_plans", "common", suite.family} | ({"linear"} if suite.family == "norm_linear" else set())
