"""Provide the code that a tree's cases run: from the cache, or traced and compiled in a process of its own."""

from __future__ import annotations

import os
import platform
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, lru_cache
from pathlib import Path

from lockstep.gpu.triton_assembler import ASSEMBLER, own_assembler
from lockstep.machine_code.cache import Cache
from lockstep.machine_code.compiling.compiler_facts import CompilerFacts
from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode
from lockstep.machine_code.targets import Target
from lockstep.machine_code.worker_session import Session, TracingFailed
from lockstep.processes.toolchain import Toolchain
from lockstep.processes.worker import spelled, typed
from lockstep.suite.commit_sources import Tree
from lockstep.suite.definition import Suite
from lockstep.suite.family_files import definition_files, digest, family_files

Say = Callable[[str], None]

#: Prefixes of environment variables that a compiler or a kernel may read; where caches lie has no effect on code.
DECIDING = ("TRITON_", "MLIR_", "LLVM_", "DISABLE_", "PTXAS_", "LOCKSTEP_KERNEL_")
NOT_DECIDING = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_INTERPRET")


def codes_of(
    tree: Tree,
    suites: Iterable[Suite],
    target: Target,
    *,
    cases: Mapping[str, Sequence[str]] | None = None,
    cache: Cache | None = None,
    say: Say = lambda line: None,
) -> Mapping[CaseKey, CaseCode]:
    """Return the code of every case with every kernel compiled; cases that the tree lacks are marked as absent.

    ``suites`` are the current ones, whatever commit the tree holds; ``cases`` are labels by suite, by default all;
    ``cache`` is by default the user's. Raise ``TracingFailed`` if the process that traces the tree does not start, or
    dies.
    """
    with Reader(tree, suites, target, cache, say, cases) as reader:
        return reader.compiled()


def compile_ahead(
    tree: Tree, suites: Iterable[Suite], target: Target, limit_s: float, say: Say = lambda line: None
) -> bool:
    """Compile the kernels of all cases into Triton's cache, where a process that launches them finds them.

    Return False, without compiling, if the same sources were compiled before. After ``limit_s`` seconds, or if the tree
    cannot be traced, the remaining kernels are left to the process that launches them.
    """
    with Reader(tree, suites, target, say=say) as reader:
        folder = Path(os.environ.get("TRITON_CACHE_DIR", Path.home() / ".triton" / "cache"))
        done = folder / f"lockstep-{reader.key}"
        if done.exists():
            return False
        timer = threading.Timer(limit_s, reader.stop)
        timer.start()
        try:
            reader.compiled(anew=True)
            folder.mkdir(parents=True, exist_ok=True)
            done.touch()
        except TracingFailed:
            pass
        finally:
            timer.cancel()
    return True


