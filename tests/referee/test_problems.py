"""Problems of each format, opened and measured in this process."""

import json

import pytest
import torch

from lockstep.referee.bench import PLANS, Bench, open_problem
from lockstep.referee.problem import Weights
from lockstep.referee.problem_definition import ProblemDefinition, Refused, Submission
from lockstep.referee.verdict import Outcome, Verdict, fault
from lockstep.suite.definition import SuiteError
from lockstep.suite.inputs import Draw
from lockstep.timing.device import CpuDevice
from lockstep.timing.interleave import QUICK

SUITE = """
from lockstep import Cost, Suite, grid


class Scale(Suite):
    quick = cases = grid(M=[64, 128], K=256)

    def draw(self, new, M, K):
        return {"x": new.normal(M, K, dtype="float32"), "gain": new.normal(K, dtype="float32")}

    def buffers(self, new, M, K):
        return new.empty(M, K, dtype="float32")

    def reference(self, x, gain):
        return x.double() * gain.double()

    def cost(self, M, K):
        return Cost(M * K, 4 * (2 * M * K + K))
"""

SCALE = """
def scale(x, gain, *, out):
    return __import__("torch").mul(x, gain, out=out)
"""

#: The shape of KernelBench's level2/12_Gemm_Multiply_LeakyReLU.py, with small numbers.
GEMM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, multiplier, negative_slope):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.multiplier = multiplier
        self.leaky_relu = nn.LeakyReLU(negative_slope)

    def forward(self, x):
        x = self.gemm(x)
        x = x * self.multiplier
        x = self.leaky_relu(x)
        return x


batch_size = 16
in_features = 64
out_features = 32
multiplier = 2.0
negative_slope = 0.1


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, multiplier, negative_slope]
"""

#: The definition of flashinfer-bench's examples/ffi, with a smaller N and K.
DEFINITION = {
    "name": "gemm_n32_k64",
    "description": "General matrix multiply (GEMM) C = A @ B.T.",
    "op_type": "gemm",
    "tags": ["status:verified"],
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 32}, "K": {"type": "const", "value": 64}},
    "inputs": {
        "A": {"shape": ["M", "K"], "dtype": "float16"},
        "B": {"shape": ["N", "K"], "dtype": "float16"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(A, B, scale):\n    return {'C': torch.matmul(A, B.T) * scale}",
}

WORKLOADS = [
    {
        "definition": "gemm_n32_k64",
        "solution": None,
        "workload": {
            "uuid": f"{uuid}-08f0-427c-b7c5-9cffcfab1a10",
            "axes": {"M": rows},
            "inputs": {"A": {"type": "random"}, "B": {"type": "random"}, "scale": {"type": "scalar", "value": 0.5}},
        },
        "evaluation": None,
    }
    for uuid, rows in (("280860e6", 16), ("2e90109a", 8))
]


def solution(content, passing=True, **spec):
    """A solution of the definition, as JSON."""
    usual = {
        "language": "python",
        "target_hardware": ["cpu"],
        "entry_point": "main.py::run",
        "dependencies": [],
        "destination_passing_style": passing,
    }
    sources = [{"path": "main.py", "content": content}, {"path": "parts/shape.py", "content": "ROWS = 0\n"}]
    made = {"name": "mine", "definition": "gemm_n32_k64", "author": "x", "spec": usual | spec, "sources": sources}
    return json.dumps(made)


@pytest.fixture(autouse=True)
def _brief(monkeypatch):
    for stage in PLANS:
        monkeypatch.setitem(PLANS, stage, QUICK)


@pytest.fixture
def judge(tmp_path):
    """Judges a text as a candidate of a source: outcome, rule and reason, or None if it is measured."""
    benches = {}

    def verdict(source, text, function="", suffix=".py", against=None):
        if source not in benches:
            benches[source] = Bench(open_problem(source, CpuDevice()), CpuDevice())
        made = []
        for number, one in enumerate(filter(None, (against, text))):
            path = tmp_path / f"made_{abs(hash(text))}_{number}{suffix}"
            path.write_text(one)
            made.append(Submission(path.name, str(path), function))
        incumbent = made[0] if against else None
        records = benches[source].measure(made[-1], incumbent, "screen", 7)
        mine = [record for record in records if record.variant == made[-1].name]
        assert mine
        assert all(record.state == "ok" for record in records if record.variant != made[-1].name)
        found = fault(mine)
        return (Verdict("", "", Outcome.BROKEN).failed(*found).outcome, *found) if found else None

    return verdict


@pytest.fixture
def written(tmp_path):
    """Writes a file and returns its path as a text."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def test_two_functions_in_files_meet_on_the_inputs_of_a_third(judge, written):
    source = ProblemDefinition("suite", written("scales.py", SUITE), every=True)
    by_hand = "def by_hand(gain, x):\n    return x * gain\n\n\ndef _helper():\n    pass\n"
    assert judge(source, by_hand, against=SCALE) is None
    outcome, rule, reason = judge(source, "def wrong(x, gain):\n    return x * gain * 1.1\n", against=SCALE)
    assert (outcome, rule) == (Outcome.WRONG, "wrong-result")
    assert "off by 0.1 of its norm" in reason


