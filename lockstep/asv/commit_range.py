"""Resolve the commits that a command line names to hashes, by asv's rules for ``run``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asv.repo import NoSuchNameError, get_repo
from asv.results import get_existing_hashes
from asv.util import pick_n

from lockstep.processes.exit_status import UsageError


def commits_of(
    conf: Any, spec: str | None, *, pull: bool = True, period: float | None = None, steps: int | None = None
) -> list[str]:
    """Return the hashes of a range, newest first.

    Args:
        spec: a range of git, HEAD, NEW, ALL, EXISTING, TAGS or HASHFILE:FILE; ``None`` for the tips of the branches.
        pull: whether to fetch a repository at an address first.
        period: seconds of which each has one commit at most; ``None`` for all commits.
        steps: number of commits at most, spread evenly.

    Raises:
        UsageError: there is no such file or name.
        asv.util.ProcessError: git does not know the range.
    """
    repo = get_repo(conf)
    if pull:
        repo.pull()
    measured = get_existing_hashes(conf.results_dir) if spec in ("NEW", "EXISTING") else []
    commits = list(_named(conf, repo, spec, measured))
    if period is not None:
        commits = repo.filter_date_period(commits, period, measured if spec == "NEW" else None)
    return list(commits if steps is None else pick_n(commits, steps))


def _named(conf: Any, repo: Any, spec: str | None, measured: Sequence[str]) -> Any:
    if spec in ("NEW", "ALL"):
        return repo.get_new_branch_commits(conf.branches, measured)
    if spec == "EXISTING":
        return measured
    if spec == "TAGS":
        return reversed(repo.get_tags())
    try:
        if spec is None or spec == "HEAD":
            return {repo.get_hash_from_name(name) for name in ([spec] if spec else conf.branches)}
        if spec.startswith("HASHFILE:"):
            file = spec.removeprefix("HASHFILE:")
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
            return [repo.get_hash_from_name(name) for name in text.split()]
    except NoSuchNameError as error:
        named = 'branch of "branches" in asv.conf.json' if spec is None else "commit"
        raise UsageError(f"git knows no {named}: {error}") from error
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename} does not exist: name a file of hashes") from error
    return repo.get_hashes_from_range(spec)
