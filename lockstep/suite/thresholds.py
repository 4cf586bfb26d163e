"""Read ``thresholds.toml`` at the root of the repository. The file defines which changes are reported.

The gate and the alerts read the same file. Without the file every series has the defaults below. This project's own
``thresholds.toml`` has comments and shows every key.
"""

from __future__ import annotations

import datetime
import fnmatch
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from lockstep.record.quantity import EXACT, PAIRED, Better

#: By how much exact quantities may rise, by name.
Budget = tuple[tuple[str, float], ...]

#: The budget of exact quantities without a file: one more spilled byte, or one more launch, opens an alert.
BUDGET: Budget = (("spills", 0.0), ("launches", 0.0))

#: Name of the file, in the folder of asv.conf.json.
FILE = "thresholds.toml"


class ThresholdsError(ValueError):
    """``thresholds.toml`` cannot be used; the message names the file, the entry, the key and what to do."""


@dataclass(frozen=True)
class Threshold:
    """The smallest reported change of a series, the required confidence, and the owner.

    Attributes:
        min_effect: smallest relative change that matters: 0.01 is 1 %.
        confidence: required confidence that the change is real, 0.5 … 1.
        owner: the person or team to ask; "" if there is none.
    """

    min_effect: float = 0.01
    confidence: float = 0.99
    owner: str = ""


@dataclass(frozen=True)
class Pattern:
    """The series that an entry of thresholds.toml applies to, as shell globs. A missing field matches every series."""

    suite: str = "*"
    variant: str = "*"
    case: str = "*"
    l2: str = "*"
    quantity: str = "*"

    def matches(self, suite: str, variant: str, case: str, l2: str, quantity: str) -> bool:
        """Return whether the names of a series match the globs; upper and lower case differ."""
        # The quantity is compared first: most patterns with a quantity name a cost and do not match.
        globs = (self.quantity, self.suite, self.variant, self.case, self.l2)
        return all(map(fnmatch.fnmatchcase, (quantity, suite, variant, case, l2), globs))


@dataclass(frozen=True)
class Rule:
    """Threshold values for the series that ``match`` selects; ``None`` leaves a value to earlier rules and defaults.

    ``better`` is the better direction of other projects' numbers. ``budget`` is by how much exact quantities may rise.
    """

    match: Pattern
    min_effect: float | None = None
    confidence: float | None = None
    owner: str | None = None
    better: Better | None = None
    budget: float | None = None


@dataclass(frozen=True)
class Mute:
    """An entry of thresholds.toml: series whose changes are not reported up to and including a day, and the reason."""

    match: Pattern
    until: datetime.date
    because: str


@dataclass(frozen=True)
class Accept:
    """An entry of thresholds.toml that accepts an intended slowdown, with the reason.

    Attributes:
        slower_by: largest accepted slowdown, as measured; 0.05 is 5 %, 1.5 is 150 %.
        of: commits ("a1b2c3d", seven digits or more) and pull requests ("#123") that introduced it.
    """

    match: Pattern
    slower_by: float
    of: tuple[str, ...]
    because: str

    def concerns(self, texts: Iterable[str]) -> bool:
        """Return whether one of the texts is a commit, or mentions a pull request, that this entry accepts (``of``)."""
        return any(_concerns(reference, text) for reference in self.of for text in texts)


