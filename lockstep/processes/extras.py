"""Name the optional extra of Lockstep's distribution that installs a missing package."""

from __future__ import annotations

#: Import names of the packages that each extra of pyproject.toml installs. If one extra includes another, the included
#: extra alone lists the shared packages.
EXTRAS = {
    "gpu": {"torch", "triton"},
    "history": {"apprise", "duckdb", "sqlalchemy"},
    "dashboard": {
        *("dash", "dash_ag_grid", "dash_mantine_components", "flask", "flask_limiter"),
        *("plotly", "prometheus_client", "waitress"),
    },
    "postgresql": {"psycopg"},
    "remote": {"fsspec"},
}


def missing(error: ModuleNotFoundError) -> str:
    """Return a line that tells the user what to install, or "" if no extra installs the missing package.

    The line names a clone of the repository, because the distribution is not on a package index.
    """
    package = (error.name or "").split(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), "")
    return f"{package} is not installed: pip install '.[{extra}]' in a clone of Lockstep" if extra else ""
