"""Build and parse the addresses of pages in one place, so that a permalink restores its page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qs, quote, unquote, urlencode

from flask import has_request_context, request

#: Maximum values of one key. An address with more values was not made by the dashboard.
_MOST = 50


def root() -> str:
    """Return the path below which the current request's server is, without "/" at its end; usually ""."""
    return request.script_root if has_request_context() else ""


def link(path: str, **query: str) -> str:
    """Return ``path`` below ``root`` with ``query`` as its query string, without the keys whose value is ""."""
    return _below(root(), path, tuple(query.items()))


def _below(site: str, path: str, query: tuple[tuple[str, str], ...]) -> str:
    shown = [(key, value) for key, value in query if value]
    return f"{site}{path}?{urlencode(shown, quote_via=quote)}" if shown else f"{site}{path}"


#: Cached, because a table that has thousands of these addresses is drawn again and again.
_series_link = lru_cache(maxsize=20_000)(_below)


@dataclass(frozen=True)
class OverviewAddress:
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

    def link(self) -> str:
        """Return the page's path, which begins with "/", and its query."""
        return link("/", **vars(self))


@dataclass(frozen=True)
class CommitAddress:
    """The address of a commit page. With ``machine`` "", the page shows the first machine that measured the commit."""

    commit: str
    machine: str = ""

    def link(self) -> str:
        """Return the page's path, which begins with "/", and its query."""
        return link(f"/commit/{quote(self.commit, safe='')}", machine=self.machine)


@dataclass(frozen=True)
class SeriesAddress:
    """The address of the page of one series, which is one row of the overview's table.

    Attributes:
        machine, suite, variant, case, l2: identify the series.
        quantity: the quantity that the page shows; "" for the quantity that the detector follows.
        zoom: the visible range of the trends, from and to a position on the axis, where the machine's oldest commit is
            at 0; () shows all commits.
        axis: "date" if commits stand at their dates; else they stand in order.
    """

    machine: str
    suite: str
    variant: str = ""
    case: str = ""
    l2: str = ""
    quantity: str = ""
    zoom: tuple[float, ...] = ()
    axis: str = ""

    def link(self) -> str:
        """Return the page's path, which begins with "/", and its query."""
        names = ("variant", "case", "l2", "quantity")
        query = [*((name, getattr(self, name)) for name in names), ("zoom", zoom_text(self.zoom)), ("axis", self.axis)]
        return _series_link(root(), _of_suite("series", self.machine, self.suite), tuple(query))


@dataclass(frozen=True)
class FamilyAddress:
    """The address of a family page: machine, suite and the reader's choices. An empty choice is the page's default.

    ``zoom`` and ``axis`` are those of ``SeriesAddress``.
    """

    machine: str
    suite: str
    cases: tuple[str, ...] = ()
    l2: str = ""
    quantities: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    zoom: tuple[float, ...] = ()
    axis: str = ""

    def link(self) -> str:
        """Return the page's path, which begins with "/", and its query."""
        repeated_keys = (("case", self.cases), ("quantity", self.quantities), ("variants", self.variants))
        query = [(key, value) for key, values in repeated_keys for value in values]
        query += [("l2", self.l2), ("zoom", zoom_text(self.zoom)), ("axis", self.axis)]
        return _below(root(), _of_suite("family", self.machine, self.suite), tuple(query))


Address = OverviewAddress | CommitAddress | SeriesAddress | FamilyAddress


def parse(path: str, search: str) -> Address | None:
    """Parse path and query of a page; return ``None`` for a page without an address of its own here.

    A missing key stands for the page's default.
    """
    query = _query(search)
    one = {key: values[0] for key, values in query.items()}
    view = {"l2": one.get("l2", ""), "zoom": zoom_of(one.get("zoom", "")), "axis": one.get("axis", "")}
    match [unquote(part) for part in path.strip("/").split("/")]:
        case [""] if path in ("", "/"):
            return OverviewAddress(**query_values(search, "machine", "l2", "since", "quantity", "search"))
        case ["commit", commit]:
            return CommitAddress(commit, one.get("machine", ""))
        case ["series", machine, suite]:
            return SeriesAddress(machine, suite, **query_values(search, "variant", "case", "quantity"), **view)  # type: ignore[arg-type]
        case ["family", machine, suite]:
            cases, quantities, variants = (
                tuple(query.get(key, ())[:_MOST]) for key in ("case", "quantity", "variants")
            )
            return FamilyAddress(machine, suite, cases, quantities=quantities, variants=variants, **view)  # type: ignore[arg-type]
    return None


def query_values(search: str, *keys: str) -> dict[str, str]:
    """Return, for each of ``keys``, its first value in an address's query; "" if the query lacks the key."""
    query = _query(search)
    return {key: query.get(key, [""])[0] for key in keys}


def zoom_of(text: str) -> tuple[float, ...]:
    """Parse a visible range of commits such as ``-0.5,12``; return () for text that is not two ascending numbers."""
    try:
        ends = tuple(float(part) for part in text.split(","))
    except ValueError:
        return ()
    return ends if len(ends) == 2 and -1e9 < ends[0] < ends[1] < 1e9 else ()


def zoom_text(zoom: tuple[float, ...]) -> str:
    """Write a visible range of commits as text that ``zoom_of`` parses."""
    return ",".join(f"{end:g}" for end in zoom)


def _of_suite(kind: str, machine: str, suite: str) -> str:
    return f"/{kind}/{quote(machine, safe='')}/{quote(suite, safe='')}"


def _query(search: str) -> dict[str, list[str]]:
    """Return keys and values of an address's query; {} if the query has more fields than the dashboard ever writes."""
    try:
        return parse_qs(search.removeprefix("?"), max_num_fields=4 * _MOST)
    except ValueError:
        return {}
