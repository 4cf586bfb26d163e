"""The code of two trees side by side, with as little tracing and compiling as it takes.

A family whose sources are the same in both trees, but for comments, is the same. The others are traced, and of their
kernels only those are compiled that the compiler is given differently.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib.metadata import distributions
from pathlib import Path

from lockstep.gpu.toolchain import ASSEMBLER, own_assembler
from lockstep.machine_code.cache import Cache
from lockstep.machine_code.differences import CodeChange, differences, differing
from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode, case_code_from, kernel_code_from
from lockstep.machine_code.session import Session, TooSlow, TracingFailed, Tree
from lockstep.machine_code.sources import digest, same_code
from lockstep.machine_code.suite_sources import definition_files, tree_files
from lockstep.machine_code.targets import Target
from lockstep.suite.model import Suite

#: Environment variables that a compiler or a kernel may read; where caches lie decides nothing.
DECIDING = ("TRITON_", "MLIR_", "LLVM_", "DISABLE_", "PTXAS_", "LOCKSTEP_KERNEL_")
NOT_DECIDING = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_INTERPRET")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """What two trees do, for one target.

    Attributes:
        target: what kernels are compiled for.
        base, head: code of the cases that were traced; kernels that are the same in both are not compiled.
        same_sources: suites whose family has the same sources in both trees, but for comments; none of their cases is
            traced.
    """

    target: Target
    base: Mapping[CaseKey, CaseCode]
    head: Mapping[CaseKey, CaseCode]
    same_sources: frozenset[str] = frozenset()

    @cached_property
    def changes(self) -> tuple[CodeChange, ...]:
        """Everything that differs; empty if nothing does."""
        return differences(self.base, self.head)

    def status(self, key: CaseKey) -> str:
        """ "same" (proved), "changed", "unknown", "new", "removed"; "unknown" also for a case neither tree has."""
        if key.suite in self.same_sources:
            return "same"
        base, head = self.base.get(key), self.head.get(key)
        if base is None or head is None:
            return "new" if head else "removed" if base else "unknown"
        if base.unknown or head.unknown:
            return "unknown"
        return "same" if base.same_as(head) else "changed"

    def reason(self, key: CaseKey) -> str:
        """Why: a sentence for each change that touches the case; for a same one what proves it."""
        if key.suite in self.same_sources:
            return "its sources are the same but for comments"
        touching = [str(change) for change in self.changes if key in change.cases]
        if touching:
            return "; ".join(touching)
        return "the same machine code and the same calls" if self.status(key) == "same" else "in neither tree"


def compare(
    base: Tree,
    head: Tree,
    suites: Iterable[Suite],
    target: Target,
    *,
    cache: Cache | None = None,
    say: Say = lambda line: None,
    limit_s: float | None = None,
) -> Comparison:
    """Trace both trees and compile what they have the compiler do differently.

    Args:
        base: sources before.
        head: sources after.
        suites: today's; the same ruler for both.
        target: what to compile for.
        cache: what was found out before; by default the user's.
        say: told what takes long.
        limit_s: seconds for tracing and compiling; ``None`` for as many as it takes.

    Raises:
        TooSlow: ``limit_s`` was not enough.
        TracingFailed: a tree's process does not start.
    """
    chosen = list(suites)
    same = {suite.name for suite in chosen if same_code(_family_sources(base, suite), _family_sources(head, suite))}
    rest = [suite for suite in chosen if suite.name not in same]
    if not rest:
        return Comparison(target, {}, {}, frozenset(same))
    kept = cache or Cache()
    each = max(1, _processors() // 2)
    with (
        _Reader(base, rest, each, kept, say) as mine,
        _Reader(head, rest, each, kept, say) as its,
        ThreadPoolExecutor(2) as both,
    ):
        ended = threading.Event()
        late = threading.Timer(limit_s or 0.0, _end, (ended, mine, its))
        late.daemon = True
        try:
            if limit_s is not None:
                late.start()
            before, after = both.map(lambda reader: reader.traced(target), (mine, its))
            wanted = differing(before, after)
            before, after = both.map(
                lambda reader, codes, identities: reader.built(target, codes, identities),
                (mine, its), (before, after), wanted,
            )  # fmt: skip
        except TracingFailed as failed:
            mine.stop()
            its.stop()
            if ended.is_set():
                names = ", ".join(suite.name for suite in rest)
                raise TooSlow(f"comparing the code of {names} took more than {limit_s:.0f} s") from failed
            raise
        except BaseException:
            # Leaving the pool waits for its threads, and they for processes that may compile for a minute more.
            mine.stop()
            its.stop()
            raise
        finally:
            late.cancel()
    return Comparison(target, before, after, frozenset(same))


def _end(ended: threading.Event, *readers: _Reader) -> None:
    ended.set()
    for reader in readers:
        reader.stop()


def codes_of(
    tree: Tree,
    suites: Iterable[Suite],
    target: Target,
    *,
    processes: int | None = None,
    anew: bool = False,
    cache: Cache | None = None,
    say: Say = lambda line: None,
) -> Mapping[CaseKey, CaseCode]:
    """The code of every case, every kernel compiled.

    Args:
        tree: sources.
        suites: today's.
        target: what to compile for.
        processes: that compile at once; by default one for each processor.
        anew: compile also what is known, so that Triton's own cache has it for whoever launches it.
        cache: what was found out before; by default the user's.
        say: told what takes long.

    Raises:
        TracingFailed: the tree's process does not start.
    """
    with _Reader(tree, list(suites), processes or _processors(), cache or Cache(), say) as reader:
        codes = reader.traced(target)
        return reader.built(target, codes, _identities(codes), anew=anew)


def kept_codes(
    tree: Tree, suites: Iterable[Suite], target: Target, cache: Cache | None = None
) -> Mapping[CaseKey, CaseCode]:
    """As ``codes_of``, from the cache alone: nothing is started, and what is not kept is left out."""
    return _Reader(tree, list(suites), 1, cache or Cache(), lambda line: None).kept(target)


class _Reader:
    """Finds out what one tree does: from the cache, else in a process of its own."""

    def __init__(self, tree: Tree, suites: Sequence[Suite], processes: int, cache: Cache, say: Say) -> None:
        self._tree = tree
        # Read here and not when asked: readers are asked side by side, and in CPython 3.11 (seen in 3.11.7) two threads
        # that parse at once fail now and then with "AST constructor recursion depth mismatch" (gh-106905).
        self._sources = {suite.name: _sources_of(tree, suite) for suite in suites}
        self._cache = cache
        self._say = say
        home = suites[0].home if suites else tree.root
        self._session = Session(tree, home, processes)

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def stop(self) -> None:
        """End what another thread waits for."""
        self._session.stop()

    def kept(self, target: Target) -> dict[CaseKey, CaseCode]:
        """Code of the cases that the cache knows, with the machine code that it knows."""
        codes = self._kept_cases(target)[0]
        return _completed(codes, self._kept_kernels(_identities(codes)))

    def traced(self, target: Target) -> dict[CaseKey, CaseCode]:
        """Code of every case, no kernel compiled."""
        codes, missing = self._kept_cases(target)
        if missing:
            self._say(f"tracing {', '.join(missing)} of {self._tree.name} for {target.name}")
            fresh = self._session.trace(missing, target)
            for name in missing:
                rows = [[key.variant, key.case, asdict(code)] for key, code in fresh.items() if key.suite == name]
                self._cache.put({missing[name]: rows})
            codes |= fresh
        return codes

    def built(
        self, target: Target, codes: Mapping[CaseKey, CaseCode], identities: Iterable[str], *, anew: bool = False
    ) -> dict[CaseKey, CaseCode]:
        """The same with these kernels compiled."""
        wanted = sorted(set(identities))
        known = {} if anew else self._kept_kernels(wanted)
        missing = [one for one in wanted if one not in known]
        if missing:
            self._say(f"compiling {len(missing)} kernels of {self._tree.name} for {target.name}")
            users = {key.suite for key, code in codes.items() if any(one.identity in missing for one in code.kernels)}
            fresh = self._session.build(missing, sorted(users), target)
            self._cache.put({one: asdict(kernel) for one, kernel in fresh.items()})
            known |= fresh
        return _completed(codes, known)

    def _kept_cases(self, target: Target) -> tuple[dict[CaseKey, CaseCode], dict[str, str]]:
        """Code of the cases that the cache knows, and the suites that it does not, with their keys."""
        keys = {name: self._key(name, target) for name in self._sources}
        known = self._cache.get(keys.values())
        codes: dict[CaseKey, CaseCode] = {}
        for name, key in keys.items():
            found = {CaseKey(name, *which): case_code_from(row) for *which, row in known.get(key, ())}
            if not all(map(_still_so, found.values())):
                known.pop(key)
                continue
            codes |= found
        return codes, {name: key for name, key in keys.items() if key not in known}

    def _kept_kernels(self, identities: Iterable[str]) -> dict[str, KernelCode]:
        return {one: kernel_code_from(row) for one, row in self._cache.get(identities).items()}

    def _key(self, suite: str, target: Target) -> str:
        """Of everything that decides what the cases of a suite do."""
        return "cases " + digest(f"{suite} {target} {self._tree.trusted}", self._sources[suite], _surroundings())


def _still_so(code: CaseCode) -> bool:
    """Whether the environment answers as it did when the case was traced."""
    return all(os.environ.get(name) == value for name, value in code.environment)


def _identities(codes: Mapping[CaseKey, CaseCode]) -> set[str]:
    return {kernel.identity for code in codes.values() for kernel in code.kernels}


def _completed(codes: Mapping[CaseKey, CaseCode], known: Mapping[str, KernelCode]) -> dict[CaseKey, CaseCode]:
    """The codes with the machine code of known kernels; where a kernel stands in the sources is the tree's own."""

    def complete(kernel: KernelCode) -> KernelCode:
        found = known.get(kernel.identity)
        return replace(kernel, machine=found.machine, failure=found.failure) if found else kernel

    return {key: replace(code, kernels=tuple(complete(one) for one in code.kernels)) for key, code in codes.items()}


def _sources_of(tree: Tree, suite: Suite) -> str:
    """Digest of what a suite's family and the suite itself stand on."""
    return digest(_family_sources(tree, suite), definition_files(suite, tree.packages))


def _family_sources(tree: Tree, suite: Suite) -> dict[str, bytes]:
    return tree_files(tree.root, tree.packages, suite)


@cache
def _surroundings() -> str:
    """Of this version of lockstep, of all that is installed, and of the environment: a kernel may import anything."""
    home = Path(__file__).parents[1]
    harness = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*.py")}
    installed = sorted(f"{one.metadata['Name']} {one.version}" for one in distributions())
    variables = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith(DECIDING)
        and name not in NOT_DECIDING
        # Naming the assembler that Triton takes anyway, as measuring processes do, decides nothing.
        and (name, value) != (ASSEMBLER, str(own_assembler()))
    )
    return digest(harness, platform.python_version(), "\n".join(installed), "\n".join(variables))


def _processors() -> int:
    return len(os.sched_getaffinity(0))
