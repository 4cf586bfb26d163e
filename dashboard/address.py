"""Addresses of pages: built and read in one place, so that a permalink restores what it was taken from."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlencode

#: Values of one key; more in an address is no link of ours.
_MOST = 50


@dataclass(frozen=True)
class FamilyAddress:
    """A family page: machine and suite, and what is chosen on it (empty: the page's own choice)."""

    machine: str
    suite: str
    cases: tuple[str, ...] = ()
    l2: str = ""
    quantities: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    def link(self) -> str:
        """The address, from the root of the site."""
        several = (("case", self.cases), ("quantity", self.quantities), ("variants", self.variants))
        query = [(key, value) for key, values in several for value in values]
        query += [("l2", self.l2)] if self.l2 else []
        path = f"/family/{quote(self.machine, safe='')}/{quote(self.suite, safe='')}"
        return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def parse_family(path: str, search: str) -> FamilyAddress | None:
    """The family page that an address means; ``None`` if it means none."""
    parts = path.strip("/").split("/")
    if len(parts) != 3 or parts[0] != "family":
        return None
    try:
        query = parse_qs(search.removeprefix("?"), max_num_fields=4 * _MOST)
    except ValueError:
        query = {}
    chosen = {key: tuple(query.get(key, ())[:_MOST]) for key in ("case", "quantity", "variants")}
    return FamilyAddress(
        machine=unquote(parts[1]),
        suite=unquote(parts[2]),
        cases=chosen["case"],
        l2=query.get("l2", [""])[0],
        quantities=chosen["quantity"],
        variants=chosen["variants"],
    )


def asked(search: str, *keys: str) -> dict[str, str]:
    """The first value of each key in an address's query; "" of those that it has not."""
    try:
        query = parse_qs(search.removeprefix("?"), max_num_fields=4 * _MOST)
    except ValueError:
        query = {}
    return {key: query.get(key, [""])[0] for key in keys}


def link(path: str, **query: str) -> str:
    """An address with those of the query's keys that have a value."""
    told = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(told, quote_via=quote)}" if told else path
