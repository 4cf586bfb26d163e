"""Controls that pages share: menus, choices of one of a few values, searches, and links to other quantities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from lockstep.compare.shown_quantities import related_suites
from lockstep.history.snapshot import Results
from lockstep.record.quantity import QUANTITIES

#: Values that a control offers: themselves, or each with its text.
Offered = Sequence[str] | Sequence[dict[str, str]] | Mapping[Any, str]


def menu(identity: str, label: str, offered: Offered, value: str | None, **options: Any) -> Any:
    """Return a menu that always has a value. ``options`` are further options of ``dmc.Select``."""
    shown: dict[str, Any] = {"selectFirstOptionOnChange": True, "allowDeselect": False} | options
    return dmc.Select(id=identity, label=label, data=_data(offered), value=value, **shown)


def optional_menu(identity: str, label: str, offered: Offered, value: str, placeholder: str, **options: Any) -> Any:
    """Return a menu that shows ``placeholder`` while nothing is chosen. ``value`` is then ""."""
    shown = {"clearable": True, "searchable": True, "placeholder": placeholder, "selectFirstOptionOnChange": True}
    return dmc.Select(id=identity, label=label, data=_data(offered), value=value or None, **shown | options)


def choice(identity: str, label: str, offered: Offered, value: str, hidden: bool = False) -> Any:
    """Return a control that shows all values beside each other. A value that is not offered selects the first."""
    data = _data(offered)
    values = [entry["value"] if isinstance(entry, dict) else entry for entry in data]
    selected = value if value in values else values[0]
    control = dmc.SegmentedControl(id=identity, data=data, value=selected)
    return html.Div([html.Span(label, className="label"), control], hidden=hidden)


def axis_choice(identity: str, value: str) -> Any:
    """Return the control that places the commits of charts in order or by date."""
    return choice(identity, "Commits", {"order": "in order", "date": "by date"}, value)


def chips(identity: str, label: str, offered: Mapping[str, Any], values: Sequence[str], kind: str = "") -> Any:
    """Return a control that selects any number of values, each offered with its content; hidden for a single value.

    ``kind`` is a CSS class.
    """
    style: dict[str, Any] = {"className": "mono"} if kind else {}
    offers = [dmc.Chip(content, value=value, **style) for value, content in offered.items()]
    group = dmc.ChipGroup(offers, id=identity, multiple=True, value=values)
    shown = [html.Span(label, className="label"), group]
    return html.Div(shown, className=f"chips {kind}".strip(), hidden=len(offered) < 2)


def folded(*rows: Sequence[Any], kind: str = "") -> Any:
    """Return rows of controls, which a narrow screen folds below the word "Filters".

    The application's callback "wide" folds them. ``kind`` has further CSS classes of the first row.
    """
    shown = [html.Div(row, className=f"controls {kind if not at else ''}".strip()) for at, row in enumerate(rows)]
    return html.Details([html.Summary("Filters"), *shown], id="filters", open=True, className="filters-fold")


def search_field(identity: str, value: str = "", placeholder: str = "family, shape …") -> Any:
    """Return a text field that filters a table."""
    field: dict[str, Any] = {"placeholder": placeholder, "debounce": 300, "className": "filter"}
    return dmc.TextInput(id=identity, label="Search", value=value, **field)


def _data(offered: Offered) -> list[Any]:
    if isinstance(offered, Mapping):
        return [{"value": value, "label": text} for value, text in offered.items()]
    return list(offered)


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
        benchmarks = [benchmark for benchmark in results.benchmarks.values() if benchmark.key_suite == key_suite]
        machines = dict.fromkeys(one.machine for kind in benchmarks for one in results.series(benchmark=kind.name))
        if key_suite == suite:
            parts += [" · ", html.B(label)]
        elif machines:
            shown_machine = machine if machine in machines else next(iter(machines))
            href = address(shown_machine, key_suite)
            about = next((QUANTITIES[one.quantity].about for one in benchmarks if one.quantity in QUANTITIES), "")
            other = "" if shown_machine == machine else f", on {shown_machine}"
            link = dcc.Link(label, href=href, className="link", title=about + other)
            parts += [" · ", link] if href else []
    return [html.P(["Quantity: ", *parts[1:]], className="said")] if len(parts) > 2 else []
