"""Summarise an error in one line. Explain why a commit's code does not find a file: its tree holds only packages."""

from __future__ import annotations

import re

#: Prefix of the names of folders into which commits are unpacked.
TREE_PREFIX = "lockstep-tree-"


def without_tree(text: str) -> str:
    """Return a text with paths of a commit's tree made relative, because its folder is temporary."""
    return re.sub(rf"[^\s'\"(]*{TREE_PREFIX}[^/\s]+/", "", text)


def first_line(error: BaseException, kind: str = "") -> str:
    """Return the kind of an error (by default its type), the first line of its message, and the advice of ``hint``."""
    kind = kind or type(error).__name__
    message = without_tree(str(error).strip().split("\n", 1)[0])
    parts = [f"{kind}: {message}" if message else kind, hint(error)]
    return "; ".join(part for part in parts if part)


def hint(error: BaseException) -> str:
    """Return advice about a file that a commit's tree lacks, or "" for any other error."""
    if not isinstance(error, OSError) or TREE_PREFIX not in str(error):
        return ""
    return (
        "only the tracked files of a commit's packages are unpacked, "
        'those that asv.conf.json lists in "lockstep": {"packages"}; a file that the code reads must be in one of them'
    )
