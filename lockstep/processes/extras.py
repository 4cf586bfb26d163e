"""Optional dependencies: which extra of the distribution brings a package that is not installed."""

from __future__ import annotations

#: What each extra of pyproject.toml brings, by the names that are imported. An extra that includes another one leaves
#: the other's packages out.
EXTRAS = {
    "gpu": {"torch", "triton"},
    "history": {"alembic", "apprise", "duckdb", "pyarrow", "sqlalchemy"},
    "dashboard": {
        *("dash", "dash_ag_grid", "dash_mantine_components", "flask", "flask_limiter", "flask_wtf", "gunicorn"),
        *("plotly", "prometheus_client"),
    },
    "isolated": {"landlock", "pyseccomp"},
    "postgresql": {"psycopg"},
}


def missing(error: ModuleNotFoundError) -> str:
    """Return what to install, in one line, or "" where no extra brings the package.

    No package index has the distribution: it is installed from a clone.
    """
    package = (error.name or "").split(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), "")
    return f"{package} is not installed: pip install '.[{extra}]' in a clone of Lockstep" if extra else ""
