"""Links from the page of one quantity of a suite, such as latency, to the pages of the suite's other quantities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import dcc, html

from lockstep.compare.shown_quantities import related_suites
from lockstep.history.snapshot import Results


def quantity_links(results: Results, suite: str, machine: str, address: Callable[[str, str], str]) -> list[Any]:
    """Return a line of links to the suite's other quantities; [] if there are none.

    Args:
        suite: the name of the page's quantity, see ``Benchmark.key_suite``.
        machine: the page's machine. If it lacks a quantity, the link leads to the first machine that has the quantity.
        address: returns a page's address for a machine and the name of a quantity; "" if there is no such page.
    """
    related = related_suites(results, suite)
    parts: list[Any] = []
    for key_suite, label in related.items():
        machines = dict.fromkeys(
            series.machine
            for benchmark in results.benchmarks.values()
            if benchmark.key_suite == key_suite
            for series in results.series(benchmark=benchmark.name)
        )
        if key_suite == suite:
            parts += [" · ", html.B(label)]
        elif machines:
            shown_machine = machine if machine in machines else next(iter(machines))
            href = address(shown_machine, key_suite)
            parts += [" · ", dcc.Link(label, href=href, className="link")] if href else []
    return [html.P(["Quantity: ", *parts[1:]], className="said")] if len(parts) > 2 else []
