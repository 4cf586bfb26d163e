"""Addresses of pages: built and read in one place, so that a permalink restores what it was taken from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qs, quote, unquote, urlencode

#: Values of one key; more in an address is no link of ours.
_MOST = 50


@dataclass(frozen=True)
class FamilyAddress:
    """A family page: machine and suite, and what is chosen on it (empty: the page's own choice).

    ``zoom`` is that of its trends: first and last commit shown, as ordinals with fractions; () all.
    """

    machine: str
    suite: str
    cases: tuple[str, ...] = ()
    l2: str = ""
    quantities: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    zoom: tuple[float, ...] = ()

    def link(self) -> str:
        """The address, from the root of the site."""
        several = (("case", self.cases), ("quantity", self.quantities), ("variants", self.variants))
        query = [(key, value) for key, values in several for value in values]
        query += [(key, text) for key, text in (("l2", self.l2), ("zoom", zoom_text(self.zoom))) if text]
        path = f"/family/{quote(self.machine, safe='')}/{quote(self.suite, safe='')}"
        return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def parse_family(path: str, search: str) -> FamilyAddress | None:
    """The family page that an address means; ``None`` if it means none."""
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
    )


def asked(search: str, *keys: str) -> dict[str, str]:
    """The first value of each key in an address's query; "" of those that it has not."""
    query = _query(search)
    return {key: query.get(key, [""])[0] for key in keys}


def link(path: str, **query: str) -> str:
    """An address with those of the query's keys that have a value."""
    told = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(told, quote_via=quote)}" if told else path


@dataclass(frozen=True)
class OverviewAddress:
    """The overview: what is chosen on it (empty: the page's own choice).

    ``since`` is "visit", "7d", "all" or a commit's full hash; ``show`` what the heatmap has; ``search`` the table's.
    """

    machine: str = ""
    l2: str = ""
    since: str = ""
    show: str = ""
    search: str = ""

    def link(self) -> str:
        """The address, from the root of the site."""
        return link("/", **_given(self))


@lru_cache(maxsize=20_000)
def _series_link(address: SeriesAddress) -> str:
    """Kept: a table has thousands, and has them again with every look."""
    query = {name: text for name, text in _given(address).items() if name not in ("machine", "suite")}
    return link(f"/series/{quote(address.machine, safe='')}/{quote(address.suite, safe='')}", **query)


@dataclass(frozen=True)
class SeriesAddress:
    """One series: a row of the overview's table.

    Attributes:
        machine, suite, variant, case, l2: which.
        quantity: shown on it; "" the one that is followed.
        zoom: first and last commit shown, as ordinals with fractions; () all.
    """

    machine: str
    suite: str
    variant: str = ""
    case: str = ""
    l2: str = ""
    quantity: str = ""
    zoom: tuple[float, ...] = ()

    def link(self) -> str:
        """The address, from the root of the site."""
        return _series_link(self)


@dataclass(frozen=True)
class CommitAddress:
    """Everything that was measured at one commit; ``machine`` "" is the first that measured it."""

    commit: str
    machine: str = ""

    def link(self) -> str:
        """The address, from the root of the site."""
        return link(f"/commit/{quote(self.commit, safe='')}", machine=self.machine)


def parse_overview(search: str) -> OverviewAddress:
    """The overview that an address means."""
    return OverviewAddress(**asked(search, "machine", "l2", "since", "show", "search"))


def parse_series(path: str, search: str) -> SeriesAddress | None:
    """The series page that an address means; ``None`` if it means none."""
    parts = path.strip("/").split("/")
    if len(parts) != 3 or parts[0] != "series":
        return None
    chosen = asked(search, "variant", "case", "l2", "quantity")
    [zoom] = asked(search, "zoom").values()
    return SeriesAddress(unquote(parts[1]), unquote(parts[2]), **chosen, zoom=zoom_of(zoom))


def parse_commit(path: str, search: str) -> CommitAddress | None:
    """The commit page that an address means; ``None`` if it means none."""
    parts = path.strip("/").split("/")
    if len(parts) != 2 or parts[0] != "commit":
        return None
    return CommitAddress(unquote(parts[1]), asked(search, "machine")["machine"])


def zoom_of(text: str) -> tuple[float, ...]:
    """``-0.5,12`` as two numbers, the smaller first; () if it is no such thing."""
    try:
        ends = tuple(float(part) for part in text.split(","))
    except ValueError:
        return ()
    return ends if len(ends) == 2 and -1e9 < ends[0] < ends[1] < 1e9 else ()


def zoom_text(zoom: tuple[float, ...]) -> str:
    """What ``zoom_of`` reads."""
    return ",".join(f"{end:g}" for end in zoom)


def _given(address: OverviewAddress | SeriesAddress) -> dict[str, str]:
    texts = {name: zoom_text(one) if name == "zoom" else one for name, one in vars(address).items()}
    return {name: text for name, text in texts.items() if text}


def _query(search: str) -> dict[str, list[str]]:
    """Keys and values of an address's query; none of one that is no link of ours."""
    try:
        return parse_qs(search.removeprefix("?"), max_num_fields=4 * _MOST)
    except ValueError:
        return {}
