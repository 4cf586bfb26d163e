"""Create the tables of the alert database, and convert databases of earlier layouts.

A layout adds tables, columns and indexes to the one before it, and columns to indexes. A new column needs a default,
which its old rows get. So one function converts every earlier layout.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, insert, inspect, select, update
from sqlalchemy.schema import CreateColumn

from lockstep.alerts.database.alert_row import tracked
from lockstep.alerts.database.listing import columns_of
from lockstep.alerts.database.schema import ALERT, CLOCK, METADATA, VERSION

#: Rows that are in memory at once.
_AT_ONCE = 1000


def create_or_convert(connection: Connection, layout: str) -> None:
    """Create what the database lacks, and name its layout ``layout``. Nothing is deleted.

    Call it in a transaction that excludes other writers. The tables may be missing, or have an earlier layout.
    """
    inspector = inspect(connection)
    older = inspector.has_table(ALERT.name)
    METADATA.create_all(connection)
    if older:
        for table in METADATA.sorted_tables:
            columns = {column["name"] for column in inspector.get_columns(table.name)}
            for column in table.columns:
                if column.name not in columns:
                    text = CreateColumn(column).compile(connection)
                    connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {text}")
            indexes = {index["name"]: index["column_names"] for index in inspector.get_indexes(table.name)}
            for index in table.indexes:
                if indexes.get(index.name) != index.columns.keys():
                    index.drop(connection, checkfirst=True)
                    index.create(connection)
        _fill_lists(connection)
    if connection.scalar(select(CLOCK.c.number)) is None:
        connection.execute(insert(CLOCK).values(id=1, number=1))
    connection.execute(delete(VERSION))
    connection.execute(insert(VERSION).values(version_num=layout))


def _fill_lists(connection: Connection) -> None:
    """Compute the columns that lists use from the contents of the alerts."""
    last = 0
    while rows := connection.execute(select(ALERT).where(ALERT.c.id > last).order_by(ALERT.c.id).limit(_AT_ONCE)).all():
        values = [{"number": row.id, **columns_of(tracked(row).alert)} for row in rows]
        connection.execute(update(ALERT).where(ALERT.c.id == bindparam("number")), values)
        last = rows[-1].id