@dataclass(frozen=True)
class Thresholds:
    """The content of ``thresholds.toml``: defaults and rules. Later rules override earlier rules.

    ``budget``: by how much an exact quantity may rise without an alert, unless a rule says otherwise. One without a
    budget explains a time, and opens no alert of its own.
    """

    default: Threshold = Threshold()
    rules: tuple[Rule, ...] = ()
    mutes: tuple[Mute, ...] = ()
    accepts: tuple[Accept, ...] = ()
    budget: Budget = BUDGET

    def budget_of(self, suite: str, variant: str, case: str, l2: str, quantity: str) -> float | None:
        """Return by how much an exact quantity of a series may rise without an alert; ``None`` if no rise opens one."""
        for rule in reversed(self.rules):
            if rule.budget is not None and rule.match.matches(suite, variant, case, l2, quantity):
                return rule.budget
        return dict(self.budget).get(quantity)

    def of(self, suite: str, variant: str, case: str, l2: str, quantity: str = "latency") -> Threshold:
        """Return the threshold of one series' ``quantity``; a speedup has the threshold of the latency."""
        if not self.rules:
            return self.default
        values: dict[str, Any] = {}
        for rule in self.rules:
            if rule.match.matches(suite, variant, case, l2, _time_of(quantity)):
                stated = {"min_effect": rule.min_effect, "confidence": rule.confidence, "owner": rule.owner}
                values |= {key: value for key, value in stated.items() if value is not None}
        return Threshold(**{**vars(self.default), **values})

    def better(self, suite: str, variant: str, case: str, l2: str, quantity: str, otherwise: Better) -> Better:
        """Return the better direction that the last matching rule states; ``otherwise`` if no rule states one."""
        for rule in reversed(self.rules):
            if rule.better and rule.match.matches(suite, variant, case, l2, quantity):
                return rule.better
        return otherwise

    def muted(
        self, suite: str, variant: str, case: str, l2: str, today: datetime.date, quantity: str = "latency"
    ) -> Mute | None:
        """Return the entry that mutes a series today, of several the one that lasts longest; ``None`` if none does."""
        series = (suite, variant, case, l2, _time_of(quantity))
        mutes = [mute for mute in self.mutes if today <= mute.until and mute.match.matches(*series)]
        return max(mutes, key=lambda mute: mute.until, default=None)

    def accepted(
        self,
        suite: str,
        variant: str,
        case: str,
        l2: str,
        slower_by: float | None,
        about: Iterable[str],
        quantity: str = "latency",
    ) -> Accept | None:
        """Return the entry of thresholds.toml that accepts a slowdown of a series; ``None`` if no entry does.

        Args:
            slower_by: the slowdown, 0.05 for 5 %; ``None`` for a change without a size. Only an entry that names the
                quantity accepts such a change.
            about: texts that identify the slowdown's origin: full commit hashes, their subjects, the pull request
                "#123".
        """
        texts = list(about)
        series = (suite, variant, case, l2, _time_of(quantity))
        for entry in self.accepts:
            fits = entry.match.quantity == quantity if slower_by is None else slower_by <= entry.slower_by
            if fits and entry.match.matches(*series) and entry.concerns(texts):
                return entry
        return None


