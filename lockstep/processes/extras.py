"""Optional dependencies: find the extra of the distribution that installs a missing package."""

from __future__ import annotations

#: Packages that each extra of pyproject.toml installs, by their import names. Packages of an extra that another one
#: includes are listed only with the included extra.
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
    """Return in one line what to install, or "" if no extra installs the package.

    The distribution is not on a package index: it is installed from a clone.
    """
    package = (error.name or "").split(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), "")
    return f"{package} is not installed: pip install '.[{extra}]' in a clone of Lockstep" if extra else ""
