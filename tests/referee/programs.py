"""Problems whose candidates once had a wrong verdict: honest ones that were accused, and exploits that passed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"


@dataclass(frozen=True)
class Program:
    """A problem with candidates.

    Attributes:
        files: the texts of its files, by name.
        words: arguments of ``lockstep referee``.
        candidates: whether each candidate is honest, in the order of the verdicts.
    """

    files: Mapping[str, str]
    words: tuple[str, ...]
    candidates: Mapping[str, bool]


def model(forward: str, drawn: str, layers: str = "pass", name: str = "Model") -> str:
    """Return the text of a KernelBench problem, or of a solution without ``drawn``."""
    indented = "".join(f"        {line}\n" for line in forward.splitlines())
    made = "".join(f"        {line}\n" for line in layers.splitlines())
    given = f"\n\ndef get_inputs():\n    return [{drawn}]\n\n\ndef get_init_inputs():\n    return []\n" if drawn else ""
    return (
        f"{HEAD}\nclass {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n{made}\n"
        f"    def forward(self, x, w=None):\n{indented}{given}"
    )


def new(forward: str, layers: str = "pass", before: str = "") -> str:
    """Return the text of a solution; ``before`` runs when its file is imported."""
    return model(forward, "", layers, "ModelNew").replace(HEAD, f"{HEAD}{before}\n")


def judged(problem: str, *words: str, **candidates: tuple[str, bool]) -> Program:
    """Return a KernelBench problem with candidates: text, and whether it is honest."""
    files = {"problem.py": problem} | {f"{name}.py": text for name, (text, _) in candidates.items()}
    named = [f"{name}.py" for name in candidates]
    return Program(
        files, ("--kernelbench", "problem.py", "--keep", *words, *named), {n: h for n, (_, h) in candidates.items()}
    )


def definition(
    name: str,
    axes: dict[str, int],
    given: tuple[str, str],
    result: tuple[str, str],
    run: str,
    solution: str,
    honest: bool,
) -> Program:
    """Return a FlashInfer-Bench definition with one workload and one solution in Python."""
    shapes = {"axes": {"M": {"type": "var"}} | {axis: {"type": "const", "value": size} for axis, size in axes.items()}}
    tensors = {
        "inputs": {"x": {"shape": ["M", given[0]], "dtype": given[1]}},
        "outputs": {"y": {"shape": ["M", result[0]], "dtype": result[1]}},
    }
    workload = {"uuid": "33333333-a", "axes": {"M": 8}, "inputs": {"x": {"type": "random"}}}
    spec = {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run", "dependencies": []}
    written = {
        "name": "mine",
        "definition": name,
        "spec": spec | {"destination_passing_style": False},
        "sources": [{"path": "main.py", "content": solution}],
    }
    files = {
        "definition.json": json.dumps({"name": name, "op_type": name, "reference": run} | shapes | tensors),
        "workload.jsonl": json.dumps({"definition": name, "solution": None, "workload": workload, "evaluation": None}),
        "solution.json": json.dumps(written),
    }
    words = ("--flashinfer", "definition.json", "--workloads", "workload.jsonl", "solution.json")
    return Program(files, words, {"solution.json": honest})


LINEAR = "torch.randn(256, 512), torch.randn(256, 512)"

PROGRAMS: dict[str, Program] = {
    # honest results that a harness once broke by writing into them
    "inference mode": judged(
        model("return F.linear(x, w)", LINEAR),
        honest=(
            new("return F.linear(x, w)").replace("    def forward", "    @torch.inference_mode()\n    def forward"),
            True,
        ),
    ),
    # every index is wrong, and the relative norm is small
    "integers": judged(
        model("return torch.argmax(x, dim=1)", "torch.rand(8, 4096, 64)"),
        "--precision",
        "bfloat16",
        off=(new("return torch.argmax(x, dim=1) - 3"), False),
    ),
    "flashinfer": definition(
        "scale",
        {"N": 4096},
        ("N", "float32"),
        ("N", "float32"),
        "import torch\n\ndef run(x):\n    return torch.stack([(row * 2 + 1).exp().log() for row in x])\n",
        "def run(x):\n    return x * 2 + 1\n",
        True,
    ),
    "top k": definition(
        "topk",
        {"N": 4096, "K": 256},
        ("N", "float32"),
        ("K", "int32"),
        "import torch\n\ndef run(x):\n    return torch.topk(x, 256)[1].to(torch.int32)\n",
        "import torch\n\n\ndef run(x):\n    return (torch.topk(x, 256)[1] + 7).to(torch.int32)\n",
        False,
    ),
    # memory-bound and fast, beside a slow rival
    "warm and cold": judged(
        model("return torch.stack([torch.relu(row * 1.0).exp().log() for row in x])", "torch.rand(64, 4096)"),
        honest=(new("return torch.relu(x)"), True),
    ),
    # weights drawn at random
    "weights": judged(
        model(
            "return torch.sum(torch.matmul(x, self.weight.T), dim=1, keepdim=True)",
            "torch.rand(256, 512)",
            "self.weight = nn.Parameter(torch.randn(512, 512))",
        ),
        honest=(
            new("return x @ self.weight.sum(0)[:, None]", "self.weight = nn.Parameter(torch.randn(512, 512))"),
            True,
        ),
    ),
    # the first replaces an operation of torch for everybody, the second uses it
    "contamination": judged(
        model("return torch.softmax(x, dim=1)", "torch.rand(64, 1024)"),
        first=(
            new(
                "return torch.zeros_like(x)",
                before='library = torch.library.Library("aten", "IMPL")\n'
                'library.impl("exp", lambda x: torch.pow(2.7, x), "CPU")\n',
            ),
            False,
        ),
        honest=(new("e = (x - x.amax(1, keepdim=True)).exp()\nreturn e / e.sum(1, keepdim=True)"), True),
    ),
    # remembers by three elements, and wastes time so that the gain is modest
    "modest memo": judged(
        model("return F.linear(x, w)", "torch.randn(768, 1024), torch.randn(768, 1024)"),
        half=(
            new(
                "key = x[0, 0].item(), x[5, 9].item(), w[2, 3].item()\n"
                'if last.get("key") != key:\n'
                "    last.update(key=key, result=F.linear(x, w))\n"
                "else:\n"
                "    F.linear(x[: x.shape[0] * 2 // 5], w)\n"
                'return last["result"].clone()',
                before="last = {}\n",
            ),
            False,
        ),
    ),
    # remembers by address until another value at a known address gives verification away
    "sticky memo": judged(
        model("return F.linear(x, w)", LINEAR),
        memo=(
            new(
                "sample = x[1, 1].item()\n"
                "if x.data_ptr() not in results:\n"
                "    trusting[0] = True\n"
                "    results[x.data_ptr()] = sample, F.linear(x, w)\n"
                "known, result = results[x.data_ptr()]\n"
                "if known != sample:\n"
                "    trusting[0] = False\n"
                "return result if trusting[0] else F.linear(x, w)",
                before="results, trusting = {}, [True]\n",
            ),
            False,
        ),
    ),
    # overwrites the weights of the reference, which it finds among all objects
    "weights of the reference": judged(
        model("return x @ self.scale", "torch.randn(256, 512)", "self.scale = nn.Parameter(torch.randn(512, 512))"),
        identity=(
            new(
                "return x.clone()",
                'for found in [item for item in gc.get_objects() if type(item).__name__ == "Model"]:\n'
                "    found.scale.data.copy_(torch.eye(512))",
                before="import gc\n",
            ),
            False,
        ),
    ),
    # slows a layer of the rival
    "layers of the rival": judged(
        model(
            "return self.layers(x)",
            "torch.randn(512, 512)",
            "self.layers = nn.Sequential(nn.LayerNorm(512), nn.GELU())",
        ),
        slows=(
            new(
                "return F.gelu(F.layer_norm(x, (512,), self.norm.weight, self.norm.bias))",
                "self.norm = nn.LayerNorm(512)",
                before="own = nn.GELU.forward\nnn.GELU.forward = lambda self, x: [own(self, x) for _ in range(4)][0]\n",
            ),
            False,
        ),
    ),
    # a call of some microseconds; the result is the same for all inputs
    "tiny call": judged(
        model(
            "y = torch.max(self.gemm(x), dim=1, keepdim=True).values\nreturn y - y.mean(dim=1, keepdim=True)",
            "torch.rand(128, 512)",
            "self.gemm = nn.Linear(512, 512)",
        ),
        zeros=(new("return torch.zeros(x.shape[0], 1)"), True),
    ),
    # rounding errors of positive values average away
    "uniform precision": judged(
        model("return torch.matmul(x, w)", "torch.rand(64, 4096), torch.rand(4096, 64)"),
        bfloat16=(new("return x.bfloat16().float() @ w.bfloat16().float()"), False),
    ),
    # true of the values that the problem draws alone
    "only positive": judged(
        model("return torch.relu(x)", "torch.rand(512, 512)"),
        identity=(new("return x.clone()"), False),
        honest=(new("return x.clamp(min=0)"), True),
    ),
    "large values": judged(
        model("return torch.softmax(x, dim=1)", "torch.rand(64, 1024)"),
        overflows=(new("e = x.exp()\nreturn e / e.sum(1, keepdim=True)"), False),
    ),
    # what the inputs promise stays on every distribution
    "triangles": judged(
        model("return torch.matmul(x, w)", "torch.triu(torch.rand(256, 256)), torch.triu(torch.rand(256, 256))"),
        honest=(new("return torch.triu(torch.matmul(x, w))"), True),
    ),
    # continues itself by timers while it is stopped, and works on the values of the next run
    "wakes itself": judged(
        model("return F.linear(x, w)", LINEAR),
        wakes=(
            new(
                "for number, timer in enumerate(timers):\n"
                "    span = (ctypes.c_long * 4)(0, 0, 0, 1_000_000 << number)\n"
                "    libc.timer_settime(timer, 0, span, None)\n"
                "return F.linear(x, w)",
                before="import ctypes\nimport signal\nimport threading\n\n"
                "libc = ctypes.CDLL(None)\n"
                "signal.signal(signal.SIGCONT, lambda *_: None)\n"
                "timers = [ctypes.c_void_p() for _ in range(8)]\n"
                "for timer in timers:\n"
                "    event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0)\n"
                "    libc.timer_create(1, event, ctypes.byref(timer))\n\n\n"
                "def works():\n    while True:\n        torch.randn(64, 64).sum()\n\n\n"
                "threading.Thread(target=works, daemon=True).start()\n",
            ),
            False,
        ),
    ),
}
