"""A trace of the kernels proves what they do: nothing that they ask of their environment makes a case unknown."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Traces a family's variants at one case, as lockstep code does with all cases, and prints why each is unknown.
PROGRAM = """
import json
import sys
from pathlib import Path

from lockstep.machine_code.targets import Target
from lockstep.machine_code.worker import Tracer
from lockstep.suite.discovery import load_suites


class Printing:
    def stage(self, *_):
        pass

    def emit(self, event, *, cases, **_):
        print(json.dumps([[variant, unknown] for _, variant, _, _, _, unknown, *_ in cases]))


family, case = sys.argv[1:]
suites = load_suites(Path("benchmarks"))
own = [one for one in suites.values() if one.family == family and case in {shape.label for shape in one.cases}]
for suite in own:
    suite.cases = (suite.case(case),)
tracer = Tracer(suites, Path.cwd(), ("kernels",), (), 1, Printing())
tracer.trace([suite.name for suite in own], Target.parse("sm_90").spell(), {})
"""


@pytest.mark.parametrize(
    ("family", "variant", "case"),
    [
        ("norm_linear", "overlapped", "M=1,K=4096,N=2048"),
        ("w4a16", "best", "M=16,K=8192,N=8192,group=128"),
        ("grouped", "best", "B=256,G=12,K=1024,N=3072"),
    ],
)
def test_a_case_is_known(family, variant, case):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", PROGRAM, family, case]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert {unknown for name, unknown in json.loads(done.stdout) if name == variant} == {""}
