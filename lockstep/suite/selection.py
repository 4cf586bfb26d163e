"""Select suites, cases and variants by the words of a command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from lockstep.suite.case import Case
from lockstep.suite.definition import Suite, SuiteError


def pick_suites(suites: Mapping[str, Suite], family: str) -> list[Suite]:
    """Return the suite of this name, or all of this family; if there is none, ``SuiteError`` names the nearest."""
    picked = [suite for suite in suites.values() if family in (suite.name, suite.family)]
    if not suites:
        raise SuiteError(f"no family {family!r}: the folder of suites (benchmark_dir in asv.conf.json) holds no suite")
    if not picked:
        raise SuiteError(f"no family {family!r}{nearest(family, suites)}")
    return picked


def match_cases(suite: Suite, text: str) -> list[Case]:
    """Return the cases whose axes have the values in ``text``: ``M=8`` picks every case with M = 8.

    The whole label of a case picks only this case, and not a case with an additional flag. If none matches,
    ``SuiteError`` lists the labels of all cases.
    """
    return _matching(suite, text) or [suite.case(text)]


def match_labels(suites: Sequence[Suite], texts: Sequence[str]) -> dict[str, list[str] | None]:
    """Return, by suite, the labels of cases that any of ``texts`` selects; without texts ``None``, which means all.

    Raise ``SuiteError`` if a text selects no case of any suite; the message lists the labels of the first suite.
    """
    if not texts:
        return dict.fromkeys((suite.name for suite in suites), None)
    labels: dict[str, list[str] | None] = {}
    for suite in suites:
        picked = {case for text in texts for case in _matching(suite, text)}
        labels[suite.name] = [case.label for case in suite.all_cases if case in picked]
    for text in texts:
        if suites and not any(_matching(suite, text) for suite in suites):
            match_cases(suites[0], text)
    return labels


def _matching(suite: Suite, text: str) -> list[Case]:
    requested = {part.strip() for part in text.split(",") if part.strip()}
    having = [(case, set(case.label.split(","))) for case in suite.all_cases]
    exact = [case for case, parts in having if parts == requested]
    return exact or [case for case, parts in having if requested <= parts]


def expect_variants(names: Iterable[str], suites: Iterable[Suite], also: Iterable[str] = ()) -> None:
    """Raise ``SuiteError`` with the closest names unless each name is a variant of one of the suites or in ``also``."""
    listed = list(suites)
    known = [*dict.fromkeys(variant for suite in listed for variant in suite.variants()), *also]
    for name in names:
        if name not in known:
            subject = f"{listed[0].name} has no" if len(listed) == 1 else "no suite has a"
            raise SuiteError(f"{subject} variant {name!r}{nearest(name, dict.fromkeys(known))}")


def nearest(wrong: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean …?"`` with the close matches, or ``"; there is …"`` with all names."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=3)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; there is {', '.join(names)}" if names else ""
