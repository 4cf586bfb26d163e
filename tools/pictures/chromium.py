"""Find the system's Chromium; options with which Chromium sends no requests to its maker."""

from __future__ import annotations

import shutil

#: Chromium's options. The last four keep it from sending requests to its maker.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """Return the path of the installed Chromium or Chrome; ``None`` if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