def read_thresholds(path: Path) -> Thresholds:
    """Return the thresholds in ``path``; the defaults if there is no such file.

    ``ThresholdsError``: the file is not TOML, or an entry is unknown, incomplete or of the wrong type.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Thresholds()
    except (OSError, ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        raise ThresholdsError(f"{path} cannot be read: {error}") from error
    file = _Entry(f"{path}", table)
    file.only("default", "rule", "mute", "accept", "budget")
    budget = file.table("budget")
    budget.only(*EXACT)
    default = file.table("default")
    default.only("min_effect", "confidence", "owner")
    return Thresholds(
        Threshold(**default.limits()),
        tuple(_rule(entry) for entry in file.tables("rule")),
        tuple(_mute(entry) for entry in file.tables("mute")),
        tuple(_accept(entry) for entry in file.tables("accept")),
        tuple((dict(BUDGET) | {quantity: budget.amount(quantity) for quantity in budget.values}).items()),
    )


def _time_of(quantity: str) -> str:
    """Return the quantity whose rules apply: for a ratio its time ("latency" for "speedup"), else the same."""
    return next((time for time, ratio in PAIRED.items() if ratio == quantity), quantity)


def _rule(entry: _Entry) -> Rule:
    entry.only("match", "min_effect", "confidence", "owner", "better", "budget")
    if not set(entry.values) - {"match"}:
        raise entry.wrong("match", "is the only key: add min_effect, confidence, owner, better or budget")
    pattern, stated = entry.pattern(), entry.values
    if "budget" in stated and (pattern.quantity == "*" or not fnmatch.filter(EXACT, pattern.quantity)):
        raise entry.wrong("budget", 'needs the name of an exact quantity: match = { quantity = "registers" }')
    better = entry.better("better") if "better" in stated else None
    return Rule(pattern, **entry.limits(), better=better, budget=entry.amount("budget") if "budget" in stated else None)


def _mute(entry: _Entry) -> Mute:
    entry.only("match", "until", "because")
    return Mute(entry.pattern(), entry.day("until"), entry.text("because"))


def _accept(entry: _Entry) -> Accept:
    entry.only("match", "slower_by", "of", "because")
    return Accept(entry.pattern(), entry.share("slower_by", math.inf), entry.names("of"), entry.text("because"))


#: How to write a value, for the message about a missing value or a wrong type.
_HOW = {
    "match": 'a table of globs: match = { suite = "linear", case = "M=1,*" }',
    "min_effect": 'a share: min_effect = "2 %"',
    "slower_by": 'a share: slower_by = "5 %"',
    "confidence": "a number from 0.5 up to 1: confidence = 0.99",
    "owner": 'a text: owner = "team-linear"',
    "better": 'the better direction: better = "higher", "lower" or "neither"',
    "until": "a day without quotes: until = 2027-01-31",
    "because": 'a reason for whoever reads it next year: because = "…"',
    **dict.fromkeys(EXACT, "by how much it may rise: registers = 8"),
    "budget": "by how much the quantity may rise: budget = 8",
    "of": 'commits or pull requests: of = ["a1b2c3d", "#123"]',
}


@dataclass(frozen=True)
class _Entry:
    """One table of thresholds.toml, and its place in the file, which messages name."""

    where: str
    values: Mapping[str, Any]

    def wrong(self, key: str, what: str) -> ThresholdsError:
        return ThresholdsError(f"{self.where}: {key} {what}")

    def only(self, *known: str) -> None:
        for key in self.values:
            if key not in known:
                raise self.wrong(key, f"is not a key of this table; its keys are {', '.join(known)}")

    def table(self, key: str) -> _Entry:
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, f"must be a table: [{key}]")
        return _Entry(f"{self.where}, [{key}]", value)

    def tables(self, key: str) -> list[_Entry]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
            raise self.wrong(key, f"must be written [[{key}]], in double brackets")
        return [_Entry(f"{self.where}, [[{key}]] no. {number}", table) for number, table in enumerate(value, 1)]

    def pattern(self) -> Pattern:
        value = self._given("match", dict)
        entry = _Entry(f"{self.where}, match", value)
        entry.only("suite", "variant", "case", "l2", "quantity")
        for key, glob in value.items():
            if not isinstance(glob, str) or not glob:
                raise entry.wrong(key, f'is {_shown(glob)}; write a glob in quotes: {key} = "*"')
        return Pattern(**value)

    def limits(self) -> dict[str, Any]:
        """Return the threshold values that this table of thresholds.toml states; earlier tables give the others."""
        read = {"min_effect": self.share, "confidence": self.confidence, "owner": self.text}
        return {key: reader(key) for key, reader in read.items() if key in self.values}

    def share(self, key: str, limit: float = 1.0) -> float:
        value = self._given(key, str | float | int)
        number = value
        if isinstance(value, str):
            percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value)
            number = float(percent[1]) / 100 if percent else None
        if isinstance(number, bool) or number is None or not 0 <= number < limit:
            raise self.wrong(key, f"is {_shown(value)}; write {_HOW[key]}")
        return float(number)

    def confidence(self, key: str) -> float:
        value: float = self._given(key, float)
        if not 0.5 <= value < 1:
            raise self.wrong(key, f"is {_shown(value)}; write {_HOW[key]}")
        return value

    def text(self, key: str) -> str:
        value: str = self._given(key, str)
        if not value.strip():
            raise self.wrong(key, f"is empty; write {_HOW[key]}")
        return value.strip()

    def amount(self, key: str) -> float:
        value = self._given(key, int | float)
        if isinstance(value, bool) or not value >= 0:
            raise self.wrong(key, f"is {_shown(value)}; write {_HOW[key]}")
        return float(value)

    def better(self, key: str) -> Better:
        value: Better = self._given(key, str)
        if value not in get_args(Better):
            raise self.wrong(key, f"is {_shown(value)}; write {_HOW[key]}")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        value = self._given(key, str | list)
        names = [value] if isinstance(value, str) else value
        if not names or not all(isinstance(name, str) and _REFERENCE.fullmatch(name) for name in names):
            raise self.wrong(key, f"is {_shown(value)}; write {_HOW[key]} (at least seven digits of a hash)")
        return tuple(names)

    def day(self, key: str) -> datetime.date:
        value: datetime.date = self._given(key, datetime.date)
        return value.date() if isinstance(value, datetime.datetime) else value

    def _given(self, key: str, kind: Any) -> Any:
        if key not in self.values:
            raise self.wrong(key, f"is missing; write {_HOW[key]}")
        if not isinstance(self.values[key], kind):
            raise self.wrong(key, f"is {_shown(self.values[key])}; write {_HOW[key]}")
        return self.values[key]


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # a hexadecimal integer that has too many decimal digits
        return "an integer of thousands of digits"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


#: Maximum length of a wrong value in a message.
_LONGEST = 80

_REFERENCE = re.compile(r"[0-9a-f]{7,64}|#\d+")


def _concerns(reference: str, text: str) -> bool:
    if reference.startswith("#"):
        return re.search(rf"{reference}(?!\d)", text) is not None
    return re.fullmatch(rf"{reference}[0-9a-f]*", text) is not None
