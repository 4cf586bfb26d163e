"""Why code of a commit does not find a file: a commit's tree holds its packages and nothing else."""

from __future__ import annotations

import re

#: How the names of folders begin into which commits are unpacked.
TREE_PREFIX = "lockstep-tree-"


def without_tree(text: str) -> str:
    """Return a text with the paths of a commit's tree relative to it; its folder is gone when somebody reads them."""
    return re.sub(rf"[^\s'\"(]*{TREE_PREFIX}[^/\s]+/", "", text)


def hint(error: BaseException) -> str:
    """Return what to do about a file that a commit's tree lacks, or "" for any other error."""
    if not isinstance(error, OSError) or TREE_PREFIX not in str(error):
        return ""
    return (
        "of a commit only the tracked files of its packages are taken out, "
        'those that asv.conf.json lists in "lockstep": {"packages"}; a file that the code reads must lie in one of them'
    )
