# ruff: noqa: E501 — the sources of generated modules stand here a line each
"""Trace generated packages that ask the world in many ways, each before and after a change, and print what was found.

``python tests/traced.py EXAMPLES`` prints a JSON list: what was asked, whether the two versions count as the same,
whether base counts as the same as itself, and why base is unknown. Each version is traced in a fork of a process that
answers as an H200.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from made_suites import make_suite
from planted import lay_out

from lockstep.processes.worker import WorkerProcess

#: A kernel of the first call fills a table that the later calls read.
_FILLED = """
import triton
import triton.language as tl


@triton.jit
def fill(p):
    tl.store(p + tl.arange(0, 16), {n} + tl.zeros((16,), tl.int32))


@triton.jit
def use(x, p, out):
    tl.store(out + tl.arange(0, 16), tl.load(x + tl.arange(0, 16)) * tl.load(p))


TABLES = {}


def filled(x):
    if x.device not in TABLES:
        table = TABLES[x.device] = torch.empty(16, dtype=torch.int32, device=x.device)
        fill[(1,)](table)
    out = torch.empty_like(x)
    use[(1,)](x, TABLES[x.device], out)
    return out
"""

#: A kernel, and one that tunes itself.
_KERNEL = """
import triton
import triton.language as tl


@triton.jit
def k(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, 16), N)


