"""Find code that may launch kernels where no trace sees them, by reading the sources.

Traces, observations and the gate's check on a GPU all replace Triton's ``JITFunction.run``. Code that tests whether
this function was replaced, or that takes Triton's launcher from a compiled kernel, may behave differently when the
function is not replaced. A trace does not show that behaviour. So two traces count as the same only if the sources of
such code are the same too.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping

from lockstep.machine_code.sources.file_dependencies import facts
from lockstep.machine_code.sources.module_dependencies import digest, module_of
from lockstep.machine_code.sources.syntax_tree import nodes, parsed, word
from lockstep.suite.syntax import without_docstrings

#: Names that belong to Triton's launching: functions, compiled kernels and their launchers, hooks and streams.
LAUNCHING = frozenset(
    {
        *("JITFunction", "GluonJITFunction", "KernelInterface", "Autotuner", "CompiledKernel", "CudaLauncher"),
        *("CudaDriver", "launcher_cls", "packed_metadata", "device_caches", "pre_run_hooks", "_init_handles"),
        *("launch_enter_hook", "launch_exit_hook", "make_tensordesc_arg", "load_binary", "get_current_stream"),
        *("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchKernelExC"),
    }
)
#: The method that launches, of Triton's functions and of compiled kernels. A call of a function's method is seen.
_RUN = "run"


def bypassing(files: Mapping[str, bytes]) -> tuple[tuple[str, str], ...]:
    """Return the files that may launch kernels unseen, with a digest of each; empty if there are none.

    These are the modules that mention a part of Triton's launching, the modules that import one of them, and all that
    these modules import.

    Args:
        files: the files that a family depends on, by path: ``lockstep.machine_code.sources.suite_sources.tree_files``.
    """
    sources = {name: content for name, content in files.items() if name.endswith(".py")}
    naming = {name for name, content in sources.items() if _names_launching(content)}
    if not naming:
        return ()
    modules = {module_of(name)[0]: name for name in sources}
    imports = {
        name: set(sources) if read.any_import else {modules[module] for module in read.imports if module in modules}
        for name, content in sources.items()
        for read in [facts(content, *module_of(name))]
    }
    reached: set[str] = set()
    to_visit = [*naming, *(name for name, imported in imports.items() if imported & naming)]
    while to_visit:
        name = to_visit.pop()
        if name not in reached:
            reached.add(name)
            to_visit += imports[name]
    return tuple((name, _digest(sources[name], *module_of(name))) for name in sorted(reached))


def _digest(content: bytes, module: str, is_package: bool) -> str:
    """Return a digest of a module without comments, and without docstrings unless the module may read them."""
    tree = parsed(content)
    if tree is None or facts(content, module, is_package).reads_text:
        return digest(content)
    return digest(ast.dump(without_docstrings(tree)))


@functools.lru_cache(maxsize=4096)
def _names_launching(content: bytes) -> bool:
    tree = parsed(content)
    if tree is None:
        return False
    called: set[int] = set()
    for node in nodes(tree):
        if isinstance(node, ast.Call):
            called.add(id(node.func))
        text = node.value if isinstance(node, ast.Constant) else None
        name = node.name if isinstance(node, ast.alias) else text if isinstance(text, str) else word(node)
        if name.rpartition(".")[2] in LAUNCHING or text == _RUN:
            return True
        if isinstance(node, ast.Attribute) and name == _RUN and id(node) not in called:
            return True
    return False
