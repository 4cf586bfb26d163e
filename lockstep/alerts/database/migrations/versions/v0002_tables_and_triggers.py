"""The first layout: alerts, their changes, the log, the outbox, and a number that grows with every change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = None
branch_labels = None
depends_on = None

_REFUSE = "alert_event is append-only"
_LISTED = ("state", "machine", "family", "owner", "topic", "since", "opened_at", "size", "id")


def upgrade() -> None:
    """Create the tables, and make the log refuse changes."""
    op.create_table(
        "alert",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(32), nullable=False),
        sa.Column("topic", sa.String(16), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("ending", sa.String(16), nullable=False),
        sa.Column("muted_until", sa.Date(), nullable=True),
        sa.Column("closed_at_commit", sa.String(64), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False, server_default=""),
        sa.Column("since", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("size", sa.Float(), nullable=False, server_default="0"),
        sa.Column("search", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id", name="pk_alert"),
        sa.UniqueConstraint("fingerprint", name="uq_alert_fingerprint"),
    )
    op.create_index("ix_alert_place", "alert", ["machine", "family"])
    op.create_index("ix_alert_changed_at", "alert", ["changed_at"])
    op.create_index("ix_alert_list", "alert", list(_LISTED))
    clock = op.create_table(
        "alert_clock",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_clock"),
    )
    op.bulk_insert(clock, [{"id": 1, "number": 1}])
    op.create_table(
        "alert_member",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("alert_id", sa.Integer(), nullable=False),
        sa.Column("key_hash", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_member"),
        sa.UniqueConstraint("key_hash", name="uq_alert_member_key_hash"),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.id"], name="fk_alert_member_alert_id"),
    )
    op.create_index("ix_alert_member_alert_id", "alert_member", ["alert_id"])
    op.create_table(
        "alert_event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("alert_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("what", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_event"),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.id"], name="fk_alert_event_alert_id"),
    )
    op.create_index("ix_alert_event_alert_id", "alert_event", ["alert_id"])
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("receiver", sa.String(16), nullable=False),
        sa.Column("alert_id", sa.Integer(), nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
        sa.UniqueConstraint("key", "receiver", name="uq_outbox_key"),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.id"], name="fk_outbox_alert_id"),
    )
    op.create_index("ix_outbox_alert_id", "outbox", ["alert_id"])
    op.create_index("ix_outbox_due_at", "outbox", ["due_at"])
    _make_append_only()


def _make_append_only() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER alert_event_no_{verb.lower()} BEFORE {verb} ON alert_event "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSE}'); END"
            )
    else:
        op.execute(
            "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_REFUSE}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER alert_event_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON alert_event "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
