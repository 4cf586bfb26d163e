"""Locate Lockstep's folder in the user's cache. Users may delete it: what is missing is computed or installed again."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """Return Lockstep's cache folder: ``LOCKSTEP_CACHE``, or ``lockstep`` in the user's cache (``XDG_CACHE_HOME``)."""
    folder = os.environ.get("LOCKSTEP_CACHE")
    return Path(folder) if folder else user_cache_path("lockstep", appauthor=False)
