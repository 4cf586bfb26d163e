"""Controls that pages share: menus, choices of one of a few values, and searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

#: Values that a control offers: themselves, or each with its text.
Offered = Sequence[str] | Sequence[dict[str, str]] | Mapping[Any, str]


def menu(identity: str, label: str, offered: Offered, value: str | None, **options: Any) -> Any:
    """Return a menu that always has a value. ``options`` are further options of ``dmc.Select``."""
    return dmc.Select(id=identity, label=label, data=_data(offered), value=value, allowDeselect=False, **options)


def optional_menu(identity: str, label: str, offered: Offered, value: str, placeholder: str, **options: Any) -> Any:
    """Return a menu that shows ``placeholder`` while nothing is chosen. ``value`` is then ""."""
    shown: dict[str, Any] = {"clearable": True, "searchable": True, "placeholder": placeholder} | options
    return dmc.Select(id=identity, label=label, data=_data(offered), value=value or None, **shown)


def choice(identity: str, label: str, offered: Offered, value: str, hidden: bool = False) -> Any:
    """Return a control that shows all values beside each other. A value that is not offered selects the first."""
    data = _data(offered)
    values = [entry["value"] if isinstance(entry, dict) else entry for entry in data]
    selected = value if value in values else values[0]
    return labelled(label, dmc.SegmentedControl(id=identity, data=data, value=selected), hidden)


def axis_choice(identity: str, value: str) -> Any:
    """Return the control that places the commits of charts in order or by date."""
    return choice(identity, "Commits", {"order": "in order", "date": "by date"}, value)


def chips(identity: str, label: str, offered: Mapping[str, Any], values: Sequence[str], kind: str = "") -> Any:
    """Return a control that selects any number of values, each offered with its content. ``kind`` is a CSS class."""
    style: dict[str, Any] = {"className": "mono"} if kind else {}
    shown = [dmc.Chip(content, value=value, **style) for value, content in offered.items()]
    group = dmc.ChipGroup(shown, id=identity, multiple=True, value=values)
    return html.Div([html.Span(label, className="label"), group], className=f"chips {kind}".strip())


def search_field(identity: str, value: str = "", placeholder: str = "family, shape …") -> Any:
    """Return a text field that filters a table."""
    field: dict[str, Any] = {"placeholder": placeholder, "debounce": 300, "className": "filter"}
    return dmc.TextInput(id=identity, label="Search", value=value, **field)


def labelled(label: str, control: Any, hidden: bool = False) -> Any:
    """Return a control under a label, for controls that have no option for a label."""
    return html.Div([html.Span(label, className="label"), control], hidden=hidden)


def _data(offered: Offered) -> list[Any]:
    if isinstance(offered, Mapping):
        return [{"value": value, "label": text} for value, text in offered.items()]
    return list(offered)
