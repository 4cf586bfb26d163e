"""The tables of the alerts' database. ``lockstep.alerts.database.layouts`` creates them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Date,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
)

# A constraint needs a name, or a later layout could not change it.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: One row per alert. ``content`` is the ``Alert`` of the newest analysis, as JSON. Times are in ms since 1970, UTC.
#: ``owner``, ``since``, ``size``, ``search``, ``rank`` and ``story`` follow from ``content``, see
#: ``lockstep.alerts.database.listing``.
ALERT = Table(
    "alert",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("fingerprint", String(32), nullable=False, unique=True),
    Column("topic", String(16), nullable=False),
    Column("machine", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("ending", String(16), nullable=False),
    Column("muted_until", Date),
    Column("closed_at_commit", String(64), nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("content", JSON, nullable=False),
    Column("owner", Text, nullable=False, server_default=""),
    Column("since", BigInteger, nullable=False, server_default="0"),
    Column("size", Float, nullable=False, server_default="0"),
    Column("search", Text, nullable=False, server_default=""),
    Column("rank", Float, nullable=False, server_default="0"),
    Column("story", String(32), nullable=False, server_default=""),
)
Index("ix_alert_place", ALERT.c.machine, ALERT.c.family)
Index("ix_alert_changed_at", ALERT.c.changed_at)
# Lists are filtered, ordered and counted from this index alone. That is faster than reading the table, whose rows hold
# kilobytes of content.
_LISTED = (*("state", "machine", "family", "owner", "topic", "since", "opened_at", "size", "rank", "story"), "id")
Index("ix_alert_list", *(ALERT.c[name] for name in _LISTED))

#: A single row, whose ``number`` grows whenever an alert or its log changes.
CLOCK = Table(
    "alert_clock", METADATA, Column("id", Integer, primary_key=True), Column("number", BigInteger, nullable=False)
)

#: One row per change of a series, with the one alert that the change belongs to.
MEMBER = Table(
    "alert_member",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("alert_id", ForeignKey("alert.id"), nullable=False, index=True),
    Column("key_hash", String(32), nullable=False, unique=True),
)

#: Log of actions by people and by the data. Rows are only added: triggers refuse to change or delete them.
EVENT = Table(
    "alert_event",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("alert_id", ForeignKey("alert.id"), nullable=False, index=True),
    Column("at", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("note", Text, nullable=False),
)


@event.listens_for(EVENT, "after_create")
def _make_append_only(_: Table, connection: Connection, **__: Any) -> None:
    refuse = "alert_event is append-only"
    if connection.dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            connection.exec_driver_sql(
                f"CREATE TRIGGER alert_event_no_{verb.lower()} BEFORE {verb} ON alert_event "
                f"BEGIN SELECT RAISE(ABORT, '{refuse}'); END"
            )
    else:
        connection.exec_driver_sql(
            "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{refuse}'; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER alert_event_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON alert_event "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )


#: Messages to send, one per receiver and event (or digest). ``receiver`` is a hash, because addresses hold secrets.
OUTBOX = Table(
    "outbox",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("key", String(64), nullable=False),
    Column("receiver", String(16), nullable=False),
    Column("alert_id", ForeignKey("alert.id"), index=True),
    Column("title", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("severity", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False, index=True),
    Column("created_at", BigInteger, nullable=False),
    Column("done_at", BigInteger),
    Column("error", Text, nullable=False),
    UniqueConstraint("key", "receiver"),
)

#: The layout of the database. Early databases were made by Alembic, which gave the table its name.
VERSION = Table("alembic_version", METADATA, Column("version_num", String(32), primary_key=True))
