"""Describe the commits of an alert's range for people: who, when, what, and which of the kernel's files they change."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lockstep.processes.git import Git

#: Maximum number of commits that an alert describes.
MOST = 100

#: Maximum length of a subject, and number of files, that are kept.
_LONGEST, _MOST_FILES = 200, 5

#: Author, day, subject and changed files of each commit that git knows.
CommitLog = Mapping[str, tuple[str, str, str, tuple[str, ...]]]

_FORMAT = "--format=%x00%H%x00%an%x00%ad%x00%s"


@dataclass(frozen=True)
class CommitNote:
    """A commit that may be the culprit of an alert.

    Attributes:
        commit: full hash.
        author, day, subject: from git.
        touches: "benchmark" if it changes another project's benchmark, "kernel" if it changes files that bear the
            family's name, "packages" if it changes others of the packages under test, else "".
        files: the files of the benchmark or the kernel that it changes.
    """

    commit: str
    author: str
    day: str
    subject: str
    touches: str = ""
    files: tuple[str, ...] = ()


def read_log(git: Git, commits: Collection[str]) -> CommitLog:
    """Return author, day, subject and changed files of the commits that git knows."""
    command = ("log", "--no-walk=unsorted", "--ignore-missing", "--date=short", "--name-only", _FORMAT, "--stdin")
    known: dict[str, tuple[str, str, str, tuple[str, ...]]] = {}
    header: tuple[str, ...] = ()
    files: list[str] = []
    for line in [*(git.try_lines(*command, given=sorted(commits)) or () if commits else ()), "\0"]:
        if not line.startswith("\0"):
            files += [line] if line else []
            continue
        if header:
            known[header[0]] = (header[1], header[2], header[3], tuple(files))
        header, files = tuple(line[1:].split("\0", 3)), []
    return known


def notes(
    commits: Sequence[str],
    log: CommitLog,
    packages: Iterable[str],
    touching: Collection[str],
    family: str,
    names: Iterable[str],
) -> tuple[CommitNote, ...]:
    """Return the notes of a range: the commits that change the kernel's files first, each part with the newest first.

    Args:
        commits: the commits of the range, oldest first.
        log: see ``read_log``.
        packages: folders of the packages under test.
        touching: the commits that change the packages under test.
        family: the family's name. A file of the packages is the kernel's if its path has the words of this name.
        names: the names of the variant and its kernels; a file with their words comes before others. A table of tuned
            configurations counts for all of them.
    """
    folders = tuple("" if path == "." else f"{path.rstrip('/')}/" for path in packages)
    wanted, also = _words(family), {word for name in names for word in _words(name)}
    ranked = []
    for place, commit in enumerate(commits):
        if commit not in log:
            continue
        author, day, subject, changed = log[commit]
        files = [path for path in changed if wanted and path.startswith(folders) and wanted <= _words(path)]
        near = {path: len(also) if "tables" in _words(path) else len(also & _words(path)) for path in files}
        files.sort(key=lambda path: -near[path])
        touches = "kernel" if files else "packages" if commit in touching else ""
        nearness = 2 + near[files[0]] if files else bool(touches)
        note = CommitNote(commit, author, day, subject[:_LONGEST], touches, tuple(files[:_MOST_FILES]))
        ranked.append((-nearness, -place, note))
    return tuple(note for *_, note in sorted(ranked, key=lambda entry: entry[:2])[:MOST])


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[^a-z0-9]+", text.lower()) if word}
