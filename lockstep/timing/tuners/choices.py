"""Store which configurations tuners chose: ``results/tuned.choices``, one choice a line.

What a tuner chooses is noise of several percent: two runs time the same configurations and choose differently. So an
equal kernel with an equal list of configurations at an equal key takes one stored choice on one kind of GPU with one
toolchain: base and head of a gate, all commits of a history, all runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.record.configurations import joined, without_shared
from lockstep.record.file import RecordError, replace_file

#: Name of the file in the folder of results. asv takes each ``*.json`` there for a result, skipped with a warning.
NAME = "tuned.choices"

#: Name of the file until November 2026. It is read where there is no other, and replaced.
_EARLIER = "tuned.json"

#: A sentence names at most this many configurations that a list lost or gained.
_NAMED = 3


@dataclass(frozen=True)
class Choice:
    """The configuration in which a tuned kernel runs.

    Attributes:
        kernel: module and name of the kernel.
        source: digest of everything that decides the kernel besides its arguments: its code, the code that it calls,
            its heuristics, and the functions that prune its list.
        configurations: what each configuration of the list sets ("BLOCK 64, num_warps 8"), in the list's order.
        key: the arguments and dtypes for which the tuner chooses anew.
        where: the GPU and the toolchain.
        chosen: one of ``configurations``; "" while nothing is chosen.
    """

    kernel: str
    source: str
    configurations: tuple[str, ...] = field(repr=False)
    key: str
    where: str
    chosen: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """Return everything that decides the choice. The order of the list does not count."""
        return self.kernel, self.source, digest(*sorted(self.configurations)), self.key, self.where

    @property
    def name(self) -> str:
        """Return the name of the kernel without its module."""
        return self.kernel.rpartition(".")[2]


class Choices:
    """The stored choices; several processes may add to one file. Without ``path`` they last as long as the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[tuple[str, ...], Choice] = {}
        self._read_at: tuple[int, ...] = ()

    def of(self, asked: Choice) -> str:
        """Return the stored choice for a kernel, list, key and place; "" if there is none."""
        self._read()
        return self._known[asked.identity].chosen if asked.identity in self._known else ""

    def last(self, asked: Choice) -> str:
        """Return what was chosen last for a kernel of this name at this key, in whatever version; "" if nothing was."""
        self._read()
        kernel = asked.kernel, asked.key, asked.where
        same = [one for one in self._known.values() if (one.kernel, one.key, one.where) == kernel]
        return same[-1].chosen if same else ""

    def add(self, choice: Choice) -> None:
        """Store a choice. The caller holds the lock with which all processes choose."""
        self._read()
        self._known[choice.identity] = choice
        self._write()

    def join(self, other: Choices) -> None:
        """Take over choices that are not stored here. The caller lets no other process choose meanwhile."""
        self._read()
        other._read()
        if not other._known.keys() <= self._known.keys():
            self._known = {**other._known, **self._known}
            self._write()

    def _read(self) -> None:
        """Read the file if it changed since it was read last."""
        if self._path is None:
            return
        path = self._path if self._path.exists() else self._path.with_name(_EARLIER)
        try:
            status = path.stat()
        except FileNotFoundError:
            return
        if self._read_at == (status.st_mtime_ns, status.st_ino):
            return
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            lists = stored["lists"]
            rows = [{**row, "configurations": tuple(lists[row["configurations"]])} for row in stored["choices"]]
            self._known = {choice.identity: choice for choice in (Choice(**row) for row in rows)}
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"{path} does not hold choices of tuners ({error!r}). Restore the file of the same commit as the "
                "results, or delete it: then kernels are tuned again"
            ) from error
        self._read_at = (status.st_mtime_ns, status.st_ino)

    def _write(self) -> None:
        if self._path is None:
            return
        lists = {digest(*one.configurations): one.configurations for one in self._known.values()}
        rows = [{**vars(one), "configurations": digest(*one.configurations)} for one in self._known.values()]
        text = f'{{"lists": {{{_lines(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in lists.items())}}},\n'
        replace_file(self._path, f'{text}"choices": [{_lines(map(json.dumps, rows))}]}}\n')
        self._path.with_name(_EARLIER).unlink(missing_ok=True)
        self._read_at = ()


def differences(base: Iterable[Choice], head: Iterable[Choice]) -> list[str]:
    """Return a sentence for each kernel that runs in another configuration in head, or whose list changed."""
    before = {(one.kernel, one.key): one for one in base}
    sentences = []
    for new in head:
        old = before.get((new.kernel, new.key))
        if old is None:
            continue
        was, is_now = without_shared([old.chosen, new.chosen], (*old.configurations, *new.configurations))
        chosen = f"chosen {is_now} as before" if was == is_now else f"chosen {is_now} instead of {was}"
        reason = _changed(old, new)
        if reason or was != is_now:
            sentences.append(f"{new.name}: {'; '.join(filter(None, (reason, chosen)))}")
    return list(dict.fromkeys(sentences))


def spelled(choice: Choice) -> str:
    """Return what the choice sets, without what all configurations of the list set alike."""
    return without_shared([choice.chosen], choice.configurations)[0]


def chosen_by_kernel(choices: Iterable[Choice]) -> dict[str, str]:
    """Return what is chosen for each kernel, for a record; a kernel that runs at several keys has several choices."""
    by_kernel: dict[str, list[str]] = {}
    for choice in choices:
        by_kernel.setdefault(choice.name, []).append(spelled(choice))
    return {name: joined(texts) for name, texts in by_kernel.items()}


def digest(*parts: str) -> str:
    """Return a short digest of some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _changed(old: Choice, new: Choice) -> str:
    """Return how head's list or kernel differs; "" if neither does."""
    lists = (("lost", old.configurations, new.configurations), ("gained", new.configurations, old.configurations))
    parts = [f"{verb} {told}" for verb, some, others in lists if (told := _only_in(some, others))]
    if old.source != new.source:
        parts = [f"head's list {' and '.join(parts)}"] if parts else []
        return "; ".join(["head's kernel changed, so it was tuned again", *parts])
    return f"head's list {' and '.join(parts)}" if parts else ""


def _only_in(some: Sequence[str], others: Sequence[str]) -> str:
    """Spell the configurations that only the first list has, by a setting of their own if they share one."""
    only = [one for one in some if one not in others]
    if not only:
        return ""
    elsewhere = {part for one in others for part in one.split(", ")}
    shared = [part for part in only[0].split(", ") if all(part in one.split(", ") for one in only)]
    if own := [part for part in shared if part not in elsewhere]:
        return ", ".join(own)
    return ", ".join(without_shared(only, (*some, *others))) if len(only) <= _NAMED else f"{len(only)} configurations"


def _lines(texts: Iterable[str]) -> str:
    return "\n" + ",\n".join(texts) + "\n"


def where_of(host: Mapping[str, str]) -> str:
    """Return the text for a GPU and the toolchain that compiles for it, from the facts of the machine."""
    compiler = ", ".join(f"{name} {host[name]}" for name in ("triton", "ptxas") if host.get(name))
    return f"{host.get('gpu') or 'cpu'}, {compiler}"
