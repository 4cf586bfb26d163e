"""Code that may launch kernels where no trace sees it, found by reading the sources.

A trace, an observation and the gate's check on a GPU stand in place of Triton's ``JITFunction.run``. Code that asks
whether something stands there, or that takes Triton's launcher from a compiled kernel, may do something else when
nothing looks. What it does then is in no trace, so its sources are an input of each trace of the family.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping

from lockstep.machine_code.sources import digest, module_of
from lockstep.machine_code.syntax import facts, nodes, parsed, word
from lockstep.suite.syntax import without_docstrings

#: Names of Triton's launching: its functions, compiled kernels, their launchers, hooks and streams.
LAUNCHING = frozenset(
    {
        *("JITFunction", "GluonJITFunction", "KernelInterface", "Autotuner", "CompiledKernel", "CudaLauncher"),
        *("CudaDriver", "launcher_cls", "packed_metadata", "device_caches", "pre_run_hooks", "_init_handles"),
        *("launch_enter_hook", "launch_exit_hook", "make_tensordesc_arg", "load_binary", "get_current_stream"),
        *("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchKernelExC"),
    }
)
#: What launches, of a function of Triton's and of a compiled kernel. Whoever calls it of a function is seen.
_RUN = "run"


def bypassing(files: Mapping[str, bytes]) -> tuple[tuple[str, str], ...]:
    """Return the files that may decide what is launched unseen, with a digest of each; empty where none can.

    These are the modules that name a part of Triton's launching, the modules that import one of them, and what all of
    these import.

    Args:
        files: what a family stands on, by path: ``lockstep.machine_code.suite_sources.tree_files``.
    """
    sources = {name: content for name, content in files.items() if name.endswith(".py")}
    naming = {name for name, content in sources.items() if _names_launching(content)}
    if not naming:
        return ()
    modules = {module_of(name)[0]: name for name in sources}
    imports = {
        name: set(sources) if read.any_import else {modules[one] for one in read.imports if one in modules}
        for name, content in sources.items()
        for read in [facts(content, *module_of(name))]
    }
    found: set[str] = set()
    waiting = [*naming, *(name for name, imported in imports.items() if imported & naming)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports[name]
    return tuple((name, _digest(sources[name], *module_of(name))) for name in sorted(found))


def _digest(content: bytes, module: str, is_package: bool) -> str:
    """Of a module without comments, and without docstrings unless it may read them."""
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