"""
_TUNED = _KERNEL.replace(
    "@triton.jit",
    "@triton.autotune([triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)], [])\n@triton.jit",
)

#: Ways to ask by name: module-level code, the expression that the variant adds to x, and whether the target answers.
#: {n} is changed; on an H200 the expression then is another number.
WORLD: dict[str, tuple[str, str, bool]] = {
    "multiprocessors": ("", "torch.cuda.get_device_properties(x.device).multi_processor_count // {n}", True),
    "multiprocessors at import": (
        "SM = torch.cuda.get_device_properties(0).multi_processor_count\n",
        "SM // {n}",
        True,
    ),
    "capability": ("", "({n} if torch.cuda.get_device_capability() >= (9, 0) else 5)", True),
    "is_cuda": ("", "({n} if x.is_cuda else 5)", True),
    "device type": ("", "({n} if x.device.type == 'cuda' else 5)", True),
    "device equal": ("", "({n} if x.device == torch.device('cuda', 0) else 5)", True),
    "available": ("", "({n} if torch.cuda.is_available() else 5)", True),
    "name": ("", "({n} if 'H200' in torch.cuda.get_device_name() else 5)", True),
    "triton driver": (
        "from triton.runtime import driver\n",
        "driver.active.utils.get_device_properties(0)['multiprocessor_count'] // {n}",
        True,
    ),
    "environment": ("import os\n", "int(os.environ.get('NOT_SET', '{n}'))", True),
    "environment at import": ("import os\nN = int(os.getenv('NOT_SET') or {n})\n", "N", True),
    "own file": ("from pathlib import Path\n", "{n} * len(Path(__file__).name)", True),
    "backward": (
        "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n\n"
        "    @staticmethod\n    def backward(ctx, g):\n"
        "        return g * (torch.cuda.get_device_properties(g.device).multi_processor_count // {n})\n\n\n"
        "def train(x):\n    x = x.detach().requires_grad_()\n"
        "    return torch.autograd.grad(F.apply(x), x, torch.empty_like(x))[0]\n",
        "train(x)",
        True,
    ),
    "backward asks is_cuda": (
        "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return g * ({n} if g.is_cuda else 5)\n\n\n"
        "def train(x):\n    x = x.detach().requires_grad_()\n"
        "    return torch.autograd.grad(F.apply(x), x, torch.empty_like(x))[0]\n",
        "train(x)",
        True,
    ),
    "tensor at import": ("N = torch.full((1,), {n}, device='cuda') + 1\n", "N", True),
    "literal at import": ("N = torch.tensor([{n}], device='cuda')\n", "N", True),
    "tensor in a cache": (
        "import functools\n@functools.cache\ndef f(d):\n    return torch.arange(1, device=d) * {n}\n",
        "f(x.device)",
        True,
    ),
    "tensor of NumPy": ("import numpy as np\n", "torch.from_numpy(np.array([{n}.0])).to(x.device)", True),
    "tensor on the CPU": ("N = torch.tensor({n}.0)\n", "N", True),
    "tensor with operators": (
        "class Q(torch.Tensor):\n    @staticmethod\n    def __new__(cls, d):\n"
        "        return torch.Tensor._make_wrapper_subclass(cls, d.shape, dtype=d.dtype, device=d.device)\n"
        "    def __init__(self, d):\n        self.d = d\n    @classmethod\n"
        "    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):\n"
        "        d = args[0].d\n        for _ in range({n}):\n            d = d * 2\n        return func(d)\n",
        "torch.relu(Q(x))",
        False,
    ),
    "is_meta": ("", "(5 if x.is_meta else {n})", False),
    "memory": ("", "({n} if torch.cuda.mem_get_info()[1] > 1 else 5)", False),
    "memory of properties": (
        "",
        "({n} if getattr(torch.cuda.get_device_properties(0), 'total_memory', 0) else 5)",
        False,
    ),
    "processors": ("import os\n", "({n} if os.cpu_count() == -1 else 5)", False),
    "processors by map": ("import os\n", "({n} if list(map(lambda f: f(), [os.cpu_count]))[0] == -1 else 5)", False),
    "processors by partial": (
        "import functools, os\nask = functools.partial(os.cpu_count)\n",
        "({n} if ask() == -1 else 5)",
        False,
    ),
    "processors at import": ("import os\nCOUNT = os.cpu_count()\n", "({n} if COUNT == -1 else 5)", False),
    "processors in a default": (
        "import os\ndef f(n=os.cpu_count()):\n    return n\n",
        "({n} if f() == -1 else 5)",
        False,
    ),
    "time": ("import time\n", "({n} if time.time() < 0 else 5)", False),
    "time from": ("from time import perf_counter_ns as clock\n", "({n} if clock() < 0 else 5)", False),
    "date": ("import datetime\n", "({n} if datetime.datetime.now().year < 0 else 5)", False),
    "chance": ("import random\n", "({n} if random.random() < 0 else 5)", False),
    "chance of torch": ("", "({n} if torch.rand(1).item() < 0 else 5)", False),
    "file": ("", "({n} if open('/proc/uptime').read() == '' else 5)", False),
    "path exists": ("from pathlib import Path\n", "({n} if Path('/dev/nvidia0').exists() else 5)", False),
    "os.path exists": ("import os\n", "({n} if os.path.exists('/dev/nvidia0') else 5)", False),
    "process": ("import subprocess\n", "({n} if subprocess.run(['true']).returncode else 5)", False),
    "library": ("import ctypes\n", "({n} if ctypes.CDLL(None).getpid() < 0 else 5)", False),
    "host": ("import socket\n", "({n} if socket.gethostname() == '' else 5)", False),
    "platform": ("import platform\n", "({n} if platform.machine() == '' else 5)", False),
    "module getattr": ("", "({n} if getattr(torch, 'cuda').mem_get_info()[0] > 1 else 5)", False),
    "alias": ("cu = torch.cuda\n", "({n} if cu.memory_reserved() else 5)", False),
    "import by name": ("import importlib\n", "({n} if importlib.import_module('time').time() < 0 else 5)", False),
    "value of a tensor": (
        "def f(x):\n    try:\n        return int(x.max())\n    except Exception:\n        return -1\n",
        "(5 if f(x) == -1 else {n})",
        False,
    ),
    "cache of a value": (
        "import functools\n@functools.cache\ndef f(d):\n    try:\n        return int(torch.zeros(1, device=d).item())\n"
        "    except Exception:\n        return -1\n",
        "(5 if f(x.device) == -1 else {n})",
        False,
    ),
    "backends": ("", "({n} if torch.backends.cudnn.is_available() else 5)", False),
    "cuda version": ("", "({n} if torch.version.cuda else 5)", False),
    "threads": ("", "({n} if torch.get_num_threads() > 64 else 5)", False),
    "identity": ("", "({n} if id(x) == 1 else 5)", False),
    "globals": ("import sys, os\n", "({n} if globals()['os'].cpu_count() == -1 else 5)", False),
    "eval": ("", "({n} if eval('1') == 2 else 5)", False),
    "third party": ("import rich\n", "({n} if rich.get_console().width == 1 else 5)", False),
    "compiled": (
        "def f(x):\n    return x + ({n} if torch.compiler.is_compiling() else 5)\n\n\ng = torch.compile(f)\n",
        "g(x)",
        False,
    ),
    "triton benchmark": (
        "import triton\n",
        "({n} if triton.testing.get_max_simd_tflops(torch.float32) > 1 else 5)",
        False,
    ),
    "clock of the driver": (
        "from triton.runtime import driver\n",
        "({n} if driver.active.utils.get_device_properties(0).get('sm_clock_rate') else 5)",
        False,
    ),
    "process id": ("import os\n", "({n} if os.getpid() < 0 else 5)", False),
    "stream": ("", "({n} if torch.cuda.current_stream().cuda_stream == 0 else 5)", False),
    "type of a tensor": ("", "({n} if x.type().startswith('torch.cuda') else 5)", False),
    "name of a type": ("", "({n} if 'cuda' in torch.typename(x) else 5)", False),
    "array interface": ("", "({n} if hasattr(x, '__cuda_array_interface__') else 5)", False),
    "device of a storage": ("", "({n} if x.untyped_storage().device.type == 'cuda' else 5)", False),
    "address of a storage": ("", "({n} if x.untyped_storage().data_ptr() else 5)", False),
    "functions of a tensor": (
        "class Q(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
        "        r = super().__torch_function__(func, types, args, kwargs or {})\n"
        "        return ({n} if r.type == 'cuda' else 5) if isinstance(r, torch.device) else r\n",
        "x.as_subclass(Q).device",
        False,
    ),
    "kernel of an operator": (
        "@torch.ops.aten.relu.default.py_impl(torch._C.DispatchKey.CUDA)\ndef f(x):\n    return x * {n}\n",
        "torch.relu(x)",
        False,
    ),
    "kernel of a library": (
        "lib = torch.library.Library('aten', 'IMPL')\nlib.impl('relu', lambda x: x * {n}, 'CUDA')\n",
        "torch.relu(x)",
        False,
    ),
    "operator among torch's": (
        "@torch.library.custom_op('aten::mine', mutates_args=())\ndef f(x: torch.Tensor) -> torch.Tensor:\n    return x * {n}\n\n\n"
        "@f.register_fake\ndef _(x):\n    return torch.empty_like(x)\n",
        "torch.ops.aten.mine(x)",
        False,
    ),
    "another name": ("import os\n__name__ = 'torch.nn.functional'\n", "({n} if os.cpu_count() == -1 else 5)", False),
    "file of the working folder": ("", "({n} if open('pyproject.toml').read() == '' else 5)", False),
    "setattr by another name": (
        "import os\nput = setattr\n\n\nclass H:\n    pass\n\n\nput(H, 'f', staticmethod(os.cpu_count))\n",
        "({n} if H.f() == -1 else 5)",
        False,
    ),
    "attrgetter by another name": (
        "import operator, os\nget = operator.attrgetter\n",
        "({n} if get('cpu_count')(os)() == -1 else 5)",
        False,
    ),
    "format": ("", "({n} if 'cuda' in '{0.device}'.format(x) else 5)", True),
    "timeit": ("import timeit\n", "({n} if timeit.timeit('pass', number=1) < 0 else 5)", False),
    "logging's configuration": (
        "import logging.config\n",
        "({n} if logging.config.BaseConfigurator({}).resolve('os.cpu_count')() == -1 else 5)",
        False,
    ),
    "record of a log": ("import logging\n", "({n} if logging.makeLogRecord({}).created < 0 else 5)", False),
    "xmlrpc": (
        "import os\nfrom xmlrpc.server import resolve_dotted_attribute as get\n",
        "({n} if get(os, 'cpu_count')() == -1 else 5)",
        False,
    ),
    "hash of a text": ("", "({n} if hash('text') % 1000 == 1 else 5)", False),
    "default device": ("", "({n} if torch.get_default_device().type == 'cuda' else 5)", False),
    "kernel of the first call": (_FILLED, "filled(x)", True),
    "number in the first call": (
        _FILLED.replace("fill(p)", "fill(p, n)").replace("{n} + tl", "n + tl").replace("](table)", "](table, {n})"),
        "filled(x)",
        True,
    ),
    "grid of the first call": (
        _FILLED.replace("{n} + tl", "tl").replace("[(1,)](table)", "[({n},)](table)"),
        "filled(x)",
        True,
    ),
    "names of the environment": (
        "import os\n",
        "({n} if any(k.startswith('NEVER_SET') for k in os.environ) else 5)",
        False,
    ),
    "copy of the environment": ("import os\n", "({n} if dict(os.environ).get('NEVER_SET') else 5)", False),
    "value by getattr": ("", "({n} if getattr(torch.version, 'cuda', None) else 5)", False),
    "module in a local name": ("def f():\n    v = torch.version\n    return v.cuda\n", "({n} if f() else 5)", False),
    "module as an argument": ("def f(v):\n    return v.cuda\n", "({n} if f(torch.version) else 5)", False),
    "module in a class": ("class A:\n    v = torch.version\n", "({n} if A.v.cuda else 5)", False),
    "module in a closure": (
        "def outer():\n    import torch.version as v\n    def f():\n        return v.cuda\n    return f\n",
        "({n} if outer()() else 5)",
        False,
    ),
    "registers of a kernel": (
        _KERNEL
        + "def f(x):\n    try:\n        return k.warmup(x, N=1, grid=(1,)).n_regs\n    except Exception:\n        return 0\n",
        "({n} if f(x) else 5)",
        False,
    ),
    "what a launch returns": (
        _KERNEL + "def f(x):\n    return getattr(k[(1,)](x, N=1), 'asm', None)\n",
        "({n} if f(x) else 5)",
        False,
    ),
    "compiled kernel": (
        _KERNEL + "def f(x):\n    c = k.warmup(x, N={n}, grid=(1,))\n    return c[(1, 1, 1)](x, {n}) or 0\n",
        "f(x)",
        False,
    ),
    "launcher of a compiled kernel": (
        _KERNEL
        + "def f(x):\n    c = k[(1,)](x, N=1)\n    c.run(1, 1, {n}, 0, c.function, c.packed_metadata, None, None, None, x)\n"
        "    return 0\n",
        "f(x)",
        False,
    ),
    "best configuration": (
        _TUNED + "def f(x):\n    k[(1,)](x, N=1)\n    return getattr(k, 'best_config', None)\n",
        "({n} if f(x) else 5)",
        False,
    ),
    "cache of an autotuner": (
        _TUNED + "def f(x):\n    k[(1,)](x, N=1)\n    return len(k.cache)\n",
        "({n} if f(x) else 5)",
        False,
    ),
    "table of NumPy": (
        "import os\nimport numpy as np\ndef f():\n    try:\n        return np.load('/var/nothing/tuned.npy')[0]\n    except OSError:\n        return 0\n",
        "({n} if f() else 5)",
        False,
    ),
    "distance of tensors": ("", "({n} if abs(torch.empty_like(x).data_ptr() - x.data_ptr()) < 2**34 else 5)", False),
    "number of GPUs": ("", "({n} if torch.cuda.device_count() > 1 else 5)", False),
    "dict of a module": ("", "({n} if torch.version.__dict__.get('cuda') else 5)", False),
    "vars of a module": ("", "({n} if vars(torch.version).get('cuda') else 5)", False),
    "value imported from a module": ("from torch.version import cuda\n", "({n} if cuda else 5)", False),
    "getattr in a partial": (
        "import functools\nget = functools.partial(getattr, torch.version)\n",
        "({n} if get('cuda') else 5)",
        False,
    ),
    "module in a default": ("get = lambda m=torch.version: m.cuda\n", "({n} if get() else 5)", False),
    "modules in a tuple": ("", "({n} if any(m.cuda for m in (torch.version,)) else 5)", False),
    "value of a module by name": (
        "import importlib\n",
        "({n} if importlib.import_module('torch.version').cuda else 5)",
        False,
    ),
    "memory at import": (
        "M = getattr(torch.cuda.get_device_properties(0), 'total_memory', 0)\n",
        "({n} if M else 5)",
        False,
    ),
    "type of a tensor at import": ("M = torch.empty(1, device='cuda').type()\n", "({n} if 'cuda' in M else 5)", False),
    "driver at import": (
        "from triton.runtime import driver\nM = driver.active.utils.get_device_properties(0).get('sm_clock_rate')\n",
        "({n} if M else 5)",
        False,
    ),
    "key of an autotuner": (
        _TUNED.replace("[])", "['N'][: {n} - 1])") + "def f(x):\n    k[(1,)](x, N=1)\n    return 1\n",
        "f(x)",
        True,
    ),
}


def version(way: str, n: int, package: str, helper: str, variant_asks: bool) -> dict[str, str]:
    """Files of one version: the asking code in a module of ``helper``, the variant in one of ``package``."""
    setup, expression, _ = WORLD[way]
    setup, expression = setup.replace("{n}", str(n)), expression.replace("{n}", str(n))
    asking = f"import torch\n{setup}\n\ndef ask(x):\n    return {expression}\n"
    call = "ask(x)"
    work = f"import torch\nfrom {helper}.asking import ask\n\n\ndef work(x):\n    return x + {call}\n\n\n"
    if not variant_asks:  # through the standard library, and imported late
        work = (
            "import functools\n\n\ndef work(x):\n"
            f"    from {helper} import asking\n    return functools.reduce(lambda a, f: a + f(x), [asking.ask], x)\n\n\n"
        )
    files = {
        f"{helper.replace('.', '/')}/asking.py": asking,
        f"{package.replace('.', '/')}/work.py": work + 'VARIANTS = {"work": work}\n',
    }
    for path in list(files):
        for folder in Path(path).parents:
            if str(folder) != ".":
                files.setdefault(f"{folder}/__init__.py", "")
    return files


def traced(root: Path, packages: tuple[str, ...], package: str) -> tuple[list[str], str]:
    """Return steps and kernels of the one case of the version at ``root``, and why it is unknown; found in a fork."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            steps, unknown = trace_here(root, packages, package)
            os.write(theirs, json.dumps([steps, unknown]).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        content = answer.read()
    os.waitpid(child, 0)
    return tuple(json.loads(content)) if content else ([], "the process died")  # type: ignore[return-value]


class _Unheard(WorkerProcess):
    """Nobody listens to its events."""

    def __init__(self) -> None:
        pass

    def emit(self, event: str, **content: Any) -> None:
        """Drop the event."""


def trace_here(root: Path, packages: tuple[str, ...], package: str) -> tuple[list[str], str]:
    """As ``traced``, in this process."""
    from lockstep.machine_code.targets import Target
    from lockstep.machine_code.worker import Tracer
    from lockstep.suite.case import Case
    from lockstep.suite.checkout import import_from

    shape = (Case(M=4),)
    suite = make_suite(
        family="work", module=f"{package}.work", cases=shape, quick=shape, baseline="work",
        draw=lambda new, M: {"x": new.normal(M, 16)},
    )  # fmt: skip
    import_from(root, packages)
    tracer = Tracer({"work": suite}, root, packages, (), 1, _Unheard())
    target = Target(90, 132, "NVIDIA H200")
    if os.environ.get("ANSWERING"):
        tracer._answering = target.spell()
    tracer._answer_as(target.spell())
    [(_, _, _, (steps, requests, unknown, _, _))] = tracer._suite(suite, target, {}, None)
    return steps + [request.function.src for request in requests], unknown


def main() -> None:
    """Trace as many examples as the first argument says: every way once, then by lot."""
    import rich  # noqa: F401 — the forks have it already

    with tempfile.TemporaryDirectory() as room:  # what is imported and answered once, the forks need not again
        lay_out(Path(room), version("multiprocessors", 1, "warmup", "warmup", True))
        trace_here(Path(room), ("warmup",), "warmup")
    os.environ["ANSWERING"] = "1"
    chance = random.Random(15)
    count = int(sys.argv[1])
    ways = [*WORLD, *(chance.choice(list(WORLD)) for _ in range(max(0, count - len(WORLD))))][:count]
    found = []
    for way in ways:
        package = chance.choice(["toy", "toy.deep.kernels"])
        helper = chance.choice(["toy", "helpers", "helpers.low"])
        asks = chance.random() < 0.6
        packages = tuple({package.split(".")[0], helper.split(".")[0]})
        before, after = 1, chance.choice([2, 7, 8])
        with tempfile.TemporaryDirectory() as room:
            answers = []
            for side, n in (("base", before), ("head", after)):
                lay_out(Path(room, side), version(way, n, package, helper, asks))
                answers.append(traced(Path(room, side), packages, package))
        (steps, unknown), (other, doubt) = answers
        same = not unknown and not doubt and steps == other
        found.append([f"{way} ({package}, {helper}, {asks})", way, same, unknown])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
