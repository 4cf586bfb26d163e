"""Return where the alert database is, without an import of the modules that open it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import platformdirs

#: Environment variable that names the database: a file or a URL.
STATE = "LOCKSTEP_STATE"


def default_state(results: Path) -> str | Path:
    """Return the alert database of a results folder: ``$LOCKSTEP_STATE``, or a file in the user's data folder."""
    if configured := os.environ.get(STATE):
        return configured
    root = results.resolve()
    folder = platformdirs.user_data_path("lockstep", appauthor=False)
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
    return folder / f"{root.parent.name or 'results'}-{digest}" / "alerts.sqlite"
