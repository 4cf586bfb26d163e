"""The photographed pages: the address of each, and the elements that must be drawn first."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.address import CommitAddress, FamilyAddress, OverviewAddress, SeriesAddress, link

#: The recorded machine; the last commit of the range in which ``w4a16.ring`` became slower at one token; the commit
#: measured before the range.
MACHINE = "h200-x4-unlocked"
SLOWER, BEFORE = "998e0d48ecadb1d380a8e77bd6a8b911fcd7ff0c", "e6b7c47741a14a152e9f1a8443d2a3012a9c571d"

#: Elements that exist once a chart has its points, the table of families its cells, a table its rows.
TRACE, CELL, ROW = ".scatterlayer .trace path", ".families .cell", ".ag-center-cols-container .ag-row"

#: Names of the pages that the README shows.
FOR_README = ("overview", "family", "alert")


@dataclass(frozen=True)
class Page:
    """A page to photograph.

    Attributes:
        name: name of the file, without its suffix.
        address: path and query, which follow the site's address.
        selectors: CSS selectors; each must match a visible element before the picture is taken.
    """

    name: str
    address: str
    selectors: tuple[str, ...]


def pages(alert: int) -> tuple[Page, ...]:
    """Return every page of the dashboard, with an example for each page that shows one series, commit or alert.

    Args:
        alert: number of the alert that is shown.
    """
    case = "M=1,K=8192,N=8192,group=128"
    series = SeriesAddress(MACHINE, "w4a16", "ring", case, "cold")
    compare = link("/compare", bm=MACHINE, bc=BEFORE, hm=MACHINE, hc=SLOWER)
    return (
        Page("overview", OverviewAddress(MACHINE, "cold", "all").link(), (CELL, ROW)),
        Page("family", FamilyAddress(MACHINE, "w4a16").link(), (TRACE,)),
        Page("alert", f"/alert/{alert}", (TRACE,)),
        Page("alerts", "/alerts", ("#alerts-list table",)),
        Page("commit", CommitAddress(SLOWER, MACHINE).link(), (ROW,)),
        Page("series", series.link(), (TRACE,)),
        Page("compare", compare, ("#compare-body table",)),
        Page("machines", "/machines", (TRACE,)),
        Page("missing", "/nothing", (".notice",)),
    )
