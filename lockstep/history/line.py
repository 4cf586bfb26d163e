"""Find the line of the tracked branch, and where each measured commit stands to it.

The line is the branch's newest commit with its first parents, as ``git log --first-parent`` lists them. A point is
compared with earlier points of the line. A measured commit off the line is *apart*: a pull request, another branch, the
inside of a merged branch, a commit from before a rebase. It belongs to the commit where it left the line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.history.asv_file_header import FULL_HASH
from lockstep.history.model import Commit
from lockstep.processes.git import Git

#: Seconds that one git command may take.
_TIMEOUT_S = 30.0

#: Number of commits that a note names.
_MOST_NAMED = 4


@dataclass(frozen=True)
class Line:
    """The measured commits in their order, oldest first and parents before children.

    Attributes:
        commits: every measured commit; see ``Commit.apart`` for those off the line.
        note: which commits are apart, and what git's history could not tell, in sentences; "" if there is nothing.
    """

    commits: tuple[Commit, ...]
    note: str = ""


def find_line(dates: Mapping[str, int], repo: Path, branches: Sequence[str] = ()) -> Line:
    """Return the measured commits in the order of git's history.

    A commit that git does not know is placed by its date. It is apart if the clone holds older and newer commits of the
    line, because the clone would hold it if it were on the line.

    Args:
        dates: date of each commit in ms since 1970, by full hash.
        repo: a folder in the commits' git repository. In any other folder, subjects are "", and the dates give the
            order.
        branches: the tracked branches, of which the first that exists counts; () for the default branch.
    """
    # A partial clone would fetch missing objects over the network.
    git = Git(repo, _TIMEOUT_S, fetch=False)
    known = known_commits(git, dates)
    if not known:
        in_order = sorted((date, name) for name, date in dates.items())
        commits = tuple(Commit(commit, date, by_date=True) for date, commit in in_order)
        return Line(commits, _nothing_known(git, len(dates)))
    tip, branch, missing = _tip(git, branches)
    history, notes = _History(git, known, tip), [missing]
    if not known & history.line.keys() and (head := _resolved(git, ["HEAD"])[0]) not in ("", tip):
        on_head = _History(git, known, head)
        if known & on_head.line.keys():
            notes.append(f"No measured commit is on {branch}, so the line is that of the current commit.")
            history, branch = on_head, _CURRENT
    complete = not clone_ends(git)
    placed: list[tuple[int, int, int, Commit]] = []
    reached = 0
    for index, (commit, subject) in enumerate(history.subjects):
        # Take the running maximum, so that a wrong date (after a rebase, say) does not put a child before its parent.
        reached = max(reached, dates[commit])
        fork = history.fork.get(commit, "")
        off = commit not in history.line
        # Where a shallow clone ends, the fork may lie below the end, and the commit may be on the line.
        by_date = off and not fork and not complete
        apart = off and not by_date and bool(history.line)
        placed.append((reached, 0, index, Commit(commit, dates[commit], subject, apart, fork, by_date=by_date)))
    for index, (date, commit) in enumerate(sorted((dates[name], name) for name in dates.keys() - known)):
        apart = date <= history.newest and (complete or date > history.oldest)
        placed.append((date, 1, index, Commit(commit, date, apart=apart, by_date=not apart)))
    commits = _with_bases([commit for *_, commit in sorted(placed, key=lambda key: key[:3])], history.line)
    notes.append(_by_date([commit for commit in commits if commit.by_date], not complete))
    off_line = sum(commit.apart for commit in commits)
    if off_line:
        notes.append(
            f"{off_line} of {len(commits)} measured commits {'is' if off_line == 1 else 'are'} off the line of "
            f"{branch}: pages show them apart, and they open no alert."
        )
    return Line(commits, " ".join(filter(None, notes)))


def repository_state(repo: Path, branches: Sequence[str] = ()) -> str:
    """Return a text that changes whenever the line may, or the commits that git knows; "" without a repository.

    The text holds the current commit, the newest commit of the line, and the commits at which a shallow clone ends,
    because ``git fetch --unshallow`` adds older commits and leaves the others as they are.
    """
    git = Git(repo, _TIMEOUT_S, fetch=False)
    head = git.try_line("rev-parse", "HEAD")
    if not head:
        return ""
    return " ".join([head, _tip(git, branches)[0], *sorted(clone_ends(git) or ())])


class _History:
    """What one pass of ``git log`` says of the measured commits and the line.

    Attributes:
        subjects: hash and subject of the measured commits, parents before children.
        line: the commits of the line with their places, the oldest first.
        fork: for each measured commit off the line, the newest commit of the line that is its ancestor.
        oldest, newest: dates of the line's oldest and newest commit, ms since 1970; 0 for an empty line.

    Args:
        tip: the newest commit of the line; "" for none.
    """

    def __init__(self, git: Git, known: set[str], tip: str) -> None:
        self.subjects: list[tuple[str, str]] = []
        self.fork: dict[str, str] = {}
        # Without this setting, a user's log.showSignature would add gpg's output to the lines.
        log = ("-c", "log.showSignature=false", "log", "--stdin", "--topo-order", "--format=%H%x09%P%x09%ct%x09%s")
        texts = git.try_lines(*log, given=[*sorted(known), *filter(None, [tip])]) or ()
        entries = [text.split("\t", 3) for text in texts]  # children before parents
        following, line = tip, list[tuple[str, int]]()
        for commit, parents, date, _ in entries:
            if commit == following:
                following = parents.partition(" ")[0]
                line.append((commit, 1000 * int(date)))
        self.line = {commit: place for place, (commit, _) in enumerate(reversed(line))}
        self.newest, self.oldest = (line[0][1], line[-1][1]) if line else (0, 0)
        #: The place of the newest commit of the line among each commit and its ancestors; −1 if there is none.
        newest: dict[str, int] = {}
        for commit, parents, _, subject in reversed(entries):
            inherited = max((newest[parent] for parent in parents.split()), default=-1)
            newest[commit] = self.line.get(commit, inherited)
            if commit in known:
                self.subjects.append((commit, subject))
                if commit not in self.line and inherited >= 0:
                    self.fork[commit] = line[-1 - inherited][0]


def _with_bases(commits: Sequence[Commit], line: Mapping[str, int]) -> tuple[Commit, ...]:
    """Add to each commit apart the newest measured commit of the line that is its ancestor."""
    measured = sorted(line[commit.hash] for commit in commits if commit.hash in line)
    name = {line[commit.hash]: commit.hash for commit in commits if commit.hash in line}

    def base(fork: str) -> str:
        count = bisect_right(measured, line[fork])
        return name[measured[count - 1]] if count else ""

    return tuple(replace(commit, base=base(commit.fork)) if commit.fork else commit for commit in commits)


def _tip(git: Git, branches: Sequence[str]) -> tuple[str, str, str]:
    """Return the newest commit of the line, the name of its branch, and a sentence if a tracked branch is missing.

    The line is that of the first tracked branch that exists; without tracked branches, of the default branch; else of
    the current commit. A branch may exist here and at the remote. The one that holds the other counts; if they differ,
    the remote's.
    """
    names = list(dict.fromkeys(branches))
    if not names:
        remote = git.try_line("symbolic-ref", "--short", "--quiet", "refs/remotes/origin/HEAD")
        names = list(dict.fromkeys(filter(None, [remote.removeprefix("origin/"), "main", "master"])))
    found = _resolved(git, [text for name in names for text in (f"refs/heads/{name}", f"origin/{name}", name)])
    note = f"The repository has no branch {names[0]}: `git fetch origin` may bring it." if branches else ""
    for place, name in enumerate(names):
        local, remote, other = found[3 * place : 3 * place + 3]
        if local and remote and local != remote:
            ahead = git.try_lines("merge-base", "--is-ancestor", remote, local) is not None
            local = local if ahead else remote
        if tip := local or remote or other:
            return tip, name, note if place else ""
    lacking = f"{note.removesuffix('.')}. The line is that of the current commit." if note else ""
    return _resolved(git, ["HEAD"])[0], _CURRENT, lacking


_CURRENT = "the current commit"


def _resolved(git: Git, names: Sequence[str]) -> list[str]:
    """Return the commit to which each name refers; "" for a name that the repository does not know."""
    lines = git.try_lines("cat-file", "--batch-check", given=[f"{name}^{{commit}}" for name in names])
    parts = [line.split(" ") for line in lines or [""] * len(names)]
    return [part[0] if len(part) == 3 and part[1] == "commit" else "" for part in parts]


def known_commits(git: Git, hashes: Iterable[str]) -> set[str]:
    """Return those hashes that are commits of the repository. One question is faster than one for each hash."""
    # ``git log`` refuses the whole list if a single hash is unknown. Ask only for full hashes: git would resolve a name
    # such as "HEAD", which is another commit every day.
    full = sorted(text for text in hashes if FULL_HASH.fullmatch(text))
    objects = (line.split(" ") for line in git.try_lines("cat-file", "--batch-check", given=full) or ())
    return {part[0] for part in objects if len(part) == 3 and part[1] == "commit"}


def clone_ends(git: Git) -> frozenset[str] | None:
    """Return the commits at which a shallow clone ends, none for a complete clone; ``None`` without a repository."""
    path = git.try_line("rev-parse", "--git-path", "shallow")
    try:
        return frozenset((git.folder / path).read_text(encoding="ascii").split()) if path else None
    except OSError:
        return frozenset()


def _nothing_known(git: Git, commits: int) -> str:
    if not commits:
        return ""
    if not git.try_line("rev-parse", "--git-dir"):
        return "Commits are in the order of their dates, because there is no git repository: name it with --repo."
    return (
        "Commits are in the order of their dates, because the git repository knows none of them: "
        "name their repository with --repo."
    )


def _by_date(commits: Sequence[Commit], shallow: bool) -> str:
    """Return the note on commits that git could not place; "" if there is none."""
    if not commits:
        return ""
    named = ", ".join(commit.short for commit in commits[:_MOST_NAMED])
    more = f" and {len(commits) - _MOST_NAMED} more" if len(commits) > _MOST_NAMED else ""
    one = len(commits) == 1
    reason = "is shallow: `git fetch --unshallow`" if shallow else "lacks newer commits: `git fetch`"
    return (
        f"{len(commits)} measured commit{'' if one else 's'} cannot be placed by git and stand{'s' if one else ''} by "
        f"date ({named}{more}), because the clone {reason} places {'it' if one else 'them'}."
    )