def test_a_file_names_what_prepares_its_candidate(judge, written):
    source = ProblemDefinition("suite", written("scales.py", SUITE))
    packed = (
        "def packed(x, twice):\n    return x * twice / 2\n\n\ndef _pack(gain):\n    return {'twice': gain * 2}\n\n\n"
    )
    assert judge(source, packed + "PREPARE = {'packed': _pack}\n", against=SCALE) is None


def test_what_a_candidate_prepares_cannot_depend_on_activations(judge, written):
    source = ProblemDefinition(
        "suite", written("scales.py", SUITE.replace("    quick", "    activations = ('x',)\n    quick"))
    )
    cheats = (
        "def given(result):\n    return result.clone()\n\n\ndef _solve(x, gain):\n    return {'result': x * gain}\n\n\n"
    )
    outcome, rule, _ = judge(source, cheats + "PREPARE = {'given': _solve}\n", against=SCALE)
    assert (outcome, rule) == (Outcome.WRONG, "wrong-result")


def test_a_candidate_that_raises_is_broken_and_the_reason_is_told(judge, written):
    source = ProblemDefinition("suite", written("scales.py", SUITE))
    outcome, rule, reason = judge(source, "def bad(x):\n    raise RuntimeError('no such thing')\n", against=SCALE)
    assert (outcome, rule, reason) == (Outcome.BROKEN, "", "RuntimeError: no such thing")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import nosuchmodule\n", "ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("def broken(:\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("x = 1\n", "no public function; name the function to judge"),
        ("def one(x):\n    pass\n\n\ndef two(x):\n    pass\n", "2 public functions (one, two)"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(judge, written, text, told):
    with pytest.raises(Refused) as refused:
        judge(ProblemDefinition("suite", written("scales.py", SUITE)), text, against=SCALE)
    assert told in str(refused.value)


def test_a_suite_of_a_file_is_refused_where_it_is_incomplete(written):
    device = CpuDevice()
    with pytest.raises(SuiteError, match="Scale needs cost"):
        open_problem(ProblemDefinition("suite", written("a.py", SUITE.partition("    def cost")[0])), device)
    with pytest.raises(SuiteError, match="has no quick cases"):
        open_problem(ProblemDefinition("suite", written("b.py", SUITE.replace("quick = ", ""))), device)
    with pytest.raises(SuiteError, match="no case 'M=7'"):
        open_problem(ProblemDefinition("suite", written("c.py", SUITE), cases=("M=7",)), device)
    with pytest.raises(SuiteError, match="no variant 'best'"):
        open_problem(ProblemDefinition("suite", written("d.py", SUITE), against="best"), device)
    with pytest.raises(SuiteError, match="0 suites"):
        open_problem(ProblemDefinition("suite", written("e.py", "x = 1\n")), device)


NEW = GEMM.partition("batch_size")[0].replace("class Model", "class ModelNew")
FUSED = NEW.replace(
    "x = x * self.multiplier\n        x = self.leaky_relu(x)\n", "x.mul_(2.0)\n        torch.relu_(x)\n"
)


def test_a_kernelbench_problem_gives_both_models_the_same_weights(judge, written):
    source = ProblemDefinition("kernelbench", written("12_gemm.py", GEMM))
    assert judge(source, NEW) is None
    outcome, rule, _ = judge(source, FUSED)  # relu is not leaky relu
    assert (outcome, rule) == (Outcome.WRONG, "wrong-result")


def test_a_kernelbench_candidate_in_half_precision_is_wrong_in_single(judge, written):
    half = NEW.replace(
        "x = self.gemm(x)", "x = (x.bfloat16() @ self.gemm.weight.bfloat16().T).float() + self.gemm.bias"
    )
    path = written("12_gemm.py", GEMM)
    outcome, _, reason = judge(ProblemDefinition("kernelbench", path), half)
    assert outcome is Outcome.WRONG
    assert "accepted is 0.0001" in reason
    assert judge(ProblemDefinition("kernelbench", path, precision="bfloat16"), NEW) is None


def test_a_kernelbench_candidate_replaces_neither_incumbent_nor_reference(judge, written):
    spoils = """        for name, module in list(sys.modules.items()):
            if name.startswith("lockstep_referee") and hasattr(module, "Model"):
                module.Model.forward = lambda self, x: 1 / 0
"""
    text = "import sys\n" + NEW.replace("        x = self.gemm(x)\n", f"{spoils}        x = self.gemm(x)\n")
    assert "1 / 0" in text
    assert judge(ProblemDefinition("kernelbench", written("12_gemm.py", GEMM)), text) is None


def test_a_kernelbench_file_that_lacks_a_part_is_named(written):
    device = CpuDevice()
    path = written("a.py", GEMM.partition("def get_init_inputs")[0])
    with pytest.raises(SuiteError, match="has no get_init_inputs"):
        open_problem(ProblemDefinition("kernelbench", path), device)
    with pytest.raises(SuiteError, match="TypeError"):
        open_problem(ProblemDefinition("kernelbench", written("b.py", GEMM.replace("negative_slope]", "]"))), device)
    with pytest.raises(SuiteError, match="'int7' is not one of float32"):
        open_problem(ProblemDefinition("kernelbench", written("c.py", GEMM), precision="int7"), device)
    bench = Bench(open_problem(ProblemDefinition("kernelbench", written("d.py", GEMM)), device), device)
    new = Submission("d", written("new.py", "x = 1\n"))
    with pytest.raises(Refused, match="has no ModelNew"):
        bench.measure(new, None, "screen", 1)


def test_every_draw_of_a_kernelbench_problem_has_other_inputs(written):
    problem = open_problem(ProblemDefinition("kernelbench", written("12_gemm.py", GEMM)), CpuDevice())

    def draw(seed):
        return problem.suite.draw(Draw("cpu", seed))["input_0"]

    before = torch.get_rng_state()
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert torch.equal(torch.get_rng_state(), before)  # the seed does not show in torch's generator


def test_a_models_weights_move_and_keep_their_values():
    layer = torch.nn.Linear(4, 4)
    expected, place = layer.weight.clone(), layer.weight.data_ptr()
    weights = Weights(list(layer.parameters()))
    for number, tensor in weights.items():
        weights[number] = tensor.clone()
    assert torch.equal(layer.weight, expected)
    assert layer.weight.data_ptr() != place


@pytest.fixture
def definition(written):
    """A data set of FlashInfer-Bench: the path of its definition."""
    written("set/workloads/gemm/gemm_n32_k64.jsonl", "".join(json.dumps(row) + "\n" for row in WORKLOADS))
    return written("set/definitions/gemm/gemm_n32_k64.json", json.dumps(DEFINITION))


FILLS = "import torch\nfrom .parts.shape import ROWS\n\n\ndef run(A, B, scale, C):\n    C.copy_(A @ B.T * scale)\n"


def test_solutions_of_flashinfer_bench_fill_or_return_their_outputs(judge, definition):
    source = ProblemDefinition("flashinfer", definition, every=True)
    assert judge(source, solution(FILLS), suffix=".json") is None
    returns = "def run(A, B, scale):\n    return A @ B.T * scale\n"
    assert judge(source, solution(returns, passing=False), suffix=".json") is None
    outcome, rule, _ = judge(source, solution(FILLS.replace("* scale", "")), suffix=".json")
    assert (outcome, rule) == (Outcome.WRONG, "wrong-result")
    outcome, rule, reason = judge(source, solution(FILLS.replace("C.copy_", "abs")), suffix=".json")
    assert (outcome, rule) == (Outcome.WRONG, "wrong-result")
    assert "is NaN or infinite in" in reason


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (solution(FILLS, language="cuda"), "a solution in 'cuda' must be built first"),
        (
            solution(FILLS).replace("gemm_n32_k64", "gemm_n8_k8"),
            "solves 'gemm_n8_k8', but the definition given is 'gemm_n32_k64'",
        ),
        (solution(FILLS).replace("parts/shape.py", "../shape.py"), "is outside the solution's folder"),
        (solution(FILLS, entry_point="main.py::walk"), "has no walk"),
        ("[]", "expected an object"),
        ("{", "is not JSON"),
    ],
)
def test_a_solution_that_cannot_be_used_is_refused(judge, definition, changed, told):
    with pytest.raises(Refused) as refused:
        judge(ProblemDefinition("flashinfer", definition), changed, suffix=".json")
    assert told in str(refused.value)


