"""Find out, on a machine without a GPU, which code each case runs: trace its launches and compile its kernels.

::

    comparison = compare(base, head, suites, target)      # two trees: Tree("HEAD~1", folder, packages), …
    comparison.status(key)    # "same", "changed", "unknown", "new", "removed"
    comparison.changes        # tuple[CodeChange, ...], each with its cases

    codes = codes_of(tree, suites, target)                # Mapping[CaseKey, CaseCode], every kernel compiled

``docs/machine-code.md`` says what is compared and what a trace can miss.
"""

from lockstep.machine_code.compiled_tree import codes_of
from lockstep.machine_code.differences.compare import Comparison, compare
from lockstep.machine_code.differences.difference_sentences import CodeChange, differences
from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode, MachineCode
from lockstep.machine_code.targets import Target, TargetError
from lockstep.machine_code.worker_session import TracingFailed, Tree

__all__ = [
    "CaseCode",
    "CaseKey",
    "CodeChange",
    "Comparison",
    "KernelCode",
    "MachineCode",
    "Target",
    "TargetError",
    "TracingFailed",
    "Tree",
    "codes_of",
    "compare",
    "differences",
]
