"""Add columns and indexes for filtering and ordering lists, and a number that grows with every change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_LISTED = ("state", "machine", "family", "owner", "topic", "since", "opened_at", "size", "id")

#: Rows that are in memory at once.
_AT_ONCE = 1000


def upgrade() -> None:
    """Add the columns, fill them from the contents, and index them."""
    # Columns with defaults are added in place. Otherwise SQLite would rebuild the table, to which other tables refer.
    op.add_column("alert", sa.Column("owner", sa.Text(), nullable=False, server_default=""))
    op.add_column("alert", sa.Column("since", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("alert", sa.Column("size", sa.Float(), nullable=False, server_default="0"))
    op.add_column("alert", sa.Column("search", sa.Text(), nullable=False, server_default=""))
    alert = sa.table(
        "alert",
        *(sa.column(name) for name in ("id", "owner", "since", "size", "search")),
        sa.column("content", sa.JSON()),
    )
    connection = op.get_bind()
    last = 0
    while rows := connection.execute(
        sa.select(alert.c.id, alert.c.content).where(alert.c.id > last).order_by(alert.c.id).limit(_AT_ONCE)
    ).all():
        filled: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in ("owner", "since", "size", "search")}
        values = [{"number": row.id, **_listed(row.content)} for row in rows]
        connection.execute(sa.update(alert).where(alert.c.id == sa.bindparam("number")).values(filled), values)
        last = rows[-1].id
    op.create_index("ix_alert_changed_at", "alert", ["changed_at"])
    op.create_index("ix_alert_list", "alert", list(_LISTED))
    clock = op.create_table(
        "alert_clock",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_clock"),
    )
    op.bulk_insert(clock, [{"id": 1, "number": 1}])


def _listed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an alert as ``lockstep.alerts.database.listing`` defined them in this layout."""
    members = content["members"]
    commits, before = content["commits"], content["before"]
    after = commits[-1][:8] if commits else ""
    texts = [content["family"], content["machine"], content["topic"], content["cause"]["kind"], content["owner"]]
    texts += [f"{before[:8]}..{after}" if before and len(commits) != 1 else after, content["text"]]
    for series in (member["series"] for member in members[:20]):
        head = f"{series['suite']}.{series['variant']}" if series["variant"] else series["suite"]
        texts += [head, series["case"], series["l2"]]
    return {
        "new_owner": content["owner"],
        "new_since": content["since"],
        "new_size": members[0]["size"] if members else 0.0,
        "new_search": " ".join(part for part in texts if part).lower(),
    }
