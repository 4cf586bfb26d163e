"""Modules that use private API of torch or Triton are listed here, each with its reason."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Modules that use a name of torch or Triton that begins with ``_``, and why. A new version may change such names.
REASONS = {
    "lockstep/machine_code/compiling/build.py": "Triton has no public way to print intermediate code without lines",
    "lockstep/machine_code/tracing/operators.py": "only torch's dispatcher knows which kernels are Python",
    "lockstep/machine_code/tracing/recorded_launches.py": "Triton specialises a launch, and must not compile it",
    "lockstep/machine_code/tracing/simulated_tensors.py": "tensors without memory report the target's device",
    "lockstep/same_work/operations.py": "torch documents TorchDispatchMode of a private module",
    "lockstep/gpu/triton_cache_keys.py": "the key of a kernel must not depend on earlier calls",
    "lockstep/machine_code/tracing/trace.py": "torch documents TorchDispatchMode of a private module",
    "lockstep/timing/clocks/cuda_clock.py": "compiled functions that code under test cannot replace",
    "lockstep/timing/costs/host_time.py": "a kernel that spins keeps the GPU busy while the host's time is measured",
    "lockstep/timing/graph_capture.py": "ends a capture that failed and gives its memory back; torch leaves both open",
    "lockstep/timing/tuners/held_choices.py": "tuners of all classes measure with Autotuner._bench alone",
    "kernels/call_plans/decorator.py": "torch's own guards compare tensors in a tenth of the time that Python takes",
    "kernels/call_plans/recorder.py": "torch documents TorchDispatchMode, of a private module, and its compiled "
    "code allocates in a third of the time",
    "kernels/grouped/library.py": "torch 2.11's grouped product, a rival, is known by its private name",
    "kernels/w4a16/library.py": "torch's own int4 product, the baseline, has no public name",
}


def private_uses(text):
    """Private names of torch and Triton that a module imports or reads, as dotted names."""
    tree = ast.parse(text)
    bound = {}  # what imports of torch and Triton bind
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.partition(".")[0]] = alias.name
                found.add(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                found.add(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in bound:
            found.add(".".join([bound[node.id], *reversed(parts)]))
    private = re.compile(r"(torch|triton)\..*(?<=\.)_(?!_)")
    return {name for name in found if private.match(name)}


def test_each_module_with_private_api_is_listed():
    using = {
        str(path.relative_to(ROOT))
        for package in ("lockstep", "kernels", "benchmarks", "dashboard")
        for path in (ROOT / package).rglob("*.py")
        if private_uses(path.read_text())
    }
    assert using == set(REASONS)


def test_private_names_are_found_however_they_are_imported():
    assert private_uses("import torch\ntorch._C._x()\n") == {"torch._C._x", "torch._C"}
    assert private_uses("from triton.runtime import jit as j\nj.F._run\n") == {"triton.runtime.jit.F._run"}
    assert private_uses("from torch.utils import _pytree\n") == {"torch.utils._pytree"}
    assert private_uses("import torch\ntorch.x.__name__\nself._x\n") == set()
