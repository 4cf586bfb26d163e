"""Make the site that ``asv publish`` writes work without a network.

asv's pages load jQuery, flot and Bootstrap from content delivery networks. On a GPU host without internet access the
site is a blank page. ``asv publish`` runs every ``OutputPublisher``. The publisher here puts copies of those files
beside the pages and makes the pages load the copies.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asv.publishing import OutputPublisher
from asv.util import UserError

#: The copies. README.md in this folder lists their versions, licences and origins.
VENDOR = Path(__file__).parent / "vendor"

_CDNJS = "https://cdnjs.cloudflare.com/ajax/libs"
_JSDELIVR = "https://cdn.jsdelivr.net/npm"

#: The files that the pages of asv 0.6.6 load from other hosts, and their copies.
COPIES: Mapping[str, str] = {
    "https://code.jquery.com/jquery-3.3.1.min.js": "jquery-3.3.1.min.js",
    f"{_CDNJS}/flot/0.8.3/jquery.flot.min.js": "jquery.flot-0.8.3.min.js",
    f"{_CDNJS}/flot/0.8.3/jquery.flot.time.min.js": "jquery.flot.time-0.8.3.min.js",
    f"{_CDNJS}/flot/0.8.3/jquery.flot.selection.min.js": "jquery.flot.selection-0.8.3.min.js",
    f"{_CDNJS}/flot/0.8.3/jquery.flot.categories.min.js": "jquery.flot.categories-0.8.3.min.js",
    f"{_JSDELIVR}/flot-orderbars@1.0.0/js/jquery.flot.orderBars.js": "jquery.flot.orderBars-1.0.0.js",
    f"{_CDNJS}/stupidtable/1.0.1/stupidtable.min.js": "stupidtable-1.0.1.js",
    f"{_CDNJS}/blueimp-md5/2.19.0/js/md5.min.js": "md5-2.19.0.min.js",
    f"{_JSDELIVR}/bootstrap@3.1.1/dist/js/bootstrap.min.js": "bootstrap-3.1.1.min.js",
    f"{_JSDELIVR}/bootstrap@3.1.1/dist/css/bootstrap.min.css": "bootstrap-3.1.1.min.css",
}

# A browser fetches the addresses in these tags when it reads the tag, but the target of <a> only on a click.
_LOADING_TAG = re.compile(r"<(?!a\b)[a-z]+\b[^>]*>", re.IGNORECASE)
_EXTERNAL = re.compile(r"""(\s(?:src|href|data|poster)\s*=\s*)(["']?)((?:https?:)?//[^\s"'>]+)\2""", re.IGNORECASE)
_STYLE_IMPORT = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^\s"')]+)""", re.IGNORECASE)
# The hash belongs to the file on the other host. stupidtable's copy is the same code, not minified.
_FETCH_ATTRIBUTE = re.compile(
    r"""\s(?:integrity|crossorigin|referrerpolicy)(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]+))?""", re.IGNORECASE
)


# asv carries no types, so its base class is Any to mypy.
class Offline(OutputPublisher):  # type: ignore[misc]  # asv has no types
    """Makes the published site load nothing from another host."""

    name = "offline"
    button_label = None
    description = "Load scripts and styles from this site"
    # Runs before asv writes its pages: a site that cannot work offline fails before the pages take time.
    order = 0

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
        """Make asv's site load nothing from the network; ``asv publish`` calls this after writing ``conf.html_dir``."""
        make_local(Path(conf.html_dir))


def make_local(html_dir: Path) -> None:
    """Copy the vendored files into ``html_dir/vendor`` and let every page in ``html_dir`` load them.

    Raise ``UserError`` if a page or a style sheet loads a file that has no copy. Nothing is changed then.
    """
    pages = sorted(html_dir.glob("*.html"))
    unknown = [
        f"{path.name}: {url}"
        for path in [*pages, *sorted(html_dir.glob("*.css"))]
        for url in _without_copy(path.read_text(encoding="utf-8"))
    ]
    if unknown:
        listed = "\n  ".join(unknown)
        raise UserError(
            f"asv's pages load files from other hosts that Lockstep has no copy of; {html_dir} would not work "
            f"without a network:\n  {listed}\n"
            "Install the asv version that kernel-lockstep pins, or add the files as lockstep/asv/vendor/README.md says."
        )
    shutil.copytree(VENDOR, html_dir / VENDOR.name, dirs_exist_ok=True)
    for page in pages:
        page.write_text(_LOADING_TAG.sub(_localise, page.read_text(encoding="utf-8")), encoding="utf-8")


def _without_copy(text: str) -> list[str]:
    """Return the addresses on other hosts that a browser fetches for this HTML or CSS, if they have no copy."""
    tags = (tag.group() for tag in _LOADING_TAG.finditer(text))
    named = [url[3] for tag in tags for url in _EXTERNAL.finditer(tag)]
    return [url for url in named if url not in COPIES] + _STYLE_IMPORT.findall(text)


def _localise(tag: re.Match[str]) -> str:
    text, replaced = _EXTERNAL.subn(lambda url: f'{url[1]}"{VENDOR.name}/{COPIES[url[3]]}"', tag.group())
    return _FETCH_ATTRIBUTE.sub("", text) if replaced else text
