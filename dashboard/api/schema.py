"""The contract of version 1 of the API: every answer and every query, as models of pydantic.

``/api/v1/`` describes them as OpenAPI. A field may be added; none is removed. An old name of a field stays beside the
new one, and is marked as deprecated. Parts that are plain data of Lockstep (``Evidence``, ``CommitNote`` …) are its own
data classes.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, computed_field

from lockstep.alerts.cause.commit_notes import CommitNote
from lockstep.alerts.cause.found_change import Cause
from lockstep.alerts.database.alert_row import Event
from lockstep.alerts.model import Waiver
from lockstep.compare.two_sides import Side
from lockstep.record.series_name import SeriesName

#: Maximum number of items of one answer.
MOST_ITEMS = 10_000

#: Default and maximum number of alerts in one answer. An alert takes about 2 kB and 0.2 ms of CPU.
USUAL_ALERTS, MOST_ALERTS = 100, 1000


class Model(BaseModel):
    """A part of the contract. Attributes of other objects are read by name; an unknown number is null."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True, ser_json_inf_nan="null")


class Machine(Model):
    """A machine whose numbers are comparable over time."""

    name: str
    folder: str
    """asv's name of the machine: the name of its folder in the results."""
    branch: str
    """Always "": a machine shows the line of the first tracked branch."""
    clock_state: str
    environments: list[str]
    """asv's names of the environments, the oldest first."""
    strings: dict[str, str]
    """asv's description of the machine: os, cpu, gpu, ram …"""
    last_date: int
    """Date of the newest commit, ms since 1970."""
    newest_commit: str
    commits: int
    """Number of commits."""
    series: int
    """Number of series."""


class Commit(Model):
    """A commit that a machine has measured."""

    hash: str
    date: int
    """ms since 1970."""
    subject: str
    apart: bool
    """Whether the commit is off the line, so that it has no neighbours."""
    lines: list[str]
    """[""] for a commit of the line, [] for one apart."""
    fork: str
    """The commit of the line where an apart commit forked; "" if unknown."""
    base: str
    """The newest measured commit of the line up to the fork; "" if unknown."""
    by_date: bool
    """Whether git could not place the commit, so that its date places it."""
    toolchain: dict[str, str]
    clock_state: str


class Series(Model):
    """A benchmark with one value for each of its parameters, on one machine."""

    machine: str
    benchmark: str
    unit: str
    suite: str
    quantity: str
    parameters: dict[str, str]


class Trend(Series):
    """The numbers of a series over the commits. The lists have one item a point."""

    commit: list[int]
    """Indices into the commits of the answer."""
    value: list[float | None]
    low: list[float | None]
    high: list[float | None]
    error: list[float | None]
    """Standard error of the logarithm of the value."""
    state: list[str]
    version: list[str]
    """Version of the benchmark. Points of different versions are not comparable."""
    same_work_as: list[str]
    """The commit whose numbers a point copies, because both give the GPU the same work; "" for a measurement."""
    gpu: list[str]
    """First digits of the UUID of the GPU that measured a point; "" if unknown. GPUs are not comparable."""


class Trends(Model):
    """The series of a benchmark over the commits."""

    commits: list[str]
    series: list[Trend]
    left_out: int
    """Number of series beyond the first hundred."""


class Point(Series):
    """A series at one commit, with everything that is known. docs/schema.md describes the fields of our records."""

    commit: str
    state: str
    version: str
    value: float | None
    low: float | None
    high: float | None
    error: float | None
    log_ratio: float | None
    ratio_error: float | None
    mde: float | None
    number: int
    repeat: int
    epochs: int
    q25: float | None
    q75: float | None
    samples: list[float]
    reason: str
    note: str
    same_work_as: str
    gpu: str
    baseline: str
    flops: float
    bytes: float
    floor_s: float | None
    floor_source: str
    bound: str
    sm_mhz: float | None
    sm_mhz_low: float | None
    temperature_c: float | None
    power_w: float | None
    clock_reasons: list[str]
    check_error: float | None
    worst_row: float | None
    deterministic: float | None
    code: str
    """Facts of the machine code, as JSON text."""
    measured_at: int
    """ms since 1970; 0 if unknown."""


class Times(Model):
    """Changes of the two times in a ratio, as natural logarithms of head over base."""

    own: float | None
    """The kernel's time."""
    baseline: float | None
    error: float | None
    """Standard error of ``baseline``."""


class Case(Model):
    """A case on both sides of a comparison."""

    suite: str
    case: str
    l2: str
    base_variant: str
    head_variant: str
    base: float | None
    head: float | None
    unit: str
    """Unit of base and head."""
    log: float | None
    """Natural logarithm of head over base; for a speedup, of the times relative to the baseline."""
    error: float | None
    low: float | None
    high: float | None
    verdict: str
    why: str
    """Reason of a verdict that the numbers do not explain."""
    code: str
    """Differences of the machine code."""
    times: Times | None


