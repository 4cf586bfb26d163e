"""Build and parse the addresses of pages in one place, so that a permalink restores its page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qs, quote, unquote, urlencode

from flask import has_request_context, request

#: Maximum values of one key. An address with more values was not made by the dashboard.
_MOST = 50


@dataclass(frozen=True)
class FamilyAddress:
    """The address of a family page: machine, suite and the reader's choices. An empty choice is the page's default.

    ``axis`` is "date" if commits stand at their dates; else they stand in order. ``zoom`` is the visible range of the
    trends, from and to a position on that axis, where the machine's oldest commit is at 0; () shows all commits.
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
        choices = ("l2", self.l2), ("zoom", zoom_text(self.zoom)), ("axis", self.axis)
        query += [(key, text) for key, text in choices if text]
        path = f"{root()}/family/{quote(self.machine, safe='')}/{quote(self.suite, safe='')}"
        return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def parse_family(path: str, search: str) -> FamilyAddress | None:
    """Parse path and query of a family page; return ``None`` for the path of another page."""
    parts = path.strip("/").split("/")
    if len(parts) != 3 or parts[0] != "family":
        return None
    query = _query(search)
    chosen = {key: tuple(query.get(key, ())[:_MOST]) for key in ("case", "quantity", "variants")}
    return FamilyAddress(
        machine=unquote(parts[1]),
        suite=unquote(parts[2]),
        cases=chosen["case"],
        l2=query.get("l2", [""])[0],
        quantities=chosen["quantity"],
        variants=chosen["variants"],
        zoom=zoom_of(query.get("zoom", [""])[0]),
        axis=query.get("axis", [""])[0],
    )


def query_values(search: str, *keys: str) -> dict[str, str]:
    """Return, for each of ``keys``, its first value in an address's query; "" if the query lacks the key."""
    query = _query(search)
    return {key: query.get(key, [""])[0] for key in keys}


def root() -> str:
    """Return the path below which the current request's server is, without "/" at its end; usually ""."""
    return request.script_root if has_request_context() else ""


def link(path: str, **query: str) -> str:
    """Return ``path`` below ``root`` with ``query`` as its query string, without the keys whose value is ""."""
    return _with_query(f"{root()}{path}", query)


def _with_query(path: str, query: dict[str, str]) -> str:
    set_values = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(set_values, quote_via=quote)}" if set_values else path


@dataclass(frozen=True)
class OverviewAddress:
    """The address of the overview page with the reader's choices. An empty choice is the page's default.

    Attributes:
        since: the commit with which the newest results are compared: "visit", "7d", "all" or a full hash, see
            ``lockstep.compare.series_status.reference``.
        quantity: the quantity whose series are shown, see ``dashboard.pages.overview_quantities``.
        search: the words that a row of the table must contain.
    """

    machine: str = ""
    l2: str = ""
    since: str = ""
    quantity: str = ""
    search: str = ""

    def link(self) -> str:
        """Return the page's path, which begins with "/", and its query."""
        return link("/", **_given(self))


@lru_cache(maxsize=20_000)
def _series_link(address: SeriesAddress, below: str) -> str:
    """Return the address of a series page below a root. Cached, because a table that has thousands of these addresses
    is drawn again and again.
    """
    query = {name: text for name, text in _given(address).items() if name not in ("machine", "suite")}
    path = f"{below}/series/{quote(address.machine, safe='')}/{quote(address.suite, safe='')}"
    return _with_query(path, query)


@dataclass(frozen=True)
class SeriesAddress:
    """The address of the page of one series, which is one row of the overview's table.

    Attributes:
        machine, suite, variant, case, l2: identify the series.
        quantity: the quantity that the page shows; "" for the quantity that the detector follows.
        zoom, axis: the visible range of commits and their axis, see ``FamilyAddress``.
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
        return _series_link(self, root())


@dataclass(frozen=True)
class CommitAddress:
    """The address of a commit page. With ``machine`` "", the page shows the first machine that measured the commit."""

    commit: str
    machine: str = ""

    def link(self) -> str:
        """Return the page's path, which begins with "/", and its query."""
        return link(f"/commit/{quote(self.commit, safe='')}", machine=self.machine)


def parse_overview(search: str) -> OverviewAddress:
    """Parse the query of an overview page. A missing key stands for the page's default."""
    return OverviewAddress(**query_values(search, "machine", "l2", "since", "quantity", "search"))


def parse_series(path: str, search: str) -> SeriesAddress | None:
    """Parse path and query of a series page; return ``None`` for the path of another page."""
    parts = path.strip("/").split("/")
    if len(parts) != 3 or parts[0] != "series":
        return None
    chosen = query_values(search, "variant", "case", "l2", "quantity", "axis")
    [zoom] = query_values(search, "zoom").values()
    return SeriesAddress(unquote(parts[1]), unquote(parts[2]), **chosen, zoom=zoom_of(zoom))


def parse_commit(path: str, search: str) -> CommitAddress | None:
    """Parse path and query of a commit page; return ``None`` for the path of another page."""
    parts = path.strip("/").split("/")
    if len(parts) != 2 or parts[0] != "commit":
        return None
    return CommitAddress(unquote(parts[1]), query_values(search, "machine")["machine"])


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


def _given(address: OverviewAddress | SeriesAddress) -> dict[str, str]:
    texts = {name: zoom_text(value) if name == "zoom" else value for name, value in vars(address).items()}
    return {name: text for name, text in texts.items() if text}


def _query(search: str) -> dict[str, list[str]]:
    """Return keys and values of an address's query; {} if the query has more fields than the dashboard ever writes."""
    try:
        return parse_qs(search.removeprefix("?"), max_num_fields=4 * _MOST)
    except ValueError:
        return {}
