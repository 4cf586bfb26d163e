"""Problems of each format: opened, and their candidates called and compared in this process, without a judge."""

import json

import pytest
import torch

from lockstep.referee.open_problem import open_problem
from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.suite.definition import SuiteError
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.timing.checks.check import Checker, WrongResult
from lockstep.timing.checks.output_memory import poison
from lockstep.timing.device import CpuDevice

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


@pytest.fixture
def judge(tmp_path):
    """Calls a text as a candidate of a source at every case: "", or what is wrong."""

    def verdict(source, text, function="", suffix=".py"):
        problem = open_problem(source, CpuDevice())
        problem.facts()
        path = tmp_path / f"made_{abs(hash(text))}{suffix}"
        path.write_text(text)
        candidate = problem.load(Submission(path.name, str(path), function))
        for case in problem.cases:
            checker = Checker.draw(problem.suite, case, "cpu", 7)
            results = checker.out
            if results is None:
                results = tuple(torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in checker.reference)
            call = candidate.call(checker.inputs, checker.out, results)
            map_tensors(results, poison)
            call()
            try:
                checker.compare(path.name, tensors_of(results))
            except WrongResult as wrong:
                return wrong.evidence
        return ""

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


def test_a_function_in_a_file_meets_the_inputs_of_a_suite_in_another(judge, written):
    source = ProblemDefinition("suite", written("scales.py", SUITE), every=True)
    by_hand = "def by_hand(gain, x):\n    return x * gain\n\n\ndef _helper():\n    pass\n"
    assert judge(source, SCALE) == judge(source, by_hand) == ""
    assert "off by 0.1 of its norm" in judge(source, "def wrong(x, gain):\n    return x * gain * 1.1\n")


def test_a_file_names_what_prepares_its_candidate(judge, written):
    source = ProblemDefinition("suite", written("scales.py", SUITE))
    packed = (
        "def packed(x, twice):\n    return x * twice / 2\n\n\ndef _pack(gain):\n    return {'twice': gain * 2}\n\n\n"
    )
    assert judge(source, packed + "PREPARE = {'packed': _pack}\n") == ""