def test_a_definition_that_cannot_be_used_is_named(definition, written):
    device = CpuDevice()
    for change, told in (
        ({"outputs": None}, "has no 'outputs'"),
        ({"op_type": "sampling"}, "are random"),
        ({"name": "other"}, "no workloads/other.jsonl"),
    ):
        changed = {key: value for key, value in (DEFINITION | change).items() if value is not None}
        path = written("set/definitions/gemm/changed.json", json.dumps(changed))
        with pytest.raises(SuiteError, match=told):
            open_problem(ProblemDefinition("flashinfer", path), device)
    with pytest.raises(SuiteError, match="a field is missing"):
        open_problem(
            ProblemDefinition("flashinfer", definition, workloads=written("w/w.jsonl", '{"workload": {}}\n')), device
        )


def test_cases_of_a_definition_are_its_workloads(definition):
    device = CpuDevice()
    problem = open_problem(ProblemDefinition("flashinfer", definition, every=True), device)
    assert [case.label for case in problem.cases] == ["M=16,workload=280860e6", "M=8,workload=2e90109a"]
    assert [case.label for case in open_problem(ProblemDefinition("flashinfer", definition), device).cases] == [
        "M=16,workload=280860e6"
    ]
    assert open_problem(ProblemDefinition("flashinfer", definition, cases=("M=8",)), device).cases == problem.cases[1:]