class Comparison(Model):
    """Base compared with head."""

    base: Side
    head: Side
    geomean: float | None
    """Geometric mean of head's time over base's."""
    verdicts: dict[str, int]
    """Number of cases with each verdict."""
    other_version: int
    """Number of cases whose two points have different versions of the benchmark, so that they do not compare."""
    one_sided: int
    """Number of cases that only one side has."""
    cases: list[Case]
    left_out: int
    """Number of cases after the last one of the answer."""

    @computed_field(json_schema_extra={"deprecated": True})
    def other_ruler(self) -> int:
        """Old name of ``other_version``."""
        return self.other_version


class Member(Model):
    """A changed series of an alert."""

    series: SeriesName
    reported_at: str
    """The commit at which the change was first reported."""
    size: float
    """Natural logarithm of new over old, positive for worse; for a larger number if ``better`` is "neither"."""
    low: float
    high: float
    confidence: float
    cause: Cause
    left: float
    """By how much the newest level is still worse than the level before the change."""
    before: str
    after: str
    """The measured commits between which the change came."""
    old: float | None
    new: float | None
    better: str
    recent: float | None = None
    """The same of the median of the last three points."""
    flips: bool = False
    """Whether the series passes often from one of its two levels to the other."""
    measure: str
    """If "difference": size, low, high and left are differences in the unit, old and new the levels."""


class Alert(Model):
    """All changes of one family in one range of commits on one machine."""

    id: int
    fingerprint: str
    state: str
    ending: str
    muted_until: str | None
    opened_at: str
    changed_at: str
    headline: str
    link: str
    topic: str
    machine: str
    family: str
    range: str
    before: str
    """The newest commit that is known to be good; "" if unknown."""
    after: str
    commits: list[str]
    """The commits after ``before``, up to ``after``. The culprit is one of them."""
    suspects: list[str]
    """Those of the commits that touch the packages under test."""
    unknown: str
    """Why git does not know the range; both lists are empty then."""
    cause: Cause
    notes: list[CommitNote] = []
    """The commits, those that change the kernel's files first."""
    lost: str
    """What is lost, in a line; "" if nothing measurable is."""
    members: list[Member]
    since: int
    also_on: list[str]
    owner: str
    gone: bool
    """Whether the series are back at their old level."""
    old: bool
    """Whether the change is too old to be reported."""
    waiver: Waiver | None = Field(validation_alias=AliasChoices("waiver", "excuse"))
    text: str
    reproduce: str
    """The command that measures the worst series again, or ""."""

    @computed_field(json_schema_extra={"deprecated": True})
    def excuse(self) -> Waiver | None:
        """Old name of ``waiver``."""
        return self.waiver


class LoggedAlert(Alert):
    """An alert with its log."""

    log: list[Event]


class Problem(Model):
    """What could not be read, or differs from what asv writes."""

    path: str
    what: str
    reason: str
    weight: str
    """A whole "file", a "part" of it, or a "note"."""


class ProblemKind(Model):
    """Number of problems of one kind."""

    weight: str
    reason: str
    count: int


class ProblemCounts(Model):
    """How much of the results was not read."""

    files: int
    files_not_read: int
    kinds: list[ProblemKind]


class Error(Model):
    """Why a request was not answered."""

    error: str
    request_id: str | None = None
    """The id under which the log has the details of an error 500."""


class Query(BaseModel):
    """What may follow the address of a list."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    limit: int = Field(MOST_ITEMS, ge=1, le=MOST_ITEMS)
    """Maximum number of items."""
    cursor: int | None = Field(None, ge=0, lt=1 << 31)
    """Where the list goes on, as the Link header of the previous answer says."""


class AlertsQuery(Query):
    """Which alerts a list holds."""

    limit: int = Field(USUAL_ALERTS, ge=1, le=MOST_ITEMS)
    """Maximum number of alerts; an answer holds at most 1000."""
    state: list[str] = []
    family: str = ""
    machine: str = ""
    owner: str = ""
    search: str = ""
    """Words that must all occur."""


class CompareQuery(Query):
    """What is compared with what. Old names: ``bm``, ``bc``, ``bv``, ``hm``, ``hc``, ``hv``."""

    base_machine: str = Field("", validation_alias=AliasChoices("base_machine", "bm"))
    base_commit: str = Field("", validation_alias=AliasChoices("base_commit", "bc"))
    base_variant: str = Field("", validation_alias=AliasChoices("base_variant", "bv"))
    head_machine: str = Field("", validation_alias=AliasChoices("head_machine", "hm"))
    head_commit: str = Field("", validation_alias=AliasChoices("head_commit", "hc"))
    head_variant: str = Field("", validation_alias=AliasChoices("head_variant", "hv"))
    quantity: Literal["speedup", "latency"] = "speedup"
    suite: str = ""
    l2: str = ""
