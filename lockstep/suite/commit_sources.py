"""Provide the sources of a commit, or of the working tree, as a folder from which packages are imported."""

from __future__ import annotations

import contextlib
import io
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.processes.exit_status import UsageError
from lockstep.processes.git import Git, GitError
from lockstep.processes.toolchain import INSTALLED, Toolchain
from lockstep.suite.missing_files import TREE_PREFIX

#: Name of the working tree in place of a commit.
WORKING_TREE = "."


class RefError(UsageError):
    """The sources of a commit cannot be provided: git knows no such commit, or its files lead out of the tree."""


@dataclass(frozen=True)
class Tree:
    """The sources of the packages under test; ``name`` is the user's word for them, such as "HEAD~1" or "."."""

    name: str
    root: Path
    packages: tuple[str, ...]
    toolchain: Toolchain = INSTALLED

    @property
    def label(self) -> str:
        """Return the tree's name, and its toolchain unless that is the installed one: "HEAD with triton==3.6.0"."""
        return self.name if self.toolchain == INSTALLED else f"{self.name} with {self.toolchain.name}"


@contextlib.contextmanager
def sources(ref: str, repository: Path, packages: Sequence[str]) -> Iterator[Tree]:
    """Write the packages of a commit into a temporary folder, and yield that tree; for ".", yield the working tree.

    ``ref`` is "." or what git resolves to a commit, else ``RefError`` is raised. ``packages`` are folders at the root;
    those that the commit lacks are left out.
    """
    if ref == WORKING_TREE:
        yield Tree(ref, repository.resolve(), tuple(packages))
        return
    git = Git(repository)
    with tempfile.TemporaryDirectory(prefix=TREE_PREFIX) as folder:
        try:
            top = git.lines("rev-parse", "--show-toplevel")[0]  # the packages may be in a subfolder of the repository
            commit = git.try_line("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
            if not commit:
                raise RefError(
                    f"{top} has no commit {ref!r}; give a name that git knows, or . for the working tree "
                    "(in a workflow: fetch-depth: 0 at actions/checkout)"
                )
            present = git.lines("ls-tree", "--name-only", commit, "--", *packages)
            content = git.output("archive", commit, "--", *present) if present else b""
        except GitError as error:
            raise RefError(str(error)) from error
        if content:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                # Python 3.11.2 (Debian 12) has no filters and ignores this attribute.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                try:
                    archive.extractall(folder)
                except tarfile.TarError as error:
                    raise RefError(f"cannot unpack the packages of {ref}: {error}") from error
        yield Tree(ref, Path(folder).resolve(), tuple(packages))


def commits_in(folder: Path, span: str, paths: Sequence[str] = ()) -> list[tuple[str, int]]:
    """Return the commits of a range of git log that touch ``paths``, newest first, with their dates in ms since 1970.

    Raise ``RefError`` if git does not know the range.
    """
    touching = ["--", *paths] if paths else []
    try:
        lines = Git(folder).lines("log", "--first-parent", "--format=%H %at", *span.split(), *touching)
    except GitError as error:
        raise RefError(str(error)) from error
    return [(commit, 1000 * int(seconds)) for commit, seconds in (line.split() for line in lines)]