class Reader(Session):
    """Returns the code of a tree's cases, from the cache or a process. ``key`` is a digest of all that decides it."""

    def __init__(
        self,
        tree: Tree,
        suites: Iterable[Suite],
        target: Target,
        cache: Cache | None = None,
        say: Say = lambda line: None,
        cases: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        suites = list(suites)
        # Each of two trees may use all processors, because the cache often has the other.
        super().__init__(tree, target, suites[0].home if suites else tree.root, processors_here())
        self._cases = cases
        self._surroundings = _surroundings(tree.toolchain)
        # Read now rather than on demand: two readers run in parallel, and in CPython 3.11 (seen in 3.11.7) two threads
        # that parse at once sometimes fail with "AST constructor recursion depth mismatch" (gh-106905).
        self._keys = {suite.name: self._key(suite) for suite in suites}
        self.key = digest(*self._keys.values())
        self._cache = cache or Cache()
        self._say = say

    def described(self) -> CompilerFacts:
        """Return the versions and the default options of the tree's compiler."""
        key = f"compiler {digest(spelled(self.target), self._surroundings)}"
        if key not in (cached := self._cache.get([key])):
            answer = self.request("describing the compiler of", "described", describe={})
            cached = {key: answer}
            self._cache.put(cached)
        return typed(CompilerFacts, cached[key])

    def cached(self) -> dict[CaseKey, CaseCode]:
        """Return the code of the cases that the cache holds, and their kernels' machine code; start no process."""
        codes = {key: code for key, code in self._cached_cases()[0].items() if not code.absent}
        return _completed(codes, self._cached_kernels(_identities(codes)))

    def traced(self) -> dict[CaseKey, CaseCode]:
        """Return the code of every case, with no kernel compiled; cases that the tree lacks are marked as absent."""
        codes, missing = self._cached_cases()
        if missing:
            self._say(f"tracing {', '.join(missing)} of {self.tree.label} for {self.target.name}")
            fresh = self.trace(missing, self._cases)
            for name in missing:
                rows = [[key.variant, key.case, asdict(code)] for key, code in fresh.items() if key.suite == name]
                self._cache.put({self._keys[name]: rows})
            codes |= fresh
        return codes

    def compiled(self, *, anew: bool = False) -> dict[CaseKey, CaseCode]:
        """Return the code of every case with every kernel compiled; ``anew`` is that of ``built``."""
        codes = self.traced()
        return self.built(codes, _identities(codes), anew=anew)

    def built(
        self, codes: Mapping[CaseKey, CaseCode], identities: Iterable[str], *, anew: bool = False
    ) -> dict[CaseKey, CaseCode]:
        """Return ``codes`` with machine code for the kernels ``identities``: from the cache, else compiled.

        With ``anew`` all of these kernels are compiled, so that Triton's own cache has them for a later launch.
        """
        requested = sorted(set(identities))
        known = {} if anew else self._cached_kernels(requested)
        missing = [identity for identity in requested if identity not in known]
        if missing:
            self._say(f"compiling {len(missing)} kernels of {self.tree.label} for {self.target.name}")
            users = {key.suite for key, code in codes.items() if not _identities({key: code}).isdisjoint(missing)}
            if not users <= self._traced:
                self.trace(sorted(users), self._cases)
            answer = self.request("compiling", "built", build=missing)
            self._cache.put({row["identity"]: row for row in answer["kernels"]})
            known |= {row["identity"]: typed(KernelCode, row) for row in answer["kernels"]}
        return _completed(codes, known)

    def _key(self, suite: Suite) -> str:
        """Return the key under which the cache holds the cases of a suite."""
        files = family_files(self.tree.root, self.tree.packages, suite).files
        definition = definition_files(suite, self.tree.packages).files
        chosen = f"{suite.name} {self.target} {None if self._cases is None else self._cases[suite.name]}"
        named = _named_variables([*files.values(), *definition.values()])
        return f"cases {digest(chosen, files, definition, named, self._surroundings)}"

    def _cached_cases(self) -> tuple[dict[CaseKey, CaseCode], list[str]]:
        """Return the code of cases that the cache holds, and the suites whose cases it lacks."""
        known = self._cache.get(self._keys.values())
        codes = {
            CaseKey(name, *labels): typed(CaseCode, row)
            for name, key in self._keys.items()
            for *labels, row in known.get(key, ())
        }
        return codes, [name for name, key in self._keys.items() if key not in known]

    def _cached_kernels(self, identities: Iterable[str]) -> dict[str, KernelCode]:
        return {identity: typed(KernelCode, row) for identity, row in self._cache.get(identities).items()}


def _named_variables(texts: Iterable[bytes]) -> str:
    """Return the environment variables that are named in texts, and their values: code may read them."""
    variables = frozenset(os.environb)
    named = frozenset[bytes]().union(*(_among(variables, text) for text in texts))
    return "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items()) if os.fsencode(name) in named)


@lru_cache(maxsize=8192)  # the suites of a package share its files, and are asked for once a target
def _among(names: frozenset[bytes], text: bytes) -> frozenset[bytes]:
    """Return the names that are words of a text."""
    return names.intersection(re.findall(rb"\w+", text))


def _identities(codes: Mapping[CaseKey, CaseCode]) -> set[str]:
    return {kernel.identity for code in codes.values() for kernel in code.kernels}


def _completed(codes: Mapping[CaseKey, CaseCode], known: Mapping[str, KernelCode]) -> dict[CaseKey, CaseCode]:
    """Return ``codes`` with the machine code of known kernels. Each kernel keeps its own file and line."""

    def complete(kernel: KernelCode) -> KernelCode:
        compiled = known.get(kernel.identity)
        return replace(kernel, machine=compiled.machine, failure=compiled.failure) if compiled else kernel

    return {
        key: replace(code, kernels=tuple(complete(kernel) for kernel in code.kernels)) for key, code in codes.items()
    }


@cache
def _surroundings(toolchain: Toolchain) -> str:
    """Return a digest of what may affect code besides the tree: Lockstep, installed packages, environment variables."""
    home = Path(__file__).parents[1]
    harness = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*.py")}
    variables = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith(DECIDING)
        and name not in NOT_DECIDING
        # Setting the variable to the assembler that Triton uses by default, as measuring processes do, has no effect.
        and (name, value) != (ASSEMBLER, str(own_assembler()))
    )
    return digest(harness, platform.python_version(), toolchain.digest(), "\n".join(variables))


def processors_here() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))
