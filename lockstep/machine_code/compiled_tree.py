"""Provide the code that a tree's cases run: from the cache, or traced and compiled in a process of its own."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from lockstep.gpu.triton_assembler import ASSEMBLER, own_assembler
from lockstep.machine_code.cache import Cache
from lockstep.machine_code.compiling.compiler_facts import CompilerFacts, facts_from
from lockstep.machine_code.family_files import definition_files, digest, family_files
from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode, case_code_from, kernel_code_from
from lockstep.machine_code.targets import Target
from lockstep.machine_code.worker_session import Session, Tree
from lockstep.processes.toolchain import Toolchain
from lockstep.suite.definition import Suite

Say = Callable[[str], None]

#: Prefixes of environment variables that a compiler or a kernel may read; where caches lie has no effect on code.
DECIDING = ("TRITON_", "MLIR_", "LLVM_", "DISABLE_", "PTXAS_", "LOCKSTEP_KERNEL_")
NOT_DECIDING = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_INTERPRET")


def codes_of(
    tree: Tree,
    suites: Iterable[Suite],
    target: Target,
    *,
    processes: int | None = None,
    cases: Mapping[str, Sequence[str]] | None = None,
    anew: bool = False,
    cache: Cache | None = None,
    say: Say = lambda line: None,
) -> Mapping[CaseKey, CaseCode]:
    """Return the code of every case with every kernel compiled; cases that the tree lacks are marked as absent.

    Args:
        tree: the sources of the packages under test.
        suites: current suites, whatever commit the tree holds.
        processes: number of processes that compile at once; by default one for each processor.
        cases: case labels by suite; by default all.
        anew: compile even kernels that are in our cache, so that Triton's own cache has them for a later launch.
        cache: results of earlier calls; by default the user's cache.
        say: receives a line of progress before each long step.

    Raises:
        TracingFailed: the process that traces the tree does not start, or dies.
    """
    with Reader(tree, list(suites), processes or processors_here(), cache or Cache(), say, cases) as reader:
        codes = reader.traced(target)
        return reader.built(target, codes, _identities(codes), anew=anew)


def cached_codes(tree: Tree, suites: Iterable[Suite], target: Target) -> Mapping[CaseKey, CaseCode]:
    """Return the code of the cases that the cache holds. Unlike ``codes_of``, this function starts no process."""
    return Reader(tree, list(suites), 1, Cache(), lambda line: None).cached(target)


def compiler_of(tree: Tree, suites: Iterable[Suite], target: Target) -> CompilerFacts:
    """Return the versions and the default options of a tree's compiler. Raises the errors of ``codes_of``."""
    with Reader(tree, list(suites), 1, Cache(), lambda line: None) as reader:
        return reader.described(target)


class Reader:
    """Returns the code that the cases of one tree run, from the cache or from a process of its own."""

    def __init__(
        self,
        tree: Tree,
        suites: Sequence[Suite],
        processes: int,
        cache: Cache,
        say: Say,
        cases: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._tree = tree
        self._cases = cases
        # Read now rather than on demand: two readers run in parallel, and in CPython 3.11 (seen in 3.11.7) two threads
        # that parse at once sometimes fail with "AST constructor recursion depth mismatch" (gh-106905).
        self._sources = {
            suite.name: digest(
                family_files(tree.root, tree.packages, suite).files, definition_files(suite, tree.packages)
            )
            for suite in suites
        }
        self._cache = cache
        self._say = say
        self._surroundings = _surroundings(tree.toolchain)
        home = suites[0].home if suites else tree.root
        self._session = Session(tree, home, processes, cases)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def stop(self) -> None:
        """End the tracing process, so that another thread's call, which waits for it, fails at once."""
        self._session.stop()

    def described(self, target: Target) -> CompilerFacts:
        """Return the versions and the default options of the tree's compiler."""
        key = f"compiler {digest(target.spell(), self._surroundings)}"
        if key not in (cached := self._cache.get([key])):
            cached = {key: asdict(self._session.describe(target))}
            self._cache.put(cached)
        return facts_from(cached[key])

    def cached(self, target: Target) -> dict[CaseKey, CaseCode]:
        """Return the code of the cases that the cache holds, with the cached machine code of their kernels."""
        codes = {key: code for key, code in self._cached_cases(target)[0].items() if not code.absent}
        return _completed(codes, self._cached_kernels(_identities(codes)))

    def traced(self, target: Target) -> dict[CaseKey, CaseCode]:
        """Return the code of every case, with no kernel compiled; cases that the tree lacks are marked as absent."""
        codes, missing = self._cached_cases(target)
        if missing:
            self._say(f"tracing {', '.join(missing)} of {self._tree.label} for {target.name}")
            fresh = self._session.trace(missing, target)
            for name in missing:
                rows = [[key.variant, key.case, asdict(code)] for key, code in fresh.items() if key.suite == name]
                self._cache.put({missing[name]: rows})
            codes |= fresh
        return codes

    def built(
        self, target: Target, codes: Mapping[CaseKey, CaseCode], identities: Iterable[str], *, anew: bool = False
    ) -> dict[CaseKey, CaseCode]:
        """Return ``codes`` with machine code for the kernels ``identities``: from the cache, else compiled.

        With ``anew`` all of these kernels are compiled.
        """
        requested = sorted(set(identities))
        known = {} if anew else self._cached_kernels(requested)
        missing = [identity for identity in requested if identity not in known]
        if missing:
            self._say(f"compiling {len(missing)} kernels of {self._tree.label} for {target.name}")
            users = {
                key.suite for key, code in codes.items() if any(kernel.identity in missing for kernel in code.kernels)
            }
            fresh = self._session.build(missing, sorted(users), target)
            self._cache.put({identity: asdict(kernel) for identity, kernel in fresh.items()})
            known |= fresh
        return _completed(codes, known)

    def _cached_cases(self, target: Target) -> tuple[dict[CaseKey, CaseCode], dict[str, str]]:
        """Return the code of cases that the cache holds, and the cache key of each suite whose cases it lacks."""
        keys = {name: self._key(name, target) for name in self._sources}
        known = self._cache.get(keys.values())
        codes: dict[CaseKey, CaseCode] = {}
        for name, key in keys.items():
            cached = {CaseKey(name, *labels): case_code_from(row) for *labels, row in known.get(key, ())}
            if not all(map(_still_so, cached.values())):
                known.pop(key)
                continue
            codes |= cached
        return codes, {name: key for name, key in keys.items() if key not in known}

    def _cached_kernels(self, identities: Iterable[str]) -> dict[str, KernelCode]:
        return {identity: kernel_code_from(row) for identity, row in self._cache.get(identities).items()}

    def _key(self, suite: str, target: Target) -> str:
        """Return a key that depends on everything that decides the code of a suite's cases."""
        chosen = "" if self._cases is None else f" {self._cases[suite]}"
        return "cases " + digest(f"{suite} {target}{chosen}", self._sources[suite], self._surroundings)


def _still_so(code: CaseCode) -> bool:
    """Return whether the environment variables still have the values that the case's trace read."""
    return all(os.environ.get(name) == value for name, value in code.environment)


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
