"""Write page elements as HTML text, with charts that a copy of plotly.js draws and links between files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from plotly.utils import PlotlyJSONEncoder

#: Elements without an end tag.
_VOID = ("img", "br", "hr")

#: Attributes whose names in HTML differ from the names of Dash.
_NAMES = {"className": "class", "tabIndex": "tabindex", "colSpan": "colspan", "rowSpan": "rowspan"}

#: Attributes that only the dashboard uses.
_DROPPED = ("children", "href", "id", "style", "n_clicks", "refresh")

_PAGE = """<!DOCTYPE html>
<html lang="en" class="static"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><link rel="stylesheet" href="lockstep.css">{script}</head>
<body><header><div><span class="brand"><span class="brand-mark"></span>Lockstep</span>
<nav class="pages">{navigation}</nav></div></header>{body}<footer class="dim">{footer}</footer></body></html>
"""

_DRAW = '<script src="plotly.min.js" defer></script><script src="draw.js" defer></script>'

#: Draws the charts of a page; the text of a chart's element is its figure.
DRAW_SCRIPT = """// Draw each chart when it comes near the screen.
const draw = (entries, watch) => entries.filter((one) => one.isIntersecting).forEach(({ target }) => {
  watch.unobserve(target);
  const { data, layout } = JSON.parse(target.dataset.figure);
  const config = { responsive: true, displayModeBar: false, showSendToCloud: false, plotlyServerURL: "" };
  Plotly.newPlot(target, data, layout, config);
});
const watch = new IntersectionObserver(draw, { rootMargin: "400px" });
document.querySelectorAll("[data-figure]").forEach((chart) => watch.observe(chart));
"""

#: Returns the file to which an address of the dashboard leads; "" if the snapshot lacks the page.
FileOf = Callable[[str], str]


def page(title: str, body: Any, navigation: Any, footer: str, file_of: FileOf) -> str:
    """Return a whole page. Its text carries no data of another host and loads nothing but the files beside it."""
    content = "".join(_written(body, file_of))
    return _PAGE.format(
        title=escape(title),
        script=_DRAW if "data-figure=" in content else "",
        navigation="".join(_written(navigation, file_of)),
        body=content,
        footer=escape(footer),
    )


def _written(element: Any, file_of: FileOf) -> Iterator[str]:
    if element is None or isinstance(element, bool):
        return
    if isinstance(element, list | tuple):
        for part in element:
            yield from _written(part, file_of)
        return
    if not hasattr(element, "to_plotly_json"):
        yield escape(str(element), quote=False)
        return
    kind, given = type(element).__name__, element.to_plotly_json()["props"]
    if kind in ("Store", "Location"):
        return
    if kind == "Loading":
        yield from _written(given.get("children"), file_of)
    elif kind == "Graph":
        figure = escape(json.dumps(given["figure"], cls=PlotlyJSONEncoder, separators=(",", ":")))
        yield f'<div class="dash-graph" style="height:{given["style"]["height"]}" data-figure="{figure}"></div>'
    else:
        # A button acts on a server.
        tag = {"Link": "a", "Button": "span"}.get(kind, kind.lower())
        yield f"<{tag}{''.join(_attributes(tag, given, file_of))}>"
        if tag not in _VOID:
            yield from _written(given.get("children"), file_of)
            yield f"</{tag}>"


def _attributes(tag: str, given: dict[str, Any], file_of: FileOf) -> Iterator[str]:
    if tag == "a" and (target := _target(str(given.get("href", "")), file_of)):
        yield f' href="{escape(target)}"'
    if "id" in given and isinstance(given["id"], str):
        yield f' id="{escape(given["id"])}"'
    if given.get("style"):
        style = ";".join(f"{name}:{value}" for name, value in given["style"].items() if value is not None)
        yield f' style="{escape(style)}"'
    for name, value in given.items():
        if name in _DROPPED or value is None or value is False or name.startswith("data-"):
            continue
        shown = "" if value is True else str(value)
        yield f' {_NAMES.get(name, name)}="{escape(shown)}"'


def _target(href: str, file_of: FileOf) -> str:
    return href if href.startswith("#") else file_of(href)