def test_a_suite_may_compare_results_itself(judge, written):
    own = """    def compare(self, outputs, expected, inputs):
        return "" if (outputs[0].abs() - expected[0].abs()).norm() < 1e-3 else "has another size"

    def cost"""
    source = ProblemDefinition("suite", written("scales.py", SUITE.replace("    def cost", own)))
    assert judge(source, "def signs(x, gain):\n    return -x * gain\n") == ""
    assert "has another size at M=64,K=256" in judge(source, "def wrong(x, gain):\n    return x * gain * 1.1\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import nosuchmodule\n", "No module named 'nosuchmodule'"),
        ("def broken(:\n", "invalid syntax"),
        ("x = 1\n", "no public function; name the function to judge"),
        ("def one(x):\n    pass\n\n\ndef two(x):\n    pass\n", "2 public functions (one, two)"),
        ("def bad(x):\n    raise RuntimeError('no such thing')\n", "no such thing"),
        ("def short(x):\n    return x[1:]\n", "it returned shape"),
        ("def none(x):\n    pass\n", "it returned 0 tensors"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(judge, written, text, told):
    with pytest.raises(Exception) as refused:  # noqa: PT011 — what a candidate raises is its own
        judge(ProblemDefinition("suite", written("scales.py", SUITE)), text)
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
    assert judge(source, NEW) == ""
    assert "off by" in judge(source, FUSED)  # relu is not leaky relu


def test_the_weights_are_those_of_the_judges_seed(written):
    path = written("12_gemm.py", GEMM)

    def weight(source):
        suite = open_problem(source, CpuDevice()).suite
        return suite.build(suite.model).gemm.weight

    source = ProblemDefinition("kernelbench", path)
    assert torch.equal(weight(source), weight(source))
    assert not torch.equal(weight(source), weight(ProblemDefinition("kernelbench", path)))


def test_a_kernelbench_candidate_in_half_precision_is_wrong_in_single(judge, written):
    half = NEW.replace(
        "x = self.gemm(x)", "x = (x.bfloat16() @ self.gemm.weight.bfloat16().T).float() + self.gemm.bias"
    )
    path = written("12_gemm.py", GEMM)
    assert "accepted is 0.0001" in judge(ProblemDefinition("kernelbench", path), half)
    assert judge(ProblemDefinition("kernelbench", path, precision="bfloat16"), NEW) == ""


ROUNDED = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a.bfloat16().float() @ b.bfloat16().float()
"""


def plain(forward, inputs):
    """A KernelBench problem without weights."""
    return (
        f"import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, *x):\n        return {forward}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def test_rounding_errors_of_positive_values_do_not_average_away(judge, written):
    problem = plain("x[0] @ x[1]", "torch.rand(64, 4096), torch.rand(4096, 64)")
    said = judge(ProblemDefinition("kernelbench", written("product.py", problem)), ROUNDED)
    assert "of its norm around its mean" in said


def test_integers_must_be_equal_unless_the_file_compares_them_itself(judge, written):
    off = (
        NEW.partition("    def __init__")[0] + "    def forward(self, x):\n        return torch.argmax(x, dim=1) - 1\n"
    )
    problem = plain("torch.argmax(x[0], dim=1)", "torch.rand(8, 4096, 64)")
    for precision in ("float32", "bfloat16"):
        source = ProblemDefinition("kernelbench", written("argmax.py", problem), precision=precision)
        assert "accepted is 0" in judge(source, off)
    check = '\n\ndef check(outputs, expected, x):\n    return "" if outputs[0].shape == expected[0].shape else "odd"\n'
    assert judge(ProblemDefinition("kernelbench", written("own.py", problem + check)), off) == ""


@pytest.mark.parametrize(
    ("forward", "inputs", "told"),
    [
        ("torch.dropout(x[0], 0.2, True)", "torch.rand(64, 64)", "is random: two calls on the same inputs differ by"),
        ("torch.nn.functional.group_norm(x[0], 8).mean(dim=[1, 2])", "torch.rand(4, 24, 1200)", "is rounding noise"),
    ],
)
def test_a_problem_whose_result_says_nothing_is_named(written, forward, inputs, told):
    problem = open_problem(ProblemDefinition("kernelbench", written("p.py", plain(forward, inputs))), CpuDevice())
    with pytest.raises(SuiteError, match=told):
        problem.facts()


def test_a_kernelbench_file_that_lacks_a_part_is_named(written):
    device = CpuDevice()
    path = written("a.py", GEMM.partition("def get_init_inputs")[0])
    with pytest.raises(SuiteError, match="has no get_init_inputs"):
        open_problem(ProblemDefinition("kernelbench", path), device)
    lacking = ProblemDefinition("kernelbench", written("b.py", GEMM.replace("negative_slope]", "]")))
    with pytest.raises(SuiteError, match="TypeError"):
        open_problem(lacking, device).facts()
    with pytest.raises(SuiteError, match="'int7' is not one of float32"):
        open_problem(ProblemDefinition("kernelbench", written("c.py", GEMM), precision="int7"), device)
    problem = open_problem(ProblemDefinition("kernelbench", written("d.py", GEMM)), device)
    with pytest.raises(SuiteError, match="has no ModelNew"):
        problem.load(Submission("d", written("new.py", "x = 1\n")))


def test_every_draw_of_a_kernelbench_problem_has_other_inputs(written):
    problem = open_problem(ProblemDefinition("kernelbench", written("12_gemm.py", GEMM)), CpuDevice())

    def draw(seed):
        return problem.suite.draw(Draw("cpu", seed))["input_0"]

    before = torch.get_rng_state()
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert torch.equal(torch.get_rng_state(), before)  # the seed does not show in torch's generator


@pytest.fixture
def definition(written):
    """A data set of FlashInfer-Bench: the path of its definition."""
    written("set/workloads/gemm/gemm_n32_k64.jsonl", "".join(json.dumps(row) + "\n" for row in WORKLOADS))
    return written("set/definitions/gemm/gemm_n32_k64.json", json.dumps(DEFINITION))


FILLS = "import torch\nfrom .parts.shape import ROWS\n\n\ndef run(A, B, scale, C):\n    C.copy_(A @ B.T * scale)\n"


def test_solutions_of_flashinfer_bench_fill_or_return_their_outputs(judge, definition):
    source = ProblemDefinition("flashinfer", definition)
    assert judge(source, solution(FILLS), suffix=".json") == ""
    returns = "def run(A, B, scale):\n    return A @ B.T * scale\n"
    assert judge(source, solution(returns, passing=False), suffix=".json") == ""
    assert "off by" in judge(source, solution(FILLS.replace("* scale", "")), suffix=".json")
    assert "is NaN or infinite in" in judge(source, solution(FILLS.replace("C.copy_", "abs")), suffix=".json")


def test_a_definition_may_bring_a_checker(judge, written):
    content = DEFINITION | {
        "op_type": "sampling",
        "checker": "def check(outputs, expected, **_):\n    return '' if (outputs[0] == 3).all() else 'is no 3'\n",
    }
    written("set/workloads/gemm/gemm_n32_k64.jsonl", "".join(json.dumps(row) + "\n" for row in WORKLOADS))
    source = ProblemDefinition("flashinfer", written("set/definitions/gemm/gemm_n32_k64.json", json.dumps(content)))
    three = "def run(A, B, scale):\n    return (A @ B.T).fill_(3)\n"
    assert judge(source, solution(three, passing=False), suffix=".json") == ""
    assert "is no 3" in judge(source, solution(three.replace("3", "4"), passing=False), suffix=".json")


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
    with pytest.raises(SuiteError) as refused:
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
    problem = open_problem(ProblemDefinition("flashinfer", definition), device)
    assert [case.label for case in problem.cases] == ["M=16,workload=280860e6", "M=8,workload=2e90109a"]
    assert open_problem(ProblemDefinition("flashinfer", definition, cases=("M=8",)), device).cases == problem.cases[1:]
