"""Put commits into the order of git's history, or into the order of their dates if git does not know them."""

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
        dates: date of each commit in ms since 1970, by full hash.
        repo: a folder in the commits' git repository. In any other folder, subjects are "" and the dates give the
            order.
    """
    known = _git_log(sorted(dates), repo)
    placed: list[tuple[int, int, int, Commit]] = []
    reached = 0
    for index, (commit, subject) in enumerate(known):
        # Take the running maximum, so that a wrong date (after a rebase, say) does not put a child before its parent.
        reached = max(reached, dates[commit])
        placed.append((reached, 0, index, Commit(commit, dates[commit], subject)))
    strangers = sorted((dates[commit], commit) for commit in dates.keys() - dict(known).keys())
    placed += [(date, 1, index, Commit(commit, date)) for index, (date, commit) in enumerate(strangers)]
    return tuple(commit for *_, commit in sorted(placed, key=lambda key: key[:3]))


def repository_state(repo: Path) -> str:
    """Return a text that changes whenever the repository may know more commits; "" without a repository.

    The text holds the current commit and the commits at which a shallow clone ends, because ``git fetch --unshallow``
    adds older commits and leaves the current commit as it is.
    """
    lines = Git(repo, _TIMEOUT_S).try_lines("rev-parse", "HEAD", "--git-path", "shallow")
    head, path, *_ = [*(lines or []), "", ""]
    try:
        boundary = (repo / path).read_text(encoding="ascii").split() if path else []
    except OSError:
        boundary = []
    return " ".join([head, *sorted(boundary)]).rstrip()


def _git_log(hashes: list[str], repo: Path) -> list[tuple[str, str]]:
    """Return the hash and the subject of those ``hashes`` that the repository knows, parents before children."""
    git = Git(repo, _TIMEOUT_S)
    # First find the known hashes, because ``git log`` refuses the whole list if a single hash is unknown. Ask only
    # for full hashes: git would resolve a name such as "HEAD", which is another commit every day.
    full = [text for text in hashes if FULL_HASH.fullmatch(text)]
    objects = (line.split(" ") for line in git.try_lines("cat-file", "--batch-check", given=full) or ())
    known = [part[0] for part in objects if len(part) == 3 and part[1] == "commit"]
    if not known:
        return []
    # Without this setting, a user's log.showSignature would add gpg's output to the lines.
    log = ("-c", "log.showSignature=false", "log", "--stdin", "--topo-order", "--reverse", "--format=%H %s")
    lines = (line.partition(" ") for line in git.try_lines(*log, given=known) or ())
    known_hashes = set(known)
    return [(commit, subject) for commit, _, subject in lines if commit in known_hashes]
