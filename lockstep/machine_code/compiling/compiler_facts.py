"""Describe a compiler by its versions and default options, and list how two compilers differ."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lockstep.gpu.triton_assembler import assembler_version
from lockstep.machine_code.targets import Target
from lockstep.processes.toolchain import INSTALLED

#: Options that say where files are, or repeat the target.
_PLACES = ("extern_libs", "arch")


@dataclass(frozen=True)
class CompilerFacts:
    """Facts about a toolchain that compiles for one target.

    ``versions`` are those of "triton", "torch", "python" and the assembler "ptxas"; ``options`` are default compile
    options of Triton's backend as Python expressions: {"enable_fp_fusion": "True"}.
    """

    versions: Mapping[str, str]
    options: Mapping[str, str]


def compiler_facts(target: Target) -> CompilerFacts:
    """Return the versions and default options of the compiler that this process would use for ``target``."""
    from triton.compiler.compiler import make_backend

    installed = INSTALLED.versions()
    versions = {name: installed.get(name, "") for name in ("triton", "torch")}
    versions |= {"python": platform.python_version(), "ptxas": assembler_version(target.arch)}
    # Parsed rather than read from the class: some defaults depend on the target and on Triton's settings.
    options = make_backend(target.for_triton()).parse_options({})
    defaults = {name: repr(value) for name, value in vars(options).items() if name not in _PLACES}
    return CompilerFacts(versions, defaults)


def compiler_differences(base: CompilerFacts, head: CompilerFacts) -> Iterator[str]:
    """Yield a sentence for each version, then for each default option, that differs."""
    for name in {**base.versions, **head.versions}:
        before, after = (side.versions.get(name, "") for side in (base, head))
        if before != after:
            yield f"{name} {before or 'none'} → {after or 'none'}"
    for name in {**base.options, **head.options}:
        old, new = base.options.get(name), head.options.get(name)
        if old is None or new is None:
            yield f"no option {name} any more, by default {old}" if old else f"new option {name}, by default {new}"
        elif old != new:
            yield f"default of {name} {old} → {new}"
