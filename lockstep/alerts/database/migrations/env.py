"""Alembic's entry point. It uses the connection of ``lockstep.alerts.database.connection``, inside that connection's
transaction.
"""

from alembic import context

from lockstep.alerts.database.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    # SQLite can roll back DDL; Alembic assumes that it cannot.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
