"""Build and parse the addresses of pages in one place, so that a permalink restores its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlencode

from flask import has_request_context, request

from lockstep.history.model import SeriesKey

#: Maximum values of one key. An address with more values was not made by the dashboard.
_MOST = 50

#: Keys of the query that differ from the names of their fields.
_KEYS = {"cases": "case", "quantities": "quantity"}


def root() -> str:
    """Return the path below which the current request's server is, without "/" at its end; usually ""."""
    return request.script_root if has_request_context() else ""


def link(path: str, **query: str | Sequence[str]) -> str:
    """Return ``path`` below ``root`` with ``query`` as its query string, without the values that are "".

    A key with several values is repeated.
    """
    several = {key: [given] if isinstance(given, str) else given for key, given in query.items()}
    text = urlencode([(key, one) for key, given in several.items() for one in given if one], quote_via=quote)
    return f"{root()}{path}?{text}" if text else f"{root()}{path}"


@dataclass(frozen=True)
class Address:
    """The address of a page with the reader's choices. An empty choice is the page's default.

    The first ``PLACES`` fields stand in the path after ``KIND``, and the others in the query.
    """

    KIND: ClassVar[str] = ""
    PLACES: ClassVar[int] = 0

    def link(self) -> str:
        """Return the page's path, which begins with "/", and its query."""
        return _page_link(root(), self)


#: Cached, because a table that has thousands of these addresses is drawn again and again.
@lru_cache(maxsize=20_000)
def _page_link(_root: str, page: Address) -> str:
    values = list(vars(page).items())
    path = "/".join([f"/{page.KIND}", *(quote(value, safe="") for _, value in values[: page.PLACES])])
    return link(path, **{_KEYS.get(name, name): value for name, value in values[page.PLACES :]})


@dataclass(frozen=True)
class OverviewAddress(Address):
    """The address of the overview page with the reader's choices. An empty choice is the page's default.

    Attributes:
        since: the commit with which the newest results are compared: "visit", "7d", "all" or a full hash, see
            ``lockstep.compare.series_status.reference``.
        quantity: the quantity whose series are shown, see ``dashboard.pages.overview_choice``.
        search: the words that a row of the table must contain.
    """

    machine: str = ""
    l2: str = ""
    since: str = ""
    quantity: str = ""
    search: str = ""


@dataclass(frozen=True)
class CommitAddress(Address):
    """The address of a commit page. With ``machine`` "", the page shows the first machine that measured the commit."""

    KIND, PLACES = "commit", 1

    commit: str
    machine: str = ""


@dataclass(frozen=True)
class SeriesAddress(Address):
    """The address of the page of one series, which is one row of the overview's table.

    Attributes:
        machine, suite, variant, case, l2: identify the series.
        quantity: the quantity that the page shows; "" for the quantity that the detector follows.
        zoom: the visible range of the trends, two positions on the axis, where the machine's oldest commit is at 0, see
            ``dashboard.charts.axes.visible_range``; "" shows all commits.
        axis: "date" if commits stand at their dates; else they stand in order.
    """

    KIND, PLACES = "series", 2

    machine: str
    suite: str
    variant: str = ""
    case: str = ""
    l2: str = ""
    quantity: str = ""
    zoom: str = ""
    axis: str = ""

    @property
    def key(self) -> SeriesKey:
        """The key of the series."""
        return SeriesKey(self.machine, self.suite, self.variant, self.case, self.l2)


@dataclass(frozen=True)
class FamilyAddress(Address):
    """The address of a family page: machine, suite and the reader's choices. An empty choice is the page's default.

    ``zoom`` and ``axis`` are those of ``SeriesAddress``.
    """

    KIND, PLACES = "family", 2

    machine: str
    suite: str
    cases: tuple[str, ...] = ()
    l2: str = ""
    quantities: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    zoom: str = ""
    axis: str = ""


_PAGES: dict[tuple[str, int], type[Any]] = {
    (page.KIND, page.PLACES): page for page in (OverviewAddress, CommitAddress, SeriesAddress, FamilyAddress)
}


def parse(path: str, search: str) -> Address | None:
    """Parse path and query of a page; return ``None`` for a page without an address of its own here.

    A missing key stands for the page's default.
    """
    kind, *places = (unquote(part) for part in path.strip("/").split("/"))
    page = _PAGES.get((kind, len(places)))
    if page is None or path.startswith("//"):
        return None
    query, chosen = _query(search), dict[str, Any]()
    for field in fields(page)[len(places) :]:
        values = query.get(_KEYS.get(field.name, field.name), [])[:_MOST]
        chosen[field.name] = tuple(values) if field.default == () else values[0] if values else ""
    address: Address = page(*places, **chosen)
    return address


def query_values(search: str, *keys: str) -> dict[str, str]:
    """Return, for each of ``keys``, its first value in an address's query; "" if the query lacks the key."""
    query = _query(search)
    return {key: query.get(key, [""])[0] for key in keys}


def _query(search: str) -> dict[str, list[str]]:
    """Return keys and values of an address's query; {} if the query has more fields than the dashboard ever writes."""
    try:
        return parse_qs(search.removeprefix("?"), max_num_fields=4 * _MOST)
    except ValueError:
        return {}
