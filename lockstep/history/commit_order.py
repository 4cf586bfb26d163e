"""The order of commits: git's order if a repository is available, otherwise by date."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lockstep.history.asv_file_header import FULL_HASH
from lockstep.history.model import Commit
from lockstep.processes.git import Git

#: Seconds that one git command may take.
_TIMEOUT_S = 30.0


def order_commits(dates: Mapping[str, int], repo: Path) -> tuple[Commit, ...]:
    """Return the commits with their subjects, oldest first and parents before children.

    Args:
        dates: full hash to date in ms since 1970.
        repo: a folder in a git repository. For any other folder, subjects are empty and the order is by date.
    """
    known = _git_log(sorted(dates), repo)
    placed: list[tuple[int, int, int, Commit]] = []
    reached = 0
    for index, (commit, subject) in enumerate(known):
        # A rebased or skewed date must not put a child before its parent, hence the running maximum.
        reached = max(reached, dates[commit])
        placed.append((reached, 0, index, Commit(commit, dates[commit], subject)))
    strangers = sorted((dates[commit], commit) for commit in dates.keys() - dict(known).keys())
    placed += [(date, 1, index, Commit(commit, date)) for index, (date, commit) in enumerate(strangers)]
    return tuple(commit for *_, commit in sorted(placed, key=lambda one: one[:3]))


def repository_state(repo: Path) -> str:
    """Return the repository's current commit and the commits at which a shallow clone ends; "" without a repository.

    The end of a shallow clone matters because ``git fetch --unshallow`` adds older commits without moving the head.
    """
    lines = Git(repo, _TIMEOUT_S).try_lines("rev-parse", "HEAD", "--git-path", "shallow")
    head, path, *_ = [*(lines or []), "", ""]
    try:
        boundary = (repo / path).read_text(encoding="ascii").split() if path else []
    except OSError:
        boundary = []
    return " ".join([head, *sorted(boundary)]).rstrip()


def _git_log(hashes: list[str], repo: Path) -> list[tuple[str, str]]:
    """Return hash and subject of the ``hashes`` that the repository knows, parents first."""
    git = Git(repo, _TIMEOUT_S)
    # ``git log`` refuses the whole list if a single hash is unknown.
    # Git would resolve a name that is not a hash, and "HEAD" is another commit every day.
    full = [text for text in hashes if FULL_HASH.fullmatch(text)]
    objects = (line.split(" ") for line in git.try_lines("cat-file", "--batch-check", given=full) or ())
    known = [part[0] for part in objects if len(part) == 3 and part[1] == "commit"]
    if not known:
        return []
    # If the user has set log.showSignature, git would mix gpg's output into the lines.
    log = ("-c", "log.showSignature=false", "log", "--stdin", "--topo-order", "--reverse", "--format=%H %s")
    lines = (line.partition(" ") for line in git.try_lines(*log, given=known) or ())
    wanted = set(known)
    return [(commit, subject) for commit, _, subject in lines if commit in wanted]
