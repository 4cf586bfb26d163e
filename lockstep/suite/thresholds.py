"""Read ``thresholds.toml`` at the root of the repository. The file defines which changes are reported.

The gate and the alerts read the same file. Without the file every series has the defaults below. This project's own
``thresholds.toml`` has comments and shows every key.
"""

from __future__ import annotations

import datetime
import fnmatch
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from lockstep.processes.exit_status import UsageError
from lockstep.processes.trouble import reason_of
from lockstep.record.quantity import EXACT, PAIRED, Better

#: By how much exact quantities may rise, by name.
Budget = tuple[tuple[str, float], ...]

#: The budget of exact quantities without a file: one more spilled byte, or one more launch, opens an alert.
BUDGET: Budget = (("spills", 0.0), ("launches", 0.0))

#: Name of the file, in the folder of asv.conf.json.
FILE = "thresholds.toml"


def _share(value: Any) -> Any:
    """Return the number of a percentage, and any other value as it is."""
    percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value) if isinstance(value, str) else None
    return float(percent[1]) / 100 if percent else value


Share = Annotated[float, BeforeValidator(_share), Field(ge=0, lt=1, strict=True)]
Confidence = Annotated[float, Field(ge=0.5, lt=1, strict=True)]
Amount = Annotated[float, Field(ge=0, strict=True)]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True, strict=True)]
Glob = Annotated[str, Field(min_length=1, strict=True)]
Day = Annotated[
    datetime.date,
    BeforeValidator(lambda day: day.date() if isinstance(day, datetime.datetime) else day),
    Field(strict=True),
]
Reference = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{7,64}|#\d+)$")]


class ThresholdsError(UsageError):
    """``thresholds.toml`` cannot be used; the message names the file, the entry, the key and what to do."""


@dataclass(frozen=True)
class Threshold:
    """The smallest reported change of a series, the required confidence, and the owner.

    Attributes:
        min_effect: smallest relative change that matters: 0.01 is 1 %.
        confidence: required confidence that the change is real, 0.5 … 1.
        owner: the person or team to ask; "" if there is none.
    """

    min_effect: Share = 0.01
    confidence: Confidence = 0.99
    owner: Text = ""


@dataclass(frozen=True)
class Pattern:
    """The series that an entry of thresholds.toml applies to, as shell globs. A missing field matches every series."""

    suite: Glob = "*"
    variant: Glob = "*"
    case: Glob = "*"
    l2: Glob = "*"
    quantity: Glob = "*"

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
    min_effect: Share | None = None
    confidence: Confidence | None = None
    owner: Text | None = None
    better: Better | None = None
    budget: Amount | None = None


@dataclass(frozen=True)
class Mute:
    """An entry of thresholds.toml: series whose changes are not reported up to and including a day, and the reason."""

    match: Pattern
    until: Day
    because: Text


@dataclass(frozen=True)
class Accept:
    """An entry of thresholds.toml that accepts an intended slowdown, with the reason.

    Attributes:
        slower_by: largest accepted slowdown, as measured; 0.05 is 5 %, 1.5 is 150 %.
        of: commits ("a1b2c3d", seven digits or more) and pull requests ("#123") that introduced it.
    """

    match: Pattern
    slower_by: Annotated[float, BeforeValidator(_share), Field(ge=0, strict=True, allow_inf_nan=False)]
    of: Annotated[
        tuple[Reference, ...],
        BeforeValidator(lambda stated: [stated] if isinstance(stated, str) else stated),
        Field(min_length=1),
    ]
    because: Text

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


@dataclass(frozen=True)
class _File:
    """The tables of the file, by the names that they have there."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")  # of all tables within

    default: Threshold = Threshold()
    rule: tuple[Rule, ...] = ()
    mute: tuple[Mute, ...] = ()
    accept: tuple[Accept, ...] = ()
    budget: dict[str, Amount] = field(default_factory=dict)


def read_thresholds(path: Path) -> Thresholds:
    """Return the thresholds in ``path``; the defaults if there is no such file.

    Raise ``ThresholdsError`` if the file is not TOML, or an entry is unknown, incomplete or of the wrong type.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        file = _files().validate_python(table)
    except FileNotFoundError:
        return Thresholds()
    except ValidationError as error:
        raise ThresholdsError(_fault(path, error.errors()[0])) from error
    except (OSError, ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        raise ThresholdsError(f"{path} cannot be read: {reason_of(error)}") from error
    for number, rule in enumerate(file.rule, 1):
        if fault := _rule_fault(rule):
            raise ThresholdsError(f"{path}, [[rule]] no. {number}: {fault}")
    if others := file.budget.keys() - EXACT:
        raise ThresholdsError(f"{path}, [budget]: {_no_key(min(others), EXACT)}")
    return Thresholds(file.default, file.rule, file.mute, file.accept, (*(dict(BUDGET) | file.budget).items(),))


@cache
def _files() -> TypeAdapter[_File]:
    return TypeAdapter(_File)


def _time_of(quantity: str) -> str:
    """Return the quantity whose rules apply: for a ratio its time ("latency" for "speedup"), else the same."""
    return next((time for time, ratio in PAIRED.items() if ratio == quantity), quantity)


def _rule_fault(rule: Rule) -> str:
    """Return what is wrong with a rule whose values are right; "" if nothing is."""
    if rule == Rule(rule.match):
        return "match is the only key: add min_effect, confidence, owner, better or budget"
    named = rule.match.quantity
    if rule.budget is not None and (named == "*" or not fnmatch.filter(EXACT, named)):
        return 'budget needs the name of an exact quantity: match = { quantity = "registers" }'
    return ""


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
    "of": 'commits (at least seven digits of a hash) or pull requests: of = ["a1b2c3d", "#123"]',
    **{glob.name: f'a glob in quotes: {glob.name} = "*"' for glob in fields(Pattern)},
}


def _fault(path: Path, fault: ErrorDetails) -> str:
    """Return where a fault of the file is, what is wrong and what to write."""
    *tables, key = (part for part in fault["loc"] if isinstance(part, str))
    numbers = [part for part in fault["loc"] if isinstance(part, int)]
    where = f"{path}"
    if tables:
        where += f", [[{tables[0]}]] no. {numbers[0] + 1}" if numbers else f", [{tables[0]}]"
    where = ", ".join([where, *tables[1:]])
    if fault["type"] == "unexpected_keyword_argument":
        table = {"match": Pattern, "default": Threshold, "rule": Rule, "mute": Mute, "accept": Accept}
        keys = fields(table[tables[-1]] if tables else _File)
        return f"{where}: {_no_key(key, [known.name for known in keys])}"
    if not tables:
        brackets = f"a table: [{key}]" if key in ("default", "budget") else f"written [[{key}]], in double brackets"
        return f"{where}: {key} must be {brackets}"
    what = {"missing": "missing", "string_too_short": "empty"}.get(fault["type"]) or _shown(fault["input"])
    return f"{where}: {key} is {what}; write {_HOW[key]}"


def _no_key(key: str, keys: Iterable[str]) -> str:
    return f"{key} is not a key of this table; its keys are {', '.join(keys)}"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # a hexadecimal integer that has too many decimal digits
        return "an integer of thousands of digits"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


#: Maximum length of a wrong value in a message.
_LONGEST = 80


def _concerns(reference: str, text: str) -> bool:
    if reference.startswith("#"):
        return re.search(rf"{reference}(?!\d)", text) is not None
    return re.fullmatch(rf"{reference}[0-9a-f]*", text) is not None
