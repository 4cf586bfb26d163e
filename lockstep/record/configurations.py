"""Spell what the configurations of tuned kernels set, as "BLOCK 64, num_warps 8"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Joins the configurations of a kernel that a record names, if the kernel runs in several.
_AND = " and "


def without_shared(some: Sequence[str], every: Iterable[str]) -> list[str]:
    """Return configurations without the settings that all of ``every`` share; a single configuration stays whole."""
    each = {frozenset(one.split(", ")) for one in every}
    shared = frozenset.intersection(*each) if len(each) > 1 else frozenset()
    return [", ".join(part for part in one.split(", ") if part not in shared) or one for one in some]


def joined(configurations: Iterable[str]) -> str:
    """Return the text with which a record names the configurations of a kernel, each once (``Record.chosen``)."""
    return _AND.join(dict.fromkeys(configurations))


def is_named(configuration: str, text: str) -> bool:
    """Return whether a record's text names a configuration. The text may leave out settings that all share."""
    settings = set(configuration.split(", "))
    return any(settings >= set(one.split(", ")) for one in text.split(_AND))
